"""The fields of query strings: each is obeyed, or refused with its name; no field is ignored, cut or replaced."""

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock import Client
from penstock.base.http import REQUEST_ID
from penstock.deployment.loading import load_app
from penstock.errors import RequestError
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import granted
from penstock.gateway.openapi.document import openapi_document
from penstock.model import route
from tests.gateway_thread import RunningGateway

APP = """
from penstock import App, entity, key, readonly, route, stream

@entity
class Lease:
    id: str = key()
    over: bool = False

    def end(self) -> None:
        self.over = True

    @readonly
    @route("GET /leases/{id}/shown")
    def shown(self, timeout: str = "", min_epoch: str = "") -> str:
        return timeout + min_epoch

    @route("POST /leases/{id}/extend")
    def extend(self, days: int, min_epoch: int = 0) -> int:
        return days + min_epoch

letters = stream("letters", str)
app = App("leases", Lease, letters)
"""
YEARS_S = 63_072_000
MOST_S = 365_000 * 86_400


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("leases") / "leases.py"
    path.write_text(APP)
    return str(path)


@pytest.fixture(scope="module")
def stand(spec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(spec, tmp_path_factory.mktemp("data")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def http(stand: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stand.url, timeout=60) as client:
        client.post("/call/Lease/a/create", json={}).raise_for_status()
        yield client


def refusal(answer: httpx.Response) -> str:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["code"] == "request"
    return str(error["message"])


@pytest.mark.parametrize("delay_s", [YEARS_S, MOST_S])
def test_a_long_delay_is_obeyed(http: httpx.Client, delay_s: int) -> None:
    """A delay of years is due in years, up to the longest delay of `send_after`."""
    sent = http.post(f"/send/Lease/a/end?delay={delay_s}", json=[])
    told = http.get(sent.headers["location"]).json()
    assert told["due_us"] / 1e6 == pytest.approx(delay_s + time.time(), abs=600)
    assert told["due"]


@pytest.mark.parametrize(
    "text",
    ["inf", "nan", "-1", "1e99", str(MOST_S + 1), "1_0", "%20%205", "%D9%A3", "", "5s", "0x5"],
)
def test_a_delay_that_cannot_be_obeyed_is_refused(http: httpx.Client, text: str) -> None:
    """A text that is no number, or a longer delay than the log takes, is refused with the field's name."""
    assert refusal(http.post(f"/send/Lease/a/end?delay={text}", json=[])).startswith("delay=")


def test_the_client_refuses_a_delay_that_cannot_be_obeyed(stand: RunningGateway) -> None:
    """`client.send` takes the same delays."""
    with Client(stand.url) as client:
        call = client.prepare.Lease("a").end()
        for delay_s in (float("inf"), float("nan"), -1.0, MOST_S + 1.0):
            with pytest.raises(RequestError, match="delay_s must be from 0 to 31536000000"):
                client.send(call, delay_s=delay_s)
        assert client.send(call, delay_s=YEARS_S).request_id


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/send/Lease/a/end?Delay=3600"),
        ("POST", "/call/Lease/a/end?delay=3600"),
        ("POST", "/send/Lease/a/end?delay=0&delay=3600"),
        ("POST", "/send/Lease/a/end?timeout=1"),
        ("POST", "/streams/letters?delay=5"),
        ("POST", "/streams/letters?min_epoch=5"),
        ("POST", "/call/Lease/a/end?min_epoch=5"),
        ("POST", "/send/streams/letters?dalay=5"),
        ("GET", "/leases/a/shown?delay=5"),
        ("GET", "/leases/a/shown?timeout=a&timeout=b"),
        ("POST", "/leases/a/extend?days=1&Days=2"),
        ("GET", "/entities/Lease/changes?form=0"),
        ("GET", "/entities/Lease/changes?to=3"),
        ("GET", "/entities/Lease/changes?from=0&timeout=3"),
        ("GET", "/entities/Lease/a/history?first=0"),
        ("DELETE", "/requests/none?beginning=yes"),
        ("DELETE", "/requests/none?begining=true"),
        ("GET", "/requests/none?wait=1_0"),
        ("GET", "/streams/letters?limit=%D9%A3"),
        ("GET", "/entities/Lease?min_epoch=soon"),
        ("GET", "/entities/Lease?timeout=never"),
        ("GET", "/entities/Lease/a?timeout=never"),
        ("GET", "/healthz?x"),
        ("GET", "/docs?x=1"),
        ("GET", "/console/api/status?x=1"),
        ("GET", "/console/api/epochs?after=%D9%A3"),
        ("GET", "/console/api/epochs?after=-2"),
    ],
)
def test_a_field_that_nobody_reads_is_refused(http: httpx.Client, verb: str, path: str) -> None:
    """A misspelled, foreign, repeated or meaningless field is an error with its name, and nothing runs."""
    message = refusal(http.request(verb, path, json=[] if verb == "POST" else None))
    name = re.split(r"[?&=]", path)[-2] if "=" in path else path.partition("?")[2]
    assert name in message


def test_the_applications_own_arguments_may_have_any_name(http: httpx.Client) -> None:
    """An argument `timeout` or `min_epoch` of a route is the handler's, and not the gateway's."""
    answer = http.get("/leases/a/shown?timeout=late&min_epoch=-never")
    assert (answer.status_code, answer.text) == (200, "late-never")
    assert http.post("/leases/a/extend?days=1&min_epoch=40").json() == 41


def test_an_argument_stands_in_one_place(http: httpx.Client) -> None:
    """An argument in the query string and in the body is refused, also with the same value."""
    answer = http.post("/leases/a/extend?days=1", json={"days": 2})
    assert "both hold days" in refusal(answer)


def test_an_event_stream_has_no_wait(http: httpx.Client) -> None:
    """`wait` means nothing for server-sent events, so it is refused."""
    headers = {"Accept": "text/event-stream"}
    assert "wait=5" in refusal(http.get("/streams/letters?wait=5", headers=headers))


@pytest.fixture(scope="module")
def operator(spec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client with a key for orders."""
    data = tmp_path_factory.mktemp("keyed")
    _, secret = KeyStore(data).add("op", granted(["*"]), None, utc_now())
    with (
        RunningGateway(spec, data, drives=False) as own,
        httpx.Client(base_url=own.url, headers={"X-API-Key": secret}, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("path", ["/deployments?check=true", "/deployments?epochs=5"])
def test_fields_of_an_archive_do_not_go_with_an_order(operator: httpx.Client, path: str) -> None:
    """`check=true` with a rollback would check nothing, so it is refused before the rollback."""
    assert "belongs to an archive" in refusal(operator.post(path, json={"number": 1}))


@pytest.mark.parametrize("text", ["True", "1", "", "yes"])
def test_a_check_is_never_a_deployment(operator: httpx.Client, text: str) -> None:
    """A text that is neither `true` nor `false` deploys nothing."""
    zipped = {"Content-Type": "application/zip"}
    answer = operator.post(f"/deployments?app=a:b&check={text}", content=b"", headers=zipped)
    assert f"check={text} must be true or false" in refusal(answer)


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ([("Idempotency-Key", "a"), (REQUEST_ID, "b")], "two ids"),
        ([("Idempotency-Key", "a"), ("Idempotency-Key", "b")], "request id"),
        ([("Penstock-Min-Epoch", "1"), ("Penstock-Min-Epoch", "2")], "min_epoch"),
        ([("Penstock-Min-Epoch", "9" * 30)], "min_epoch"),
    ],
)
def test_a_header_has_one_value(
    http: httpx.Client, headers: list[tuple[str, str]], word: str
) -> None:
    """Two ids, or two epochs, of one request are refused; none is dropped."""
    assert word in refusal(http.post("/call/Lease/a/shown", json=[], headers=headers))


@pytest.mark.parametrize("path", ["/entities/Lease/a", "/entities/Lease"])
def test_the_later_of_two_epochs_is_read(http: httpx.Client, path: str) -> None:
    """An epoch in the header and another one in the query string are both obeyed, also by a page."""
    for field, header in (("0", "99999"), ("99999", "0")):
        query, headers = f"min_epoch={field}&timeout=0.05", {"Penstock-Min-Epoch": header}
        answer = http.get(f"{path}?{query}", headers=headers)
        assert answer.status_code == 504


def test_every_documented_field_is_declared(spec: str, stand: RunningGateway) -> None:
    """The OpenAPI document and the routes name the same fields of query strings."""
    assembly = stand._assembly
    assert assembly is not None
    routing = assembly.gateway.version.routing
    compared = 0
    for path, operations in openapi_document(load_app(spec))["paths"].items():
        for verb, operation in operations.items():
            raw = re.sub(r"\{[^}]*\}", "x", path).encode()
            found = routing.find(verb.upper(), raw)
            assert found is not None, path
            fields = found[0].fields
            if fields is not None:
                documented = query_fields(operation)
                assert found[0].has_filters or documented <= fields, (verb, path)
                # the header Penstock-Min-Epoch stands for them in the document
                assert fields - documented <= {"min_epoch", "timeout"}, (verb, path)
                compared += 1
    assert compared > 30


def test_an_application_knows_the_paths_of_the_gateway(spec: str, stand: RunningGateway) -> None:
    """`App` refuses each path that the gateway has, so no gateway fails at its start, or at a deployment."""
    assembly = stand._assembly
    assert assembly is not None
    found = set(paths_below(assembly.gateway.version.routing._root, ""))
    mine = {f"{each.verb} {re.sub('{[^}]*}', '{}', each.path)}" for each in load_app(spec).routes}
    others = {path for path in found - mine if path.split("/")[1] not in route._TAKEN}
    assert others == route._OWN - {route._OF_TABLES}


def paths_below(node: Any, path: str) -> Iterator[str]:
    yield from (f"{verb} {path}" for verb in node.endpoints)
    for name, child in node.literal.items():
        yield from paths_below(child, f"{path}/{name.decode()}")
    if node.named is not None:
        yield from paths_below(node.named, f"{path}/{{}}")


def query_fields(operation: dict[str, Any]) -> set[str]:
    return {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/read", {"calls": [{"entity": "Lease", "key": "a", "method": "shown", "Key": "b"}]}),
        ("/read", {"epoch": 3, "calls": []}),
        ("/flow", {"kind": "pause", "target": "*", "until": 5}),
        ("/deployments", {"number": 1, "check": True}),
        ("/deployments", {"remove": "a", "number": 1}),
        ("/partitions", {"partitions": 2, "timeout": 3}),
        ("/erasures", {"subject": "Lease/a", "check": True}),
    ],
)
def test_bodies_of_the_gateway_have_no_unknown_fields(
    operator: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    """A field that an order or a question does not have is refused with its name."""
    assert "unknown field" in refusal(operator.post(path, json=body))
