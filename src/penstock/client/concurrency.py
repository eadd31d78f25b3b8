"""The few things that an event loop and threads do differently, for both clients.

`asynchronous` is written with the first of each pair; `scripts/twins` replaces it by the second
when it writes `synchronous`.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
