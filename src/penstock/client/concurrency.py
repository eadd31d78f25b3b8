"""The few things that an event loop and threads do differently, for both clients.

`asynchronous` is written with the first of each pair; `scripts/twins` replaces it by the second
when it writes `synchronous`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
Item = TypeVar("Item")

_BUSY = "all connections of this client are busy"


class AsyncPlaces:
    """A number of places that the tasks of one event loop share.

    The task that has waited longest gets the next place. `asyncio.Semaphore` does the same in four times the time.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self, timeout_s: float) -> None:
        """Wait for a place.

        Raises:
            PoolTimeout: No place became free within `timeout_s` seconds.
        """
        if self._free:  # the usual case needs no timer
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the place came, and its task has ended
                self.release()
            else:
                with suppress(ValueError):  # `release` may have passed over it already
                    self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise httpx.PoolTimeout(_BUSY) from None
            raise

    def release(self) -> None:
        """Give a place back."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


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
    """A place for one value, for which the tasks of an event loop wait.

    Each of them waits for a future of its own: `asyncio.shield` would let them share one, and take ten times as long.
    """

    __slots__ = ("_is_full", "_value", "_waiters")

    def __init__(self) -> None:
        self._is_full = False
        self._value: Any = None
        self._waiters: list[asyncio.Future[None]] = []

    def put(self, value: Any) -> None:
        """Store the value."""
        self._value, self._is_full = value, True
        for waiter in self._waiters:
            if not waiter.done():  # otherwise its time was up
                waiter.set_result(None)
        self._waiters.clear()

    def is_full(self) -> bool:
        """Say whether the value is there."""
        return self._is_full

    async def get(self, timeout_s: float | None) -> Any:
        """Wait for the value, and return it.

        Raises:
            TimeoutError: It is not there after `timeout_s` seconds.
        """
        if not self._is_full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                if timeout_s is None:
                    await waiter
                else:
                    async with asyncio.timeout(timeout_s):
                        await waiter
            finally:
                if not self._is_full:
                    self._waiters.remove(waiter)
        return self._value


class Slot:
    """A place for one value, for which threads wait; each of them waits for a lock of its own."""

    __slots__ = ("_is_full", "_value", "_waiters")

    def __init__(self) -> None:
        self._is_full = False
        self._value: Any = None
        self._waiters: list[threading.Lock] = []

    def put(self, value: Any) -> None:
        """Store the value."""
        self._value = value
        self._is_full = True
        for waiter in list(self._waiters):  # threads whose time is up leave the list meanwhile
            waiter.release()

    def is_full(self) -> bool:
        """Say whether the value is there."""
        return self._is_full

    def get(self, timeout_s: float | None) -> Any:
        """Wait for the value, and return it.

        Raises:
            TimeoutError: It is not there after `timeout_s` seconds.
        """
        if not self._is_full:
            waiter = threading.Lock()
            waiter.acquire()
            self._waiters.append(waiter)
            limit_s = -1 if timeout_s is None else max(0.0, timeout_s)
            # `put` may have passed over the list already; then the value is there.
            if not (self.is_full() or waiter.acquire(timeout=limit_s) or self.is_full()):
                self._waiters.remove(waiter)
                raise TimeoutError
        return self._value


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
