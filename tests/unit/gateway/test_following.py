"""Followers of streams over HTTP: every atom once, in order, from any number, with everything real but the driver."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator, MutableMapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.base.ids import Epoch
from penstock.deployment.loading import load_app
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.gateway.handlers import streams
from penstock.journal.api import CompactionPolicy, Journal
from penstock.model.streams.failed_atom import FailedAtom
from tests.gateway_thread import RunningGateway
from tests.stream_gateway import COUNTING, counting
from tests.stream_journal import TIME_US, publish
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningGateway, httpx.Client, Journal]]:
    """A gateway with seven atoms of `lines` in three epochs."""
    with counting(tmp_path_factory.mktemp("counting")) as opened:
        for epoch in range(3):
            publish(opened[2], {"lines": [[f"{epoch}-{n}", "x"][: n + 1] for n in range(2)]})
        publish(opened[2], {"lines": [[]], "numbers": [[3, 4]]})
        yield opened


@pytest.fixture
def client(running: tuple[RunningGateway, httpx.Client, Journal]) -> httpx.Client:
    return running[1]


def numbers_of(answer: httpx.Response) -> list[int]:
    return [atom["atom"] for atom in answer.json()["atoms"]]


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_atoms_have_number_events_time_and_epoch(client: httpx.Client) -> None:
    """An answer has the atoms in order, and the number to ask for next."""
    answer = client.get("/streams/lines")
    body = answer.json()
    first = body.pop("atoms")[1]
    assert body == {"stream": "lines", "from": 0, "next": 7, "published": 7}
    assert first == {
        "atom": 1,
        "events": ["0-1", "x"],
        "time": datetime.fromtimestamp(TIME_US // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        + ".000001Z",
        "epoch": 0,
    }
    assert answer.headers["penstock-epoch"] == "3"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("from=3", [3, 4, 5, 6]),
        ("from=earliest&limit=2", [0, 1]),
        ("from=latest", []),
        ("from=7", []),
        ("from=5&limit=1", [5]),
    ],
)
def test_from_and_limit_choose_the_atoms(
    client: httpx.Client, query: str, expected: list[int]
) -> None:
    """`from` is a number, `earliest` or `latest`; `limit` bounds the answer, and `next` follows it."""
    answer = client.get(f"/streams/lines?{query}")
    assert numbers_of(answer) == expected
    assert answer.json()["next"] == (expected[-1] + 1 if expected else 7)


@pytest.mark.parametrize(
    ("path", "status", "wanted", "words"),
    [
        ("/streams/lnes", 400, "request", "did you mean lines"),
        ("/streams/lines?from=8", 400, "request", "stream lines has 7 atoms"),
        ("/streams/lines?from=-1", 400, "request", "earliest or latest"),
        ("/streams/lines?from=1e3", 400, "request", "from=1e3"),
        ("/streams/lines?limit=0", 400, "request", "limit=0"),
        ("/streams/lines?limit=100000000000000000000", 400, "request", "limit="),
        ("/streams/lines?wait=nan", 400, "request", "wait=nan"),
    ],
)
def test_wrong_questions_are_refused(
    client: httpx.Client, path: str, status: int, wanted: str, words: str
) -> None:
    """Each wrong field is named, and an unknown stream with similar names."""
    answer = client.get(path)
    assert (answer.status_code, code(answer)) == (status, wanted)
    assert words in answer.json()["error"]["message"]


def test_messagepack_keeps_all_types(client: httpx.Client) -> None:
    """With `Accept: application/msgpack` the events are MessagePack as they are stored."""
    answer = client.get("/streams/lines?from=6", headers={"Accept": "application/msgpack"})
    body = msgspec.msgpack.decode(answer.content)
    assert (body["stream"], body["next"]) == ("lines", 7)
    assert body["atoms"][0] == {
        "atom": 6,
        "events": [],
        "time": datetime.fromtimestamp(TIME_US // 1_000_000, UTC).replace(microsecond=6),
        "epoch": 3,
    }


def test_streams_are_listed(client: httpx.Client) -> None:
    """The list has every stream, also those of workflows, with publishers and subscribers."""
    listed = {one["name"]: one for one in client.get("/streams").json()["streams"]}
    assert set(listed) == {
        *("lines", "sales", "numbers", "doubled", "double-failed"),
        *("parity-even", "parity-failed", "joined"),
    }
    assert listed["numbers"] == {
        "name": "numbers",
        "events": "int",
        "publisher": "appends and emit",
        "open": True,
        "subscribers": ["workflow double", "splitter parity"],
        "oldest": 0,
        "next": 1,
        "rate": listed["numbers"]["rate"],
    }
    assert {name: one["publisher"] for name, one in listed.items() if not one["open"]} == {
        "doubled": "workflow double",
        "double-failed": "failures of workflow double",
        "parity-even": "splitter parity",
        "parity-failed": "failures of splitter parity",
        "joined": "sequencer joined",
    }


def test_events_have_the_json_of_their_type(tmp_path: Path) -> None:
    """Dates are RFC 3339, and the events of a failed atom are readable, too."""
    with counting(tmp_path) as (_, client, journal):
        sales = load_app(COUNTING).stream("sales")
        sale = {
            "item": "tea",
            "day": date(2026, 11, 22),
            "at": datetime(2026, 11, 22, 9, tzinfo=UTC),
        }
        failed = FailedAtom("sales", "r#1", "aborted", "no tea", (msgspec.msgpack.encode(sale),))
        publish(journal, {"sales": [[sale]], "double-failed": [[failed]]})
        assert sales.annotation.__name__ == "Sale"
        expected = {"item": "tea", "day": "2026-11-22", "at": "2026-11-22T09:00:00Z"}
        shown = client.get("/streams/sales").json()["atoms"][0]["events"]
        assert shown == [expected]
        other = client.get("/streams/double-failed").json()["atoms"][0]["events"][0]
        assert other["events"] == [expected]
        assert (other["source"], other["code"]) == ("sales", "aborted")


def test_a_waiting_request_gets_the_next_atom(tmp_path: Path) -> None:
    """`wait` delays an empty answer until an atom comes, also the first of a stream."""
    with counting(tmp_path) as (_, client, journal):
        assert client.get("/streams/lines?wait=0.01").json()["atoms"] == []
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(client.get("/streams/lines?wait=60"))
        )
        waiting.start()
        publish(journal, {"numbers": [[1]]})
        publish(journal, {"lines": [["a"]]})
        waiting.join()
        assert numbers_of(answers[0]) == [0]


def events_of(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield id and data of each server-sent event."""
    number = -1
    for line in lines:
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            yield number, json.loads(line[6:])


STREAM = {"Accept": "text/event-stream"}


def test_an_event_stream_continues_after_a_cut(tmp_path: Path) -> None:
    """A follower that connects with the id of its last event gets each atom once."""
    with counting(tmp_path) as (_, client, journal):
        got: list[int] = []
        publishing = threading.Thread(
            target=lambda: [publish(journal, {"lines": [[str(n)], []]}) for n in range(20)]
        )
        publishing.start()
        while len(got) < 40:
            headers = STREAM | ({"Last-Event-ID": str(got[-1])} if got else {})
            with client.stream("GET", "/streams/lines", headers=headers) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                events = events_of(answer.iter_lines())
                for number, body in (next(events) for _ in range(10)):
                    assert body["atom"] == number
                    got.append(number)
        publishing.join()
        assert got == list(range(40))


SALE = {"item": "tea", "day": date(2026, 11, 22), "at": datetime(2026, 11, 22, 9, tzinfo=UTC)}
COFFEE = SALE | {"item": "coffee"}


def test_a_follower_takes_the_events_that_it_names(tmp_path: Path) -> None:
    """Other events are left out, and atoms without events; numbers count all atoms."""
    with counting(tmp_path) as (_, client, journal):
        publish(journal, {"sales": [[SALE, COFFEE], [SALE], [], [COFFEE, COFFEE], [SALE]]})
        body = client.get("/streams/sales?item=coffee").json()
        shown = {each["atom"]: [sale["item"] for sale in each["events"]] for each in body["atoms"]}
        assert shown == {0: ["coffee"], 3: ["coffee", "coffee"]}
        assert (body["from"], body["next"], body["published"]) == (0, 5, 5)
        body = client.get("/streams/sales?item=coffee&day=2026-11-22&limit=1").json()
        assert (len(body["atoms"]), body["next"]) == (1, 1)
        packed = client.get("/streams/sales?item=tea", headers={"Accept": "application/msgpack"})
        atoms = msgspec.msgpack.decode(packed.content)["atoms"]
        assert [(each["atom"], each["events"]) for each in atoms] == [
            (number, [SALE | {"day": "2026-11-22"}]) for number in (0, 1, 4)
        ]
        failed = FailedAtom("numbers", "r#1", "aborted", "no", ())
        publish(journal, {"double-failed": [[failed], [failed]]})
        assert numbers_of(client.get("/streams/double-failed?code=aborted&from=1")) == [1]
        for query, words in (("itm=tea", "did you mean item"), ("day=now", "'now' is no date")):
            refused = client.get(f"/streams/sales?{query}")
            assert (refused.status_code, code(refused)) == (400, "request")
            assert words in refused.json()["error"]["message"]


def test_a_filtered_follower_waits_over_other_events(tmp_path: Path) -> None:
    """A wait ends with an event that fits; an event stream tells the last atom, so a follower begins behind it."""
    with counting(tmp_path) as (_, client, journal):
        answers: list[dict[str, Any]] = []
        waiting = threading.Thread(
            target=lambda: answers.append(client.get("/streams/sales?item=tea&wait=60").json())
        )
        waiting.start()
        for sale in (COFFEE, COFFEE, SALE):
            publish(journal, {"sales": [[sale]]})
        waiting.join()
        [atom] = answers[0]["atoms"]
        assert (atom["atom"], answers[0]["next"]) == (2, 3)
        late = client.get("/streams/sales?item=tea&from=3&wait=0.01").json()
        assert (late["atoms"], late["next"]) == ([], 3)
        publish(journal, {"sales": [[COFFEE]]})
        with client.stream("GET", "/streams/sales?item=tea", headers=STREAM) as answer:
            lines = [line for line, _ in zip(answer.iter_lines(), range(7), strict=False)]
        assert [line for line in lines if line.startswith("id")] == ["id: 2", "id: 3"]
        assert sum(line.startswith("data") for line in lines) == 1


def test_removed_atoms_are_gone_with_the_oldest_number(tmp_path: Path) -> None:
    """A follower behind retention gets 410 and the oldest number, also one with the id of an event."""
    with counting(tmp_path) as (_, client, journal):
        for epoch in range(8):
            publish(journal, {"lines": [[str(epoch)]]})
        journal.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
        journal.forget(Epoch(4))
        assert numbers_of(client.get("/streams/lines?from=earliest")) == [4, 5, 6, 7]
        for query, headers in (("?from=3", {}), ("?from=3", STREAM), ("", {"Last-Event-ID": "2"})):
            refused = client.get(f"/streams/lines{query}", headers=headers)
            assert (refused.status_code, code(refused)) == (410, "gone")
            assert refused.headers["penstock-oldest-atom"] == "4"
            assert "the oldest atom is 4" in refused.json()["error"]["message"]


def atoms_sent(client: httpx.Client) -> float:
    return metric("atoms_sent_total", client)


def metric(name: str, client: httpx.Client, stream: str = "lines") -> float:
    """Return a number about the followers of a stream; the numbers of a process belong to all of its gateways."""
    pattern = rf'^penstock_stream_{name}{{stream="{stream}"}} (.*)$'
    measured = re.search(pattern, client.get("/metrics").text, re.MULTILINE)
    return float(measured[1]) if measured else 0.0


def test_a_slow_reader_is_not_buffered(tmp_path: Path) -> None:
    """A follower that reads nothing holds up neither the gateway nor other followers."""
    with counting(tmp_path) as (gateway, client, journal):
        before = atoms_sent(client)  # the counters of a process belong to all of its gateways
        publish(journal, {"lines": [["x" * 1_000_000] for _ in range(40)]})
        with socket.create_connection(("127.0.0.1", gateway.config.gateway.port)) as slow:
            head = (
                f"GET /streams/lines HTTP/1.1\r\nHost: 127.0.0.1:{gateway.config.gateway.port}\r\n"
            )
            slow.sendall(f"{head}Accept: text/event-stream\r\n\r\n".encode())
            assert slow.recv(12) == b"HTTP/1.1 200"
            publish(journal, {"numbers": [[1]]})
            assert numbers_of(client.get("/streams/numbers?wait=60")) == [0]
            assert atoms_sent(client) - before < 40


def test_an_event_is_sent_in_pieces() -> None:
    """The server keeps several pieces for a slow reader, so a piece is small, and an event is whole for its reader."""
    sent: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        yield b"data: %b\n\n" % (b"x" * 50_000)

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"])

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    asyncio.run(streams.EventStream(chunks(), {})({"type": "http"}, receive, send))
    assert b"".join(sent) == b"retry: 1000\n\ndata: 1\n\ndata: %b\n\n" % (b"x" * 50_000)
    assert max(map(len, sent)) == streams.PIECE_BYTES


def test_following_needs_its_scope(tmp_path: Path) -> None:
    """A key follows the streams of its scopes, and sees no other in the list."""
    with counting(tmp_path) as (gateway, client, _):
        store = KeyStore(gateway.config.data)
        _, key = store.add("web", granted(["follow:lines"]), None, datetime.now(UTC))
        _, other = store.add("ops", granted(["follow"]), None, datetime.now(UTC))
    with RunningGateway(COUNTING, gateway.config.data, drives=False, reads=False) as again:
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{again.url}/streams/lines", headers=headers).status_code == 200
        refused = httpx.get(f"{again.url}/streams/numbers", headers=headers)
        assert (refused.status_code, code(refused)) == (403, "forbidden")
        assert "follow:numbers" in refused.text
        listed = httpx.get(f"{again.url}/streams", headers=headers).json()["streams"]
        assert [one["name"] for one in listed] == ["lines"]
        headers = {"Authorization": f"Bearer {other}"}
        assert len(httpx.get(f"{again.url}/streams", headers=headers).json()["streams"]) == 8
        assert client is not None


@pytest.mark.parametrize("headers", [{}, {"Accept": "text/event-stream"}])
def test_a_revoked_key_gets_no_further_atom(
    tmp_path: Path, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next atom ends an event stream with an error, and a request that waits for it is refused."""
    monkeypatch.setattr(streams, "CHECK_S", 0.0)
    with counting(tmp_path) as (gateway, client, journal):
        store = KeyStore(gateway.config.data)
        key = store.add("web", granted(["follow"]), None, datetime.now(UTC))[1]
        operator = store.add("operator", granted(["admin"]), None, datetime.now(UTC))[1]
        client.headers["Authorization"] = f"Bearer {operator}"
        wait_for(lambda: client.get("/metrics").status_code == 200, "the operator's key")
        publish(journal, {"numbers": [[1]]})
        url, with_key = f"{gateway.url}/streams/numbers", {"Authorization": f"Bearer {key}"}

        def answers(status: int) -> bool:
            return httpx.get(url, headers=with_key).status_code == status

        async def following() -> str:
            async with httpx.AsyncClient(headers=with_key | headers, timeout=60) as client:
                if not headers:
                    waiting = asyncio.create_task(client.get(f"{url}?from=1&wait=60"))
                    await asyncio.to_thread(revoke)
                    return (await waiting).text
                async with client.stream("GET", url) as events:
                    await asyncio.to_thread(revoke)
                    return (await events.aread()).decode()

        def revoke() -> None:
            wait_for(lambda: metric("followers", client, "numbers") == 1, "the follower")
            store.revoke("web")
            wait_for(lambda: answers(401), "the end of the key")
            publish(journal, {"numbers": [[98765]]})

        wait_for(lambda: answers(200), "the key")
        wait_for(lambda: metric("followers", client, "numbers") == 0, "the end of the request")
        text = asyncio.run(following())
    assert "unauthenticated" in text
    assert "98765" not in text
    assert not headers or ('"events":[1]' in text and "event: refused" in text)


def test_lag_of_followers_is_kept_for_an_hour(client: httpx.Client) -> None:
    """The load of the last hour says how many atoms a follower had still to get when it was served."""
    assert numbers_of(client.get("/streams/lines?limit=2")) == [0, 1]
    points = client.get("/metrics/recent").json()["points"]
    published = client.get("/streams/lines?limit=1").json()["published"]
    assert {"lines": published - 2} in [point["follower_lags"] for point in points]
    assert points[-1]["workflow_lags"] == {}


def test_a_stopping_gateway_ends_its_followers(tmp_path: Path) -> None:
    """Event streams end and waiting requests are answered at once, so that a drain is short."""

    async def stopping() -> tuple[str, dict[str, Any]]:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            async with client.stream("GET", "/streams/lines", headers=STREAM) as events:
                waiting = asyncio.create_task(client.get("/streams/lines?wait=60"))
                gateway.refuse_waiting()
                text = (await events.aread()).decode()
            return text, (await waiting).json()

    with counting(tmp_path) as (gateway, _, _):
        text, answer = asyncio.run(stopping())
    assert text.replace("\n:\n", "\n") in ("retry: 1000\n\n", "retry: 1000\n\n\n")
    assert answer["atoms"] == []
