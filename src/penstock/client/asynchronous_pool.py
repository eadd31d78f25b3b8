"""The connections of an `AsyncClient`, and the operations that they carry out."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx

from penstock.client.concurrency import AsyncPlaces
from penstock.client.operation import HttpResponse, Operation, Pause, Send, TransportFailure
from penstock.client.transport import failure_of, response_of, timeout_of

T = TypeVar("T")


class AsyncConnectionPool:
    """httpx clients with one connection each; the most recently used is taken first.

    One httpx client with many connections searches all of them for each request: with 64
    connections that search costs ten times the request. Here the cost does not grow with the
    number of connections, and few connections stay warm.
    """

    def __init__(self, url: str, make: Callable[[], httpx.AsyncClient], count: int) -> None:
        """Make a connection with `make` when no idle one is left.

        Args:
            url: The URL of the gateway.
            make: Makes a connection.
            count: The most connections.
        """
        self._url = url
        self._make = make
        self._places = AsyncPlaces(count)
        self._idle: deque[httpx.AsyncClient] = deque()
        self._made: list[httpx.AsyncClient] = []
        self._closed = False

    async def run(self, operation: Operation[T]) -> T:
        """Carry out an operation's steps to its end."""
        received: HttpResponse | TransportFailure | None = None
        while True:
            try:
                step = operation.send(received)
            except StopIteration as stop:
                result: T = stop.value
                return result
            match step:
                case Send():
                    received = await self._exchange(step)
                case Pause(seconds=seconds):
                    await asyncio.sleep(seconds)
                    received = None

    async def _exchange(self, step: Send) -> HttpResponse | TransportFailure:
        request = step.request
        try:
            async with self.connection(step.timeout_s) as connection:
                response = await connection.request(
                    request.verb,
                    f"{self._url}{step.path}",
                    content=request.content,
                    headers=request.headers,
                    timeout=timeout_of(step),
                )
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure_of(error)
        return response_of(response)

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
