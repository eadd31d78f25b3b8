"""The connections of an `AsyncClient`."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from penstock.client.concurrency import AsyncPlaces


class AsyncConnectionPool:
    """httpx clients with one connection each; the most recently used is taken first.

    One httpx client with many connections searches all of them for each request: with 64
    connections that search costs ten times the request. Here the cost does not grow with the
    number of connections, and few connections stay warm.
    """

    def __init__(self, make: Callable[[], httpx.AsyncClient], count: int) -> None:
        """Make a connection with `make` when no idle one is left, at most `count`."""
        self._make = make
        self._places = AsyncPlaces(count)
        self._idle: deque[httpx.AsyncClient] = deque()
        self._made: list[httpx.AsyncClient] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self, timeout_s: float) -> AsyncIterator[httpx.AsyncClient]:
        """Take a connection, and give it back when the block ends.

        Raises:
            PoolTimeout: No connection became free within `timeout_s` seconds.
            RuntimeError: The client was closed.
        """
        if self._closed:
            raise RuntimeError("this client is closed")
        await self._places.acquire(timeout_s)
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
            self._places.release()

    async def close(self) -> None:
        """Close all connections and give out no more."""
        self._closed = True
        for client in self._made:
            await client.aclose()
