"""The places and slots that tasks or threads share: none is lost when one of them ends early."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import httpx
import pytest

from penstock.client.concurrency import AsyncPlaces, AsyncSlot, Slot

LONG_S = 60.0


def in_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run() -> None:
        async def tested() -> None:
            await test()

        asyncio.run(tested())

    return run


async def rounds() -> None:
    """Let all tasks go on as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


@in_loop
async def test_the_task_that_waited_longest_gets_the_next_place() -> None:
    """Places are given in the order in which tasks asked for them."""
    places, order = AsyncPlaces(1), list[int]()

    async def work(number: int) -> None:
        await places.acquire(LONG_S)
        order.append(number)
        await asyncio.sleep(0)
        places.release()

    await asyncio.gather(*(work(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    await places.acquire(0)


@in_loop
async def test_a_wait_that_ends_takes_no_place() -> None:
    """Neither a wait whose time is up nor one that is cancelled takes the place that becomes free afterwards."""
    places = AsyncPlaces(1)
    await places.acquire(LONG_S)
    with pytest.raises(httpx.PoolTimeout):
        await places.acquire(0.001)
    cancelled = asyncio.create_task(places.acquire(LONG_S))
    await rounds()
    cancelled.cancel()
    await asyncio.wait({cancelled})
    places.release()
    await places.acquire(0)
    with pytest.raises(httpx.PoolTimeout):
        await places.acquire(0.001)


@in_loop
async def test_a_task_that_ends_in_its_turn_gives_the_place_on() -> None:
    """A place that a task got in the very round of its cancellation goes to the next one."""
    places = AsyncPlaces(1)
    await places.acquire(LONG_S)
    first, second = (asyncio.create_task(places.acquire(LONG_S)) for _ in range(2))
    await rounds()
    places.release()
    first.cancel()
    await asyncio.wait_for(second, LONG_S)
    assert first.cancelled()
    assert not second.cancelled()


@in_loop
async def test_a_cancelled_wait_is_passed_over() -> None:
    """A release between the cancellation of a task and its end gives the place to the next one."""
    places = AsyncPlaces(1)
    await places.acquire(LONG_S)
    first, second = (asyncio.create_task(places.acquire(LONG_S)) for _ in range(2))
    await rounds()
    first.cancel()
    places.release()
    await asyncio.wait_for(second, LONG_S)
    assert first.cancelled()


@in_loop
async def test_a_wait_that_is_thrown_away_takes_no_place() -> None:
    """A coroutine that is closed while it waits leaves nothing behind."""
    places = AsyncPlaces(1)
    await places.acquire(LONG_S)
    waiting = places.acquire(LONG_S)
    waiting.send(None)
    waiting.close()
    places.release()
    await places.acquire(0)
    with pytest.raises(httpx.PoolTimeout):
        await places.acquire(0.001)


@in_loop
async def test_each_waiting_task_gets_the_value() -> None:
    """Tasks that end early do not disturb the others, and later ones get the value at once."""
    slot = AsyncSlot()
    cancelled, first, second = (asyncio.create_task(slot.get(None)) for _ in range(3))
    await rounds()
    cancelled.cancel()
    with pytest.raises(TimeoutError):
        await slot.get(0.001)
    assert not slot.is_full()
    slot.put(5)
    assert slot.is_full()
    assert [await first, await second, await slot.get(0)] == [5, 5, 5]
    assert cancelled.cancelled()


def test_each_waiting_thread_gets_the_value() -> None:
    """Threads get the value while they wait or later; one whose time is up gets an error before."""
    slot = Slot()
    for timeout_s in (0, -1, 0.001):
        with pytest.raises(TimeoutError):
            slot.get(timeout_s)
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(slot.get, limit_s) for limit_s in (None, LONG_S, None)]
        assert not slot.is_full()
        slot.put(5)
        assert [each.result(LONG_S) for each in waiting] == [5, 5, 5]
    assert slot.is_full()
    assert slot.get(0) == 5


def test_a_value_that_comes_while_a_thread_begins_to_wait_is_not_missed() -> None:
    """Whichever of both is first, the waiting thread gets the value."""
    slots = [Slot() for _ in range(2_000)]
    with ThreadPoolExecutor(1) as threads:
        begun = threading.Barrier(2)

        def take() -> list[int]:
            begun.wait(LONG_S)
            return [slot.get(LONG_S) for slot in slots]

        taken = threads.submit(take)
        begun.wait(LONG_S)
        for number, slot in enumerate(slots):
            slot.put(number)
        assert taken.result(LONG_S) == list(range(2_000))
