# Written by scripts/twins from asynchronous_pool.py: change that file, then run the script.
"""The connections of an `Client`."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from penstock.client.concurrency import Places


class ConnectionPool:
    """httpx clients with one connection each; the most recently used is taken first.

    One httpx client with many connections searches all of them for each request: with 64
    connections that search costs ten times the request. Here the cost does not grow with the
    number of connections, and few connections stay warm.
    """

    def __init__(self, make: Callable[[], httpx.Client], count: int) -> None:
        """Make a connection with `make` when no idle one is left, at most `count`."""
        self._make = make
        self._places = Places(count)
        self._idle: deque[httpx.Client] = deque()
        self._made: list[httpx.Client] = []
        self._closed = False

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
