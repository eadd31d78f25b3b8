"""A load generator for HTTP: many connections, each with one request at a time.

It shares the processor cores with the server under test, so it does as little as possible: HTTP/1.1
with keep-alive, and only answers with a `Content-Length`. (A full client library costs more for each
request than the gateway.) All connections are opened before the first request, because a thousand clients that connect
at once would make the first answers of all of them the slowest ones. If a connection breaks, it is opened again and its
request is sent again, as a client with an idempotency key may do. Without a key, the answer is lost and has the status 0.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Final

import uvloop

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
RECONNECT_S: Final = 0.05
"""The pause between two tries to connect."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `POST /orders/checkout/17`; `request_id` makes it safe to send twice.

    `key` is the API key of its caller; empty sends none.
    """

    verb: str
    path: str
    body: bytes = b""
    request_id: str = ""
    key: str = ""

    def encoded(self, host: str) -> bytes:
        """Return the bytes of the request."""
        head = f"{self.verb} {self.path} HTTP/1.1\r\nHost: {host}\r\n"
        if self.request_id:
            head += f"Idempotency-Key: {self.request_id}\r\n"
        if self.key:
            head += f"X-API-Key: {self.key}\r\n"
        if self.body:
            head += "Content-Type: application/json\r\n"
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        request: The request.
        status: The HTTP status; 0 if the connection broke and the request had no key.
        body: The received bytes.
        sent_s: The time of the first try, on the generator's clock.
        took_s: The time from the first try to the answer, with all retries.
        tries: The number of tries.
    """

    request: Request
    status: int
    body: bytes
    sent_s: float
    took_s: float
    tries: int


@dataclass(slots=True)
class Load:
    """Sends requests to one address over some connections.

    Attributes:
        host: Address of the server.
        port: Its port.
        connections: How many requests are in progress at once.
        timeout_s: The longest time for an answer; then the connection counts as broken.
        answers: All answers so far.
    """

    host: str
    port: int
    connections: int
    timeout_s: float = 300.0
    answers: list[Answer] = field(default_factory=list)

    def run(self, requests: Iterator[Request], seconds: float = float("inf")) -> list[Answer]:
        """Send requests until they or the seconds are used up; return the answers of this call.

        Requests in progress at the end are completed.
        """
        first = len(self.answers)
        uvloop.run(self._run(requests, seconds))
        return self.answers[first:]

    async def _run(self, requests: Iterator[Request], seconds: float) -> None:
        async with self.opened() as connections:
            deadline = time.perf_counter() + seconds
            await asyncio.gather(*(self._work(each, requests, deadline) for each in connections))

    async def _work(
        self, connection: "Connection", requests: Iterator[Request], deadline: float
    ) -> None:
        for request in requests:  # shared by all workers of this loop
            self.answers.append(await self.ask(connection, request))
            if time.perf_counter() >= deadline:
                return

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[list["Connection"]]:
        """Give all connections, open as far as the server takes them; they close at the end."""
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self.connection()) for _ in range(self.connections)]
            # One that is refused is opened at its first request, which waits until the server listens.
            await asyncio.gather(*(each.open() for each in connections), return_exceptions=True)
            yield connections

    @contextlib.contextmanager
    def connection(self) -> Iterator["Connection"]:
        """Give a connection that opens at its first use and closes at the end."""
        connection = Connection(self.host, self.port)
        try:
            yield connection
        finally:
            connection.close()

    async def ask(self, connection: "Connection", request: Request) -> Answer:
        """Send a request, again if that is safe, and return its answer."""
        began = time.perf_counter()
        data = request.encoded(f"{self.host}:{self.port}")
        tries, status, body = 0, 0, b""
        while time.perf_counter() - began < self.timeout_s:
            tries += 1
            left_s = self.timeout_s - (time.perf_counter() - began)
            try:
                async with asyncio.timeout(left_s):
                    status, body = await connection.ask(data)
                break
            except (OSError, EOFError, TimeoutError) as error:
                connection.close()
                if not request.request_id and not isinstance(error, ConnectionRefusedError):
                    break
                await asyncio.sleep(RECONNECT_S)
        return Answer(request, status, body, began, time.perf_counter() - began, tries)


class Connection(asyncio.Protocol):
    """A connection with one request at a time; it opens at its first use."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    async def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body.

        Raises:
            OSError: The connection failed.
            EOFError: The server closed it before the answer was complete.
        """
        transport = self._transport or await self.open()
        self._buffer, self._answer = b"", asyncio.get_running_loop().create_future()
        transport.write(data)
        return await self._answer

    async def open(self) -> asyncio.Transport:
        """Open the connection, and return its transport; raises `OSError` if the server does not take it."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, *self._address)
        return self._transport

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Take the next bytes of the answer."""
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(_HEAD_END)
        if end < 0 or self._answer is None or self._answer.done():
            return
        head = self._buffer[:end].lower()
        body = self._buffer[end + len(_HEAD_END) :]
        at = head.find(_LENGTH)
        length = int(head[at + len(_LENGTH) :].split(b"\r", 1)[0]) if at >= 0 else 0
        if len(body) >= length:
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in progress."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            with contextlib.suppress(asyncio.InvalidStateError):
                self._answer.set_exception(exc or EOFError("the server ended the connection"))
