"""Connections of a client: a lane for each, taken for one question and given back.

One httpx client with a pool of many connections searches all of it for each request: at 64
connections that costs ten times what the request does. So each lane is an httpx client with one
connection, and finding a free one costs the same however many there are. The lane that was used
last is taken first, so that few connections stay warm rather than many go cold.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx

_BUSY = "all connections of this client are busy"
_CLOSED = "this client is closed"


class Lanes:
    """Lanes that threads share."""

    def __init__(self, make: Callable[[], httpx.Client], most: int) -> None:
        """Make a lane with `make` when none is free, at most `most`."""
        self._make = make
        self._free = threading.Semaphore(most)
        self._idle: deque[httpx.Client] = deque()
        self._made: list[httpx.Client] = []
        self._closed = False

    @contextmanager
    def lane(self, timeout_s: float) -> Iterator[httpx.Client]:
        """Take a lane, and give it back when the block ends.

        Raises:
            PoolTimeout: None became free in time.
            RuntimeError: The client was closed.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        if not self._free.acquire(timeout=timeout_s):
            raise httpx.PoolTimeout(_BUSY)
        try:
            try:
                client = self._idle.pop()
            except IndexError:
                client = self._make()
                self._made.append(client)
            try:
                yield client
            finally:
                self._idle.append(client)
        finally:
            self._free.release()

    def close(self) -> None:
        """End all connections; no lane is given any more."""
        self._closed = True
        for client in self._made:
            client.close()


class AsyncLanes:
    """Lanes of one event loop."""

    def __init__(self, make: Callable[[], httpx.AsyncClient], most: int) -> None:
        """Make a lane with `make` when none is free, at most `most`."""
        self._make = make
        self._free = asyncio.Semaphore(most)
        self._idle: deque[httpx.AsyncClient] = deque()
        self._made: list[httpx.AsyncClient] = []
        self._closed = False

    @asynccontextmanager
    async def lane(self, timeout_s: float) -> AsyncIterator[httpx.AsyncClient]:
        """Take a lane, and give it back when the block ends.

        Raises:
            PoolTimeout: None became free in time.
            RuntimeError: The client was closed.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        try:
            async with asyncio.timeout(timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout(_BUSY) from None
        try:
            if self._idle:
                client = self._idle.pop()
            else:
                client = self._make()
                self._made.append(client)
            try:
                yield client
            finally:
                self._idle.append(client)
        finally:
            self._free.release()

    async def close(self) -> None:
        """End all connections; no lane is given any more."""
        self._closed = True
        for client in self._made:
            await client.aclose()
