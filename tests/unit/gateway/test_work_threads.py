"""Work that cannot be interrupted: its place is free when its caller has gone."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from penstock.gateway.work_threads import WorkThreads

ENOUGH_S = 60


def with_threads(places: int, run: Callable[[WorkThreads], Awaitable[None]]) -> None:
    async def running() -> None:
        threads = WorkThreads(places, "test")
        async with asyncio.timeout(ENOUGH_S):
            await run(threads)
        threads.close()

    asyncio.run(running())


async def left(threads: WorkThreads, free: threading.Event, ended: Callable[[], None]) -> None:
    """Begin work that goes on until `free`, and leave it."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        assert free.wait(ENOUGH_S)

    caller = asyncio.create_task(threads.run(work, ended))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_place_of_left_work_is_free() -> None:
    """The next caller gets the place at once; the end of the work is told when it has ended."""

    async def run(threads: WorkThreads) -> None:
        free, ended = threading.Event(), asyncio.Event()
        await left(threads, free, ended.set)
        assert await threads.run(lambda: 7) == 7
        assert not ended.is_set()
        free.set()
        await ended.wait()
        await left(threads, free, lambda: None)
        assert await threads.run(lambda: 8) == 8

    with_threads(1, run)


def test_left_work_is_bounded() -> None:
    """When all threads have such work, further callers wait; those that go meanwhile are told of, too."""

    async def run(threads: WorkThreads) -> None:
        free, ended = threading.Event(), asyncio.Event()
        for _ in range(4):
            await left(threads, free, lambda: None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await threads.run(lambda: 7, ended.set)
        assert ended.is_set()
        waiting = asyncio.create_task(threads.run(lambda: 8))
        free.set()
        assert await waiting == 8

    with_threads(2, run)


def test_error_of_the_work_is_the_callers() -> None:
    """The place is free after an error."""

    async def run(threads: WorkThreads) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await threads.run(lambda: 1 // 0)
        assert await threads.run(lambda: 9) == 9

    with_threads(1, run)
