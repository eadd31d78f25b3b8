# Written by scripts/twins from asynchronous_pool.py: change that file, then run the script.
"""The connections of an `Client`, and the operations that they carry out."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx

from penstock.client.concurrency import Places
from penstock.client.operation import HttpResponse, Operation, Pause, Send, TransportFailure
from penstock.client.transport import failure_of, response_of, timeout_of

T = TypeVar("T")


class ConnectionPool:
    """httpx clients with one connection each; the most recently used is taken first.

    One httpx client with many connections searches all of them for each request: with 64
    connections that search costs ten times the request. Here the cost does not grow with the
    number of connections, and few connections stay warm.
    """

    def __init__(self, url: str, make: Callable[[], httpx.Client], count: int) -> None:
        """Make a connection with `make` when no idle one is left.

        Args:
            url: The URL of the gateway.
            make: Makes a connection.
            count: The most connections.
        """
        self._url = url
        self._make = make
        self._places = Places(count)
        self._idle: deque[httpx.Client] = deque()
        self._made: list[httpx.Client] = []
        self._closed = False

    def run(self, operation: Operation[T]) -> T:
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
                    received = self._exchange(step)
                case Pause(seconds=seconds):
                    time.sleep(seconds)
                    received = None

    def _exchange(self, step: Send) -> HttpResponse | TransportFailure:
        request = step.request
        try:
            with self.connection(step.timeout_s) as connection:
                response = connection.request(
                    request.verb,
                    f"{self._url}{step.path}",
                    content=request.content,
                    headers=request.headers,
                    timeout=timeout_of(step),
                )
        except (httpx.TransportError, httpx.DecodingError) as error:
            return failure_of(error)
        return response_of(response)

    @contextmanager
    def connection(self, timeout_s: float) -> Iterator[httpx.Client]:
        """Take a connection, and give it back when the block ends.

        Raises:
            PoolTimeout: No connection became free within `timeout_s` seconds.
            RuntimeError: The client was closed.
        """
        if self._closed:
            raise RuntimeError("this client is closed")
        self._places.acquire(timeout_s)
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

    def close(self) -> None:
        """Close all connections and give out no more."""
        self._closed = True
        for client in self._made:
            client.close()
