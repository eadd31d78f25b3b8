"""The few things that an event loop and threads do differently, for both clients.

`asynchronous` is written with the first of each pair; `scripts/twins` replaces it by the second
when it writes `synchronous`.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
Item = TypeVar("Item")

_BUSY = "all connections of this client are busy"


class AsyncPlaces:
    """A number of places that the tasks of one event loop share."""

    def __init__(self, count: int) -> None:
        self._semaphore = asyncio.Semaphore(count)

    async def acquire(self, timeout_s: float) -> None:
        """Wait for a place.

        Raises:
            PoolTimeout: No place became free within `timeout_s` seconds.
        """
        if not self._semaphore.locked():  # the usual case needs no timer
            await self._semaphore.acquire()
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._semaphore.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout(_BUSY) from None

    def release(self) -> None:
        """Give a place back."""
        self._semaphore.release()


class Places:
    """A number of places that threads share."""

    def __init__(self, count: int) -> None:
        self._semaphore = threading.Semaphore(count)

    def acquire(self, timeout_s: float) -> None:
        """Wait for a place.

        Raises:
            PoolTimeout: No place became free within `timeout_s` seconds.
        """
        if not self._semaphore.acquire(timeout=timeout_s):
            raise httpx.PoolTimeout(_BUSY)

    def release(self) -> None:
        """Give a place back."""
        self._semaphore.release()


async def map_in_tasks(
    function: Callable[[Item], Awaitable[T]], items: Iterable[Item], workers: int
) -> list[T]:
    """Apply a coroutine function to items, `workers` at a time; return results in the items' order.

    Args:
        function: It is awaited once for each item.
        items: They are taken one by one, so the iterable may be long.
        workers: The number of tasks.

    Returns:
        One result for each item.
    """
    results: dict[int, T] = {}
    waiting = enumerate(items)

    async def work() -> None:
        for index, item in waiting:  # shared: each item is taken by one task
            results[index] = await function(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(work())
    return [results[index] for index in sorted(results)]


def map_in_threads(function: Callable[[Item], T], items: Iterable[Item], workers: int) -> list[T]:
    """Apply a function to items in `workers` threads; return results in the items' order.

    Args:
        function: It is called once for each item.
        items: All are taken at once.
        workers: The number of threads.

    Returns:
        One result for each item.
    """
    with ThreadPoolExecutor(workers, "penstock-bulk") as threads:
        return list(threads.map(function, items))


class AsyncSlot:
    """A place for one value, for which the tasks of an event loop wait."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def put(self, value: Any) -> None:
        """Store the value."""
        self._future.set_result(value)

    def is_full(self) -> bool:
        """Say whether the value is there."""
        return self._future.done()

    async def get(self, timeout_s: float | None) -> Any:
        """Wait for the value, and return it.

        Raises:
            TimeoutError: It is not there after `timeout_s` seconds.
        """
        if self._future.done():
            return self._future.result()
        if timeout_s is None:
            return await asyncio.shield(self._future)
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(self._future)


class Slot:
    """A place for one value, for which threads wait."""

    def __init__(self) -> None:
        self._future: Future[Any] = Future()

    def put(self, value: Any) -> None:
        """Store the value."""
        self._future.set_result(value)

    def is_full(self) -> bool:
        """Say whether the value is there."""
        return self._future.done()

    def get(self, timeout_s: float | None) -> Any:
        """Wait for the value, and return it.

        Raises:
            TimeoutError: It is not there after `timeout_s` seconds.
        """
        return self._future.result(timeout_s)


class AsyncBackground:
    """Runs a coroutine in a task of the running event loop."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def join(self) -> None:
        """Wait for its end."""
        await self._task


class Background:
    """Runs a coroutine in a thread with an event loop of its own."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        name = "penstock-pipeline"
        self._thread = threading.Thread(target=asyncio.run, args=(work,), name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()
