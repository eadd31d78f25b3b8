"""Clients follow streams: typed atoms, each once, over connections that break."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from penstock import AsyncClient, Client, RequestError
from penstock.base.ids import Epoch
from penstock.errors import Gone
from penstock.journal.api import CompactionPolicy, Journal
from tests.counting_app import Sale, app, lines, sales
from tests.gateway_thread import Meddler, Meddling, RunningGateway
from tests.stream_gateway import counting
from tests.stream_journal import TIME_US, publish


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[RunningGateway, httpx.Client, Journal]]:
    with counting(tmp_path) as opened:
        yield opened


@contextmanager
def publishing(journal: Journal, atoms: int) -> Iterator[None]:
    """Publish atoms of `lines` in a thread while the block runs: the number, as text."""
    thread = threading.Thread(
        target=lambda: [publish(journal, {"lines": [[str(n)]]}) for n in range(atoms)]
    )
    thread.start()
    yield
    thread.join()


def test_atoms_have_their_types(
    running: tuple[RunningGateway, httpx.Client, Journal],
) -> None:
    """A client that has the stream, or the application, gives events of the declared class."""
    gateway, _, journal = running
    sale = Sale("tea", date(2026, 11, 22), datetime(2026, 11, 22, 9, tzinfo=UTC))
    publish(journal, {"sales": [[sale], [sale, sale]]})
    with Client(gateway.url, app) as client:
        [first, second] = client.stream(sales, follow=False)
        assert (first.number, first.events, first.epoch) == (0, [sale], 0)
        assert first.time == datetime.fromtimestamp(TIME_US / 1e6, UTC)
        assert second.events == [sale, sale]
        assert [atom.events for atom in client.stream("sales", follow=False)] == [
            [sale],
            [sale, sale],
        ]
    with Client(gateway.url) as client:
        [plain] = client.stream("sales", start=1, follow=False)
        assert plain.events[0] == {"item": "tea", "day": "2026-11-22", "at": "2026-11-22T09:00:00Z"}


def test_clients_follow_a_part_of_a_stream(
    running: tuple[RunningGateway, httpx.Client, Journal],
) -> None:
    """`where` chooses events; a loop without an end goes on over atoms that it does not want."""
    gateway, _, journal = running
    tea = Sale("tea", date(2026, 11, 22), datetime(2026, 11, 22, 9, tzinfo=UTC))
    milk = Sale("milk", date(2026, 11, 23), datetime(2026, 11, 23, 9, tzinfo=UTC))
    publish(journal, {"sales": [[milk]] * 10_001 + [[tea, milk], [milk]]})
    with Client(gateway.url, app) as client:
        atoms = client.stream(sales, where={"day": date(2026, 11, 22)}, follow=False)
        assert [(atom.number, atom.events) for atom in atoms] == [(10_001, [tea])]
        assert atoms.next == 10_003
        with pytest.raises(RequestError, match="not filtered by limit"):
            client.stream(sales, where={"limit": 1})
        with pytest.raises(RequestError, match="did you mean item"):
            list(client.stream(sales, where={"itme": "tea"}, follow=False))

    async def one() -> list[Sale]:
        async with AsyncClient(gateway.url, app) as client:
            async for atom in client.stream(sales, where={"item": "tea"}):
                return atom.events
        raise AssertionError

    assert asyncio.run(one()) == [tea]


def test_each_atom_comes_once_over_a_broken_network(
    running: tuple[RunningGateway, httpx.Client, Journal],
) -> None:
    """The client continues after cuts, refusals and lost answers with the next number."""
    gateway, _, journal = running
    with Meddler(urlsplit(gateway.url).port or 0) as meddler, publishing(journal, 30):
        meddler.then.extend(
            [Meddling.CUT_AFTER, None, Meddling.BUSY, Meddling.CUT_BEFORE] * 5  # type: ignore[list-item]
        )
        with Client(meddler.url, app) as client:
            atoms = list(islice(client.stream(lines, start=0), 30))
    assert [(atom.number, atom.events) for atom in atoms] == [(n, [str(n)]) for n in range(30)]


def test_an_event_loop_follows_too(
    running: tuple[RunningGateway, httpx.Client, Journal],
) -> None:
    """An `AsyncClient` waits for new atoms, and other tasks run meanwhile."""
    gateway, _, journal = running

    async def following() -> list[int]:
        got: list[int] = []
        async with AsyncClient(gateway.url, app) as client:
            async for atom in client.stream("lines", start="earliest"):
                got.append(atom.number)
                if len(got) == 10:
                    break
        return got

    with publishing(journal, 10):
        assert asyncio.run(following()) == list(range(10))


def test_the_position_is_known(running: tuple[RunningGateway, httpx.Client, Journal]) -> None:
    """`next` is the number to continue with, and `latest` begins behind the newest atom."""
    gateway, _, journal = running
    publish(journal, {"lines": [["a"], ["b"], ["c"]]})
    with Client(gateway.url, app) as client:
        atoms = client.stream(lines)
        positions: list[object] = [atoms.next]
        assert next(atoms).events == ["a"]
        positions.append(atoms.next)
        assert positions == ["earliest", 1]
        newest = client.stream(lines, start="latest", follow=False)
        assert (list(newest), newest.next) == ([], 3)


def test_errors_of_following(running: tuple[RunningGateway, httpx.Client, Journal]) -> None:
    """An unknown stream is refused before a request is sent, and a removed atom with the oldest number."""
    gateway, _, journal = running
    for _ in range(4):
        publish(journal, {"lines": [["a"]]})
    journal.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
    journal.forget(Epoch(2))
    with Client(gateway.url, app) as client:
        with pytest.raises(RequestError, match="did you mean lines"):
            client.stream("lnes")
        with pytest.raises(Gone) as gone:
            next(client.stream(lines, start=1))
        assert gone.value.oldest == 2
        with pytest.raises(RequestError, match="stream lines has 4 atoms"):
            next(client.stream(lines, start=9))
    with Client(gateway.url) as plain, pytest.raises(RequestError, match="did you mean lines"):
        next(plain.stream("lnes"))
