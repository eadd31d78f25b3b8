"""`GET /streams` and `GET /streams/{stream}`: the streams of the application, and their atoms.

A follower names the number of the next atom (`from`) and gets every atom from there on once, in order: in answers
to requests that wait for new atoms (`wait`), or in one response of server-sent events, whose ids are the numbers.
So a follower that was cut off continues exactly. Each event stream and each answer holds a bounded number of atoms.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from starlette.responses import Response

from penstock.base.http import JSON, MSGPACK, OLDEST_ATOM
from penstock.errors import Gone, PenstockError, RequestError
from penstock.gateway.errors import response_of
from penstock.gateway.event_stream import HEARTBEAT, MEDIA_TYPE, EventStream
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of, reply_headers
from penstock.gateway.stream_bodies import (
    AtomBatch,
    Rendering,
    StreamsBody,
    json_body,
    msgpack_body,
    server_sent_events,
)
from penstock.gateway.stream_list import list_streams
from penstock.gateway.telemetry.follow_metrics import FollowMetrics
from penstock.journal.api import Journal
from penstock.journal.atoms import AtomReader, StreamAtom
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.model.streams.stream import Stream

T = TypeVar("T")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_WAIT_MAX_S: Final = 60.0
_LIMIT_DEFAULT: Final = 1_000
_LIMIT_MAX: Final = 10_000
_BATCH_BYTES: Final = 512 << 10
_HEARTBEAT_S: Final = 15.0
_DIGITS_MAX: Final = 18
_THREADS: Final = 2


class StreamHandler:
    """Serves the followers of one application's streams."""

    def __init__(
        self, app: App, journal: Journal, tail: AsyncJournalTail, metrics: FollowMetrics
    ) -> None:
        """Create the handler.

        Args:
            app: The application.
            journal: Its journal.
            tail: The journal tail, which knows the newest epoch.
            metrics: Counts the followers.
        """
        self._app = app
        self._journal = journal
        self._tail = tail
        self._metrics = metrics
        self._reader = AtomReader(journal)
        self._threads = ThreadPoolExecutor(_THREADS, "penstock-streams")
        self._stopping = asyncio.Event()

    def serve(self, app: App) -> None:
        """List and check the streams of another version of the application; followers go on."""
        self._app = app

    async def index(self, request: HttpRequest) -> Response:
        """Serve `GET /streams`: the streams that the principal may follow."""
        principal = request.principal
        names = [name for name in self._app.topology.streams if principal.may_follow(name)]
        listed = await self._in_thread(
            lambda: list_streams(
                self._app.topology, self._journal, self._reader, names, datetime.now(UTC)
            )
        )
        headers = reply_headers(self._tail.epoch)
        return Response(json_of(StreamsBody(listed)), 200, headers, JSON)

    async def follow(self, request: HttpRequest) -> Response:
        """Serve `GET /streams/{stream}`.

        Raises:
            Forbidden: The principal may not follow the stream.
            RequestError: The stream does not exist, or a field of the query is wrong.
            PenstockError: The journal cannot be read, or is damaged.
        """
        name = request.path["stream"]
        request.principal.require_follow(name)
        stream = self._app.stream(name)
        query, accept = request.query(), request.headers.get("accept", "")
        limit = _number("limit", query.get("limit", str(_LIMIT_DEFAULT)))
        if not 1 <= limit <= _LIMIT_MAX:
            raise RequestError(f"limit={limit} must be a number of atoms from 1 to {_LIMIT_MAX}")
        try:
            start = await self._start(request, name, query.get("from", EARLIEST))
            if MEDIA_TYPE in accept and request.verb == "GET":
                rendered, following = await self._batch(stream, start, limit, server_sent_events)
                events = self._events(stream, rendered, following, limit)
                return EventStream(events, reply_headers(self._tail.epoch))
            return await self._answer(request, stream, start, limit)
        except Gone as error:
            return response_of(error, {OLDEST_ATOM: str(error.oldest)})

    def stop(self) -> None:
        """End all event streams, and answer all requests that wait; their followers go on elsewhere."""
        self._stopping.set()

    def close(self) -> None:
        """Stop the threads; no request may be running."""
        self.stop()
        self._threads.shutdown(wait=True)

    async def _start(self, request: HttpRequest, stream: str, chosen: str) -> int:
        """Return the number of the first atom that the request asks for."""
        last = request.headers.get("last-event-id")
        if last is not None:
            return _number("Last-Event-ID", last) + 1
        if chosen == EARLIEST:
            return await self._in_thread(lambda: self._reader.oldest(stream))
        if chosen == LATEST:
            return await self._in_thread(lambda: self._reader.published(stream))
        return _number("from", chosen)

    async def _answer(
        self, request: HttpRequest, stream: Stream[Any], start: int, limit: int
    ) -> Response:
        """Answer with the atoms from a number on; wait for the first one if the request asks for that."""
        wait_s = request.seconds("wait", 0.0, _WAIT_MAX_S)
        packed = MSGPACK in request.headers.get("accept", "")
        rendering = msgpack_body if packed else json_body
        body, following = await self._batch(stream, start, limit, rendering)
        if following == start and wait_s > 0 and request.verb == "GET":
            with self._metrics.following(stream.name):
                await self._published(stream.name, start, wait_s, request.gone())
            body, following = await self._batch(stream, start, limit, rendering)
        return Response(body, 200, reply_headers(self._tail.epoch), MSGPACK if packed else JSON)

    async def _events(
        self, stream: Stream[Any], rendered: bytes, start: int, limit: int
    ) -> AsyncIterator[bytes]:
        """Yield the events of all atoms, from those that are rendered already on."""
        with self._metrics.following(stream.name):
            while True:
                if rendered:
                    yield rendered
                elif not await self._published(stream.name, start, _HEARTBEAT_S):
                    yield HEARTBEAT
                if self._stopping.is_set():
                    return
                try:
                    rendered, start = await self._batch(stream, start, limit, server_sent_events)
                except PenstockError as error:  # the status is sent; a new request gets the error
                    body = bytes(response_of(error).body)
                    yield b"event: refused\ndata: %b\n\n" % body
                    return

    async def _batch(
        self, stream: Stream[Any], start: int, limit: int, rendering: Rendering
    ) -> tuple[bytes, int]:
        """Return rendered atoms from a number on, and the number after them."""

        def read() -> tuple[bytes, AtomBatch]:
            atoms = self._read(stream.name, start, limit)
            published = self._reader.published(stream.name)
            batch = AtomBatch(stream, start, atoms, published)
            return rendering(batch), batch

        body, batch = await self._in_thread(read)
        if batch.atoms:
            self._metrics.sent(stream.name, len(batch.atoms), batch.published - batch.next)
        return body, batch.next

    def _read(self, stream: str, start: int, limit: int) -> list[StreamAtom]:
        atoms: list[StreamAtom] = []
        size = 0
        for atom in self._reader.atoms(stream, start):
            atoms.append(atom)
            size += len(atom.events)
            if len(atoms) >= limit or size >= _BATCH_BYTES:
                break
        return atoms

    async def _published(
        self,
        stream: str,
        number: int,
        timeout_s: float,
        gone: Coroutine[Any, Any, None] | None = None,
    ) -> bool:
        """Wait until a stream has an atom.

        Args:
            stream: The name of the stream.
            number: The number of the atom.
            timeout_s: The longest wait.
            gone: Ends when the client has disconnected.

        Returns:
            False if the time is up, the client has disconnected, or the gateway stops.
        """
        published = asyncio.create_task(self._tail.until_published(stream, number, timeout_s))
        tasks: list[asyncio.Task[Any]] = [published, asyncio.create_task(self._stopping.wait())]
        if gone is not None:
            tasks.append(asyncio.create_task(gone))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(tasks)
        return published.done() and not published.cancelled() and published.result()

    async def _in_thread(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise RequestError(
            f"{name}={text} is not the number of an atom: a whole number, {EARLIEST} or {LATEST}"
        )
    return int(text)
