"""Threads for work that cannot be interrupted, such as a search in an index. For one event loop.

A caller whose time is over leaves its work to its thread, and its place is free for the next caller. So long work delays
others no longer than its caller has waited. The number of threads that are left with such work is bounded.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class WorkThreads:
    """A number of places for work, each with a thread.

    Args:
        places: The work that runs at a time; as much again may be left by its callers.
        name: The name of the threads.
    """

    def __init__(self, places: int, name: str) -> None:
        self._places = asyncio.Semaphore(places)
        self._left = 0
        self._left_max = places
        self._threads = ThreadPoolExecutor(2 * places, name)

    async def run(self, work: Callable[[], T], ended: Callable[[], None] = lambda: None) -> T:
        """Do work in a thread, when there is a place, and return its result.

        Args:
            work: It raises to the caller.
            ended: Is called in the event loop when the work has ended, also without its caller, or when it will not begin.
        """
        try:
            await self._places.acquire()
        except BaseException:
            ended()
            raise
        loop = asyncio.get_running_loop()
        working = self._threads.submit(work)
        has_place = True

        def done(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end)

        def end() -> None:
            if has_place:
                self._places.release()
            else:
                self._left -= 1
            ended()

        working.add_done_callback(done)
        try:
            return await asyncio.wrap_future(working)
        except asyncio.CancelledError:
            if not working.done() and self._left < self._left_max:
                has_place = False
                self._left += 1
                self._places.release()
            raise

    def close(self) -> None:
        """End the threads when their work has ended."""
        self._threads.shutdown(wait=False, cancel_futures=True)
