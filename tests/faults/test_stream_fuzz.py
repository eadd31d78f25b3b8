"""Appends and followers of streams over HTTP, with random numbers, paths, headers and bodies, good and bad."""

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.base.ids import Epoch
from penstock.journal.api import CompactionPolicy
from tests.gateway_thread import HOST, RunningGateway
from tests.stream_gateway import COUNTING, counting
from tests.stream_journal import publish

pytestmark = pytest.mark.faults

PUBLISHED, OLDEST = 8, 4
ERRORS = (400, 404, 405, 406, 410, 413, 414, 415, 431)
FUZZ = settings(
    max_examples=150,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
)

texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = (
    st.integers(-2, PUBLISHED + 2).map(str)
    | st.sampled_from(["earliest", "latest", "Latest", "", "1e3", "٣", "²", "9" * 18, "9" * 400, "-0"])
    | st.integers().map(str)
    | texts
)  # fmt: skip
names = st.sampled_from(["lines", "line", "Lines", "lines/", "lines%2F", "", "numbers", "double"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Serve a stream that has lost its oldest atoms; the event of each atom is its number."""
    with counting(tmp_path_factory.mktemp("fuzz")) as (_, served, journal):
        for number in range(PUBLISHED):
            publish(journal, {"lines": [[str(number)]]})
        journal.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
        journal.forget(Epoch(OLDEST))
        yield served


def check_error(answer: httpx.Response) -> None:
    """An error is one of the caller, has a code, and shows nothing of the gateway."""
    assert answer.status_code in ERRORS, (answer.status_code, answer.text)
    body = answer.json()["error"]
    assert body["code"]
    assert "Traceback" not in answer.text
    if answer.status_code == 410:
        assert (body["code"], answer.headers["penstock-oldest-atom"]) == ("gone", str(OLDEST))


@FUZZ
@given(names | texts, numbers, numbers, numbers | st.none(), st.sampled_from(["GET", "HEAD"]))
def ask(
    client: httpx.Client, name: str, start: str, limit: str, last: str | None, verb: str
) -> None:
    headers = {} if last is None else {"Last-Event-ID": quote(last, safe="")}
    query = {"from": start, "limit": limit, "wait": "0"}
    path = name if name == "lines%2F" else quote(name)
    answer = client.request(verb, f"/streams/{path}", params=query, headers=headers)
    if verb == "HEAD":
        assert answer.status_code in (200, 307, *ERRORS)
    elif answer.status_code != 200:
        check_error(answer)
    elif path:
        body = answer.json()
        atoms = [atom["atom"] for atom in body["atoms"]]
        assert atoms == list(range(body["from"], body["next"]))
        assert [atom["events"] for atom in body["atoms"]] == [[str(number)] for number in atoms]


def test_questions_of_followers(client: httpx.Client) -> None:
    """Each answer has the atoms from its number on, without a gap, or is an error of the caller."""
    ask(client)


@FUZZ
@given(numbers)
def follow(client: httpx.Client, last: str) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": quote(last, safe="")}
    with client.stream("GET", "/streams/lines", headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
            check_error(answer)
            return
        first = int(answer.request.headers["Last-Event-ID"]) + 1
        assert first >= OLDEST
        if first >= PUBLISHED:
            return  # it waits for an atom
        ids = []
        for line in answer.iter_lines():
            if line.startswith("id:"):
                ids.append(int(line[3:]))
                if len(ids) == PUBLISHED - first:
                    break
        assert ids == list(range(first, PUBLISHED))


def test_event_streams(client: httpx.Client) -> None:
    """A server-sent event stream begins behind the last id, or is refused before it begins."""
    follow(client)


async def take(port: int, got: list[int], upto: int, cuts: random.Random | None) -> None:
    """Take atoms behind the last one, until there are `upto`; with `cuts`, cut the connection at random bytes."""
    while len(got) < upto:
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(HOST, port)
            head = f"GET /streams/lines HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n"
            last = f"Last-Event-ID: {got[-1]}\r\n" if got else ""
            writer.write(f"{head}{last}\r\n".encode())
            left, text = cuts.randrange(1, 4_000) if cuts else 1 << 30, b""
            while len(got) < upto and left > 0 and (data := await reader.read(min(left, 1 << 16))):
                left -= len(data)
                whole, _, text = (text + data).rpartition(
                    b"\n\n"
                )  # the rest of an event may be cut off
                got += [int(line[4:]) for line in whole.split(b"\n") if line.startswith(b"id: ")]
            writer.transport.abort()


async def attack(port: int, upto: int) -> list[list[int]]:
    """Let 500 followers take atoms: most as they should, some cut off many times, some read nothing."""
    silent = [await asyncio.open_connection(HOST, port, limit=1) for _ in range(30)]
    for _, writer in silent:
        writer.write(f"GET /streams/lines HTTP/1.1\r\nHost: {HOST}\r\n".encode())
        writer.write(b"Accept: text/event-stream\r\n\r\n")
    followers: list[list[int]] = [[] for _ in range(470)]
    taking = [
        take(port, got, upto, random.Random(place) if place < 20 else None)
        for place, got in enumerate(followers)
    ]
    await asyncio.wait_for(asyncio.gather(*taking), 120)
    for _, writer in silent:
        writer.transport.abort()
    return followers


def test_many_followers_while_some_are_hostile(tmp_path: Path) -> None:
    """Each follower gets each atom once, in order, beside silent ones and cuts, and goes on at another gateway."""
    with counting(tmp_path) as (gateway, client, journal):
        publishing = threading.Thread(
            target=lambda: [publish(journal, {"lines": [["x" * 500]] * 5}) for _ in range(10)]
        )
        publishing.start()
        followers = asyncio.run(attack(gateway.config.gateway.port, 50))
        publishing.join()
        assert followers == [list(range(50))] * 470
        assert client.get("/streams/lines?limit=1").status_code == 200
        publish(journal, {"lines": [["more"]]})
    with RunningGateway(COUNTING, tmp_path / "data", drives=False) as again:
        asyncio.run(take(again.config.gateway.port, followers[0], 51, None))
    assert followers[0] == list(range(51))


@FUZZ
@given(
    names | texts,
    st.lists(values, max_size=4) | values,
    st.sampled_from(["json", "lines", "msgpack", "wrong"]),
)
def append(client: httpx.Client, name: str, events: Any, form: str) -> None:
    if form == "msgpack":
        content = msgspec.msgpack.encode(events, enc_hook=str)
        media = "application/msgpack"
    elif form == "lines" and isinstance(events, list):
        content = b"\n".join(json.dumps(event).encode() for event in events)
        media = "application/x-ndjson"
    else:
        content, media = json.dumps(events).encode(), "application/json"
    content = content[:-1] + b"\xff" if form == "wrong" else content
    path = name if name == "lines%2F" else quote(name)
    headers = {"Content-Type": media}
    answer = client.post(f"/send/streams/{path}", content=content, headers=headers)
    if answer.status_code == 202:
        assert path.rstrip("/") in ("lines", "numbers", "sales")
        assert isinstance(events, list) or form == "lines"
    else:
        check_error(answer)


def test_appends(client: httpx.Client) -> None:
    """An append is durable, or is an error of the caller: wrong types, deep values, broken bytes, unknown streams."""
    append(client)
    huge = [json.dumps(["x" * (1 << 26)]).encode(), b"[" * 100_000 + b"]" * 100_000]
    for content in huge:
        answer = client.post("/streams/lines", content=content)
        check_error(answer)
    missed = client.post("/streams/line", content=b"[]")
    assert "did you mean lines" in missed.json()["error"]["message"]
