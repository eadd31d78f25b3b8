"""Appends to streams through a gateway: the forms of events, their refusals, and the rights of callers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from penstock import AsyncClient, Client, ConfigError, RequestError, Throttled
from penstock.base.ids import RequestId
from penstock.engine.execute import Limits
from penstock.errors import Forbidden, RequestConflict
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import granted
from penstock.gateway.flow.limit_table import limits_in_force
from penstock.gateway.openapi.document import openapi_document
from penstock.log.api import Entry
from penstock.model.request import append_events, decode_request, encode_continuation
from penstock.orders.pauses import PauseFile
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway
from tests.unit.gateway.newsstand_app import Reader, Sale, app, headlines, readers, sales, scarce
from tests.waiting import wait_for

SPEC = "tests.unit.gateway.newsstand_app:app"
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    data = tmp_path_factory.mktemp("stand")
    with RunningGateway(SPEC, data, limits=Limits(time_ms=2_000)) as running:
        yield running


@pytest.fixture(scope="module")
def http(stand: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stand.url, timeout=60) as client:
        yield client


@pytest.fixture
def client(stand: RunningGateway) -> Iterator[Client]:
    with Client(stand.url, app) as one:
        yield one


def logged(stand: RunningGateway, request_id: str) -> tuple[str | None, list[bytes]]:
    """Return the stream and the events of an append, as the log has them."""
    assert stand.driver is not None
    log = stand.driver.log
    (record,) = [one for one in log.read(log.start(), log.end()) if one.request_id == request_id]
    request = decode_request(record.body)
    return request.stream, append_events(request)


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (b'[{"title": "Sun"}, {"title": "Moon", "copies": 3}]', {}),
        (b'{"title": "Sun"}\n\n{"copies": 3, "title": "Moon"}\r\n', LINES),
        (
            msgspec.msgpack.encode([Sale("Sun"), Sale("Moon", 3)]),
            {"Content-Type": "application/msgpack"},
        ),
    ],
    ids=["json", "lines", "msgpack"],
)
def test_forms_of_events(
    stand: RunningGateway, http: httpx.Client, content: bytes, headers: dict[str, str]
) -> None:
    """Each form gives the same record of the log, and the answer is the number of events."""
    request_id = f"form-{len(content)}"
    sent = {**headers, "Idempotency-Key": request_id}
    answer = http.post("/streams/sales", content=content, headers=sent)
    assert (answer.status_code, answer.json()) == (200, 2), answer.text
    assert answer.headers["penstock-request-id"] == request_id
    assert int(answer.headers["penstock-epoch"]) >= 0
    encode = sales.events.encode
    assert logged(stand, request_id) == ("sales", [encode(Sale("Sun")), encode(Sale("Moon", 3))])


def test_an_id_is_one_atom(stand: RunningGateway, http: httpx.Client) -> None:
    """A repeated append takes effect once; the same id with other events is refused."""
    headers = {"Idempotency-Key": "front-page"}
    answers = [http.post("/streams/headlines", json=["a", "b"], headers=headers) for _ in range(2)]
    assert [one.json() for one in answers] == [2, 2]
    assert answers[0].headers["penstock-epoch"] == answers[1].headers["penstock-epoch"]
    assert logged(stand, "front-page")[0] == "headlines"
    other = http.post("/streams/headlines", json=["a"], headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "request-conflict")


def test_an_atom_may_be_empty(http: httpx.Client) -> None:
    """An append of no events is an atom, too."""
    assert http.post("/streams/headlines", json=[]).json() == 0


def test_send_does_not_wait(http: httpx.Client) -> None:
    """`/send` answers when the append is durable; its status names the number of events."""
    sent = http.post("/send/streams/headlines", json=["a", "b", "c"])
    assert sent.status_code == 202
    assert http.get(sent.headers["location"], params={"wait": "60"}).json()["value"] == 3


def test_delayed_append_can_be_cancelled(http: httpx.Client) -> None:
    """An append with a delay is scheduled like a call."""
    sent = http.post("/send/streams/headlines?delay=86400", json=["tomorrow"])
    place = sent.headers["location"]
    assert http.get(place).json()["status"] == "scheduled"
    assert http.delete(place).status_code == 200


@pytest.mark.parametrize(
    ("content", "headers", "message"),
    [
        (
            b'[{"title": "Sun"}, {"title": 5}]',
            {},
            "stream sales: events[1].title: Expected `str`, got `int`",
        ),
        (b"[{}]", {}, "stream sales: events[0]: Object missing required field `title`"),
        (
            b'{"title": "Sun"}\n\n{"title": "Sun", "copies": "x"}',
            LINES,
            "stream sales: line 3: events[1].copies: Expected `int`, got `str`",
        ),
        (b'{"title": "Sun"}', {}, "stream sales: events: Expected `array`, got `object`"),
        (b"", {}, "stream sales: events: Input data was truncated"),
        (
            b'{"title":',
            LINES,
            "stream sales: line 1: events[0]: Input data was truncated",
        ),
        (
            msgspec.msgpack.encode([{"title": None}]),
            {"Content-Type": "application/msgpack"},
            "stream sales: events[0].title: Expected `str`, got `None`",
        ),
    ],
)
def test_wrong_events_are_refused_with_their_place(
    http: httpx.Client, content: bytes, headers: dict[str, str], message: str
) -> None:
    """The error is 400 and names the event and the field."""
    answer = http.post("/streams/sales", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"] == {"code": "request", "kind": "RequestError", "message": message}


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("headline", "there is no stream 'headline'; did you mean headlines?"),
        ("words", "stream words takes no appends, because a workflow publishes on it"),
    ],
)
def test_stream_that_takes_no_appends(http: httpx.Client, stream: str, message: str) -> None:
    """An unknown stream and the stream of a workflow are refused; the message names streams that fit."""
    for path in (f"/streams/{stream}", f"/send/streams/{stream}"):
        answer = http.post(path, json=["a"])
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("way", "code"), [("raise", "request"), ("exit", "limit-exceeded"), ("wait", "limit-exceeded")]
)
def test_code_of_an_event_costs_its_append_only(http: httpx.Client, way: str, code: str) -> None:
    """A class of events may raise, end its process or never return: the gateway goes on."""
    answer = http.post("/streams/fussy", json=[{"way": way}])
    assert answer.json()["error"]["code"] == code, answer.text
    assert http.post("/streams/headlines", json=["after"]).json() == 1
    # On a busy machine, also a reader that only passes on the value may be too slow for the limit.
    wait_for(lambda: http.post("/streams/fussy", json=[{"way": "through"}]).text == "1", "a value")


def test_too_large_append_is_refused(tmp_path: Path) -> None:
    """A body beyond `gateway.body_bytes_max` gets 413, with the name of the setting."""
    with RunningGateway(
        SPEC, tmp_path, GatewayConfig(body_bytes_max=1_024), drives=False, reads=False
    ) as small:
        answer = httpx.post(f"{small.url}/streams/headlines", json=["a" * 2_000])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, "record-too-large")
    assert error["message"] == "a body takes at most gateway.body_bytes_max = 1024 bytes"


def test_client_appends_with_types(stand: RunningGateway, client: Client) -> None:
    """A client takes the stream or its name, and the events have the types of the stream."""
    assert client.append(sales, [Sale("Sun"), Sale("Moon", 3)], request_id="typed") == 2
    assert client.append("headlines", (text for text in ("a", "b"))) == 2
    assert client.append(readers, [Reader("ada")], request_id="reader") == 1
    assert logged(stand, "typed")[1] == [
        sales.events.encode(sale) for sale in (Sale("Sun"), Sale("Moon", 3))
    ]
    assert logged(stand, "reader") == ("readers", [b"\xa3ada"])
    assert client.append(sales, [Sale("Sun"), Sale("Moon", 3)], request_id="typed") == 2
    with pytest.raises(RequestConflict):
        client.append(sales, [Sale("Sun")], request_id="typed")


def test_client_refuses_wrong_events_before_it_sends_them() -> None:
    """The error comes without a gateway."""
    with Client("http://127.0.0.1:9", app) as client:
        with pytest.raises(RequestError, match=r"sales: events\[1\]\.copies: Expected `int`"):
            client.append(sales, [Sale("Sun"), Sale("Moon", "3")])  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="did you mean headlines"):
            client.append("headline", ["a"])
        with pytest.raises(RequestError, match=r"are no list; an atom of one event is \[event\]"):
            client.append(headlines, "text")


def test_client_without_the_application_appends_json(stand: RunningGateway) -> None:
    """The gateway checks the events, and its message comes to the caller."""
    with Client(stand.url) as plain:
        assert plain.append("sales", [{"title": "Sun"}]) == 1
        assert plain.append(headlines, ["a", "b"]) == 2
        with pytest.raises(RequestError, match=r"sales: events\[0\]\.title: Expected `str`"):
            plain.append("sales", [{"title": 1}])


def test_client_prepares_appends(client: Client) -> None:
    """`prepare.append` gives appends for `send` and `bulk`, together with calls."""
    pending = client.send(client.prepare.append(headlines, ["a", "b"]))
    assert pending.result(60) == 2
    calls = [client.prepare.append(sales, [Sale("Sun")] * count) for count in range(3)]
    assert client.bulk(calls) == [0, 1, 2]
    later = client.send(client.prepare.append(headlines, ["tomorrow"]), delay_s=86_400)
    client.cancel(later.request_id)


def test_function_with_the_name_append_is_reached(client: Client) -> None:
    """`client.call` calls functions whose names are methods of the client."""
    assert client.call.append("x") == "x"


def test_async_client_appends(stand: RunningGateway) -> None:
    """The client of an event loop has the same methods."""

    async def appended() -> list[int]:
        async with AsyncClient(stand.url, app) as client:
            sent = await client.send(client.prepare.append(headlines, ["a"]))
            return [await client.append(sales, [Sale("Sun")]), await sent.result(60)]

    assert asyncio.run(appended()) == [1, 1]


def test_rights_limits_and_pauses(tmp_path: Path) -> None:
    """A key needs the scope of the stream; limits count appends; an operator pauses a stream."""
    secrets = {
        name: KeyStore(tmp_path).add(name, granted([scope]), None, utc_now())[1]
        for name, scope in (("sun", "append:scarce"), ("moon", "append"), ("star", "call"))
    }
    with RunningGateway(SPEC, tmp_path) as stand:
        sun, moon, star = (
            Client(stand.url, app, key=secret, retries=0) for secret in secrets.values()
        )
        assert [sun.append(scarce, [1, 2, 3]), moon.append(headlines, ["a"])] == [3, 1]
        with pytest.raises(Forbidden, match="sun lacks the scope append:headlines"):
            sun.append(headlines, ["a"])
        with pytest.raises(Forbidden, match="star lacks the scope append:scarce"):
            star.append(scarce, [1])
        sun.append(scarce, [4], request_id="own")
        assert sun.pending("own", int).result() == 1  # the right to append is the right to ask
        assert stand.driver is not None
        later = [RequestId("sun~own~~c1"), RequestId("sun~gone~~c1")]
        stand.driver.log.append([Entry(name, encode_continuation(), b"", 1) for name in later])
        key = {"X-API-Key": secrets["sun"]}
        with httpx.Client(base_url=stand.url, headers=key, timeout=60) as http:
            paths = [f"/requests/{name}~~c1?wait=30" for name in ("own", "gone")]
            answers = [http.get(path) for path in paths]
        assert [answer.status_code for answer in answers] == [200, 403], "the right of the root"
        with pytest.raises(Throttled, match="the limit `streams/scarce 2/d per principal`"):
            sun.append(scarce, [5])
        PauseFile(tmp_path).pause("streams/headlines", "test", "strike", 0)
        wait_for(lambda: is_paused(moon), "a paused stream")
        assert moon.append(sales, [Sale("Sun")]) == 1
        for one in (sun, moon, star):
            one.close()


def is_paused(client: Client) -> bool:
    (outcome,) = client.bulk([client.prepare.append(headlines, ["a"])], raise_errors=False)
    return "streams/headlines is paused: strike" in str(outcome)


def test_settings_limit_streams() -> None:
    """The setting `gateway.limits` names streams, and a wrong name or bound is refused."""
    limits = limits_in_force(app, "streams/headlines 5/s, streams/sales 1 at once")
    assert [str(one) for one in limits] == [
        "streams/scarce 2/d per principal",
        "streams/headlines 5/s",
        "streams/sales 1 at once",
    ]
    with pytest.raises(ConfigError, match="did you mean headlines"):
        limits_in_force(app, "streams/headline 5/s")
    with pytest.raises(ConfigError, match="an append has no key"):
        limits_in_force(app, "streams/headlines 5/s per key")


def test_document_describes_appends() -> None:
    """Each open stream has an operation with the schema of its events; streams of workflows have none."""
    document = openapi_document(app)
    paths = document["paths"]
    streams = [path for path in paths if path.startswith("/streams/") and "post" in paths[path]]
    assert streams == [
        "/streams/-/tickets",  # of the gateway: no stream has this name
        *(f"/streams/{name}" for name in ("fussy", "headlines", "readers", "sales", "scarce")),
    ]
    body = paths["/streams/sales"]["post"]["requestBody"]["content"]
    schema = {**body["application/json"]["schema"], "components": document["components"]}
    valid = Draft202012Validator(schema).is_valid
    assert valid([{"title": "Sun"}, {"title": "Moon", "copies": 3}])
    assert not valid([{"copies": 3}])
    assert not valid({"title": "Sun"})
