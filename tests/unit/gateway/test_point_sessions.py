"""Sessions of `POST /at` without stores: their owners, their gateways, and their ends."""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.errors import Gone, RequestError
from penstock.gateway.point_sessions import PointSession, PointSessions
from penstock.gateway.work_threads import WorkThreads
from penstock.retention.leases import active_leases, lease
from penstock.views.alignment import Aligned

Try = Callable[[PointSessions, PointSessions], Awaitable[None]]


class Closed:
    """A reading that says whether it is closed."""

    def __init__(self) -> None:
        self.position = None
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.closed.set()


def aligned(reading: Closed | None = None) -> Aligned:
    return Aligned(Epoch(7), {"books": reading or Closed()})  # type: ignore[dict-item]


async def answer(session: PointSession, body: bytes) -> bytes:
    if body == b"wrong":
        raise RequestError("the body is wrong")
    return b"%s at %d" % (body, session.epoch)


def with_two_gateways(data: Path, run: Try) -> None:
    async def both() -> None:
        threads = WorkThreads(1, "test")
        first, second = (PointSessions(data, threads, answer, lambda _: None) for _ in "12")
        try:
            await run(first, second)
        finally:
            await first.close()
            await second.close()
            threads.close()

    asyncio.run(both())


def test_another_caller_has_no_part_in_a_session(tmp_path: Path) -> None:
    """A session is its owner's alone, also through another gateway, and nobody else can end it."""

    async def run(first: PointSessions, second: PointSessions) -> None:
        begun = await first.begin("ada", aligned())
        for gateway in (first, second):
            assert await gateway.ask(begun.name, "ada", b"tea") == (7, b"tea at 7")
            with pytest.raises(Gone):
                await gateway.ask(begun.name, "bob", b"tea")
            await gateway.end(begun.name, "bob")
            assert await gateway.ask(begun.name, "ada", b"tea") == (7, b"tea at 7")
            with pytest.raises(RequestError, match="the body is wrong"):
                await gateway.ask(begun.name, "ada", b"wrong")
        await second.end(begun.name, "ada")
        with pytest.raises(Gone):
            await first.ask(begun.name, "ada", b"tea")

    with_two_gateways(tmp_path, run)


def test_end_gives_everything_back(tmp_path: Path) -> None:
    """With the session its readings and its lease end; a question under way ends first."""

    async def run(first: PointSessions, _: PointSessions) -> None:
        reading, used = Closed(), asyncio.Event()
        session = await first.begin("ada", aligned(reading))
        assert [lease.epoch for lease in active_leases(tmp_path)] == [7]
        loop = asyncio.get_running_loop()
        free = asyncio.Event()

        def work() -> bool:
            loop.call_soon_threadsafe(used.set)
            asyncio.run_coroutine_threadsafe(free.wait(), loop).result()
            return reading.closed.is_set()

        using = asyncio.create_task(first.use(session, work))
        await used.wait()
        ending = asyncio.create_task(first.end(session.name, "ada"))
        await asyncio.sleep(0)
        assert not reading.closed.is_set()
        free.set()
        assert not await using
        await ending
        assert reading.closed.is_set()
        assert active_leases(tmp_path) == []
        with pytest.raises(Gone):
            await first.use(session, work)

    with_two_gateways(tmp_path, run)


def test_caller_that_goes_while_a_session_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readings are closed, and no lease stays, at whatever moment the caller goes."""
    taking, may_take = threading.Event(), threading.Event()

    @contextmanager
    def slow_lease(data: Path, who: str, epoch: Epoch) -> Iterator[None]:
        taking.set()
        assert may_take.wait(60)
        with lease(data, who, epoch):
            yield

    monkeypatch.setattr("penstock.gateway.point_sessions.lease", slow_lease)

    async def run(first: PointSessions, _: PointSessions) -> None:
        reading = Closed()
        beginning = asyncio.create_task(first.begin("ada", aligned(reading)))
        await asyncio.to_thread(taking.wait, 60)
        beginning.cancel()
        await asyncio.sleep(0)
        may_take.set()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        assert reading.closed.is_set()
        assert active_leases(tmp_path) == []

    with_two_gateways(tmp_path, run)


@pytest.mark.parametrize(
    "name", ["", "nothing", "00000000-x", "../driver-x", "0000000g-", "-", "a/b-c"]
)
def test_unknown_session_is_gone(tmp_path: Path, name: str) -> None:
    """Whatever the id is, the answer is `gone`, and ending it is no error."""

    async def run(first: PointSessions, _: PointSessions) -> None:
        with pytest.raises(Gone, match="begin another one"):
            await first.ask(name, "ada", b"tea")
        await first.end(name, "ada")

    with_two_gateways(tmp_path, run)


def test_session_of_a_killed_gateway_is_gone(tmp_path: Path) -> None:
    """A socket that nobody listens at is that of a killed gateway."""
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(os.fspath(tmp_path / "run/at-0123abcd.sock"))

    async def run(first: PointSessions, _: PointSessions) -> None:
        with pytest.raises(Gone):
            await first.ask("0123abcd-x", "ada", b"tea")
        assert not (tmp_path / "run/at-0123abcd.sock").exists()

    with_two_gateways(tmp_path, run)


def test_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    """A deep data directory has a link to a socket elsewhere, which goes with the gateway."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)

    async def run(first: PointSessions, second: PointSessions) -> None:
        begun = await first.begin("ada", aligned())
        assert await second.ask(begun.name, "ada", b"tea") == (7, b"tea at 7")

    with_two_gateways(deep, run)
    assert list((deep / "run").glob("at-*")) == []
