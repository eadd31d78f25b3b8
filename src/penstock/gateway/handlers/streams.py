"""`GET /streams`, `GET /streams/{stream}` and `GET /tables/{table}`: the streams of the application, and their atoms.

A follower names the number of the next atom (`from`) and gets every atom from there on once, in order: in answers
to requests that wait for new atoms (`wait`), or in one response of server-sent events, whose ids are the numbers.
So a follower that was cut off continues exactly. A published table is followed in the same way, in pages that have its rows first
(`table_pages`). Each event stream and each answer holds a bounded number of atoms.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.http import EVENTS, HEARTBEAT_S, JSON, MSGPACK, OLDEST_ATOM
from penstock.base.ids import Epoch
from penstock.errors import Gone, PenstockError, QueryError, RequestError, StateUnavailable
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.connections import Connections
from penstock.gateway.errors import LOADING, response_of
from penstock.gateway.http_request import HttpRequest, whole_number
from penstock.gateway.reader_pool import EntityReader
from penstock.gateway.responses import json_of, reply_headers
from penstock.gateway.route import (
    SHOWN,
    STREAMS,
    TICKET,
    Answer,
    Parameter,
    Route,
    json_content,
    seconds,
)
from penstock.gateway.stream_bodies import (
    AtomBatch,
    Rendering,
    StreamBody,
    StreamsBody,
    fitting_part,
    json_body,
    msgpack_body,
    server_sent_events,
)
from penstock.gateway.table_pages import (
    POSITION,
    TablePage,
    TableQuestion,
    TableReader,
    event_page,
    json_page,
    msgpack_page,
    position_of,
)
from penstock.gateway.telemetry.follow_metrics import FollowMetrics
from penstock.journal.api import Journal
from penstock.journal.as_of import epoch_as_of
from penstock.journal.atoms import AtomReader, StreamAtom
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App, unknown
from penstock.model.event_filter import FOLLOW_FIELDS, EventFilter, event_filter
from penstock.model.streams.flow import Workflow
from penstock.model.streams.published_table import PublishedTable
from penstock.model.streams.routing import RequestSink, Sequencer, Split, Splitter
from penstock.model.streams.stream import Stream, type_name
from penstock.model.streams.topology import Subscriber, Topology

_BATCH_BYTES: Final = 512 << 10
_KEPT_BYTES: Final = 8 << 20
_KEPT: Final = 256


class Question(NamedTuple):
    """The question of a follower.

    Attributes:
        only: The events that it wants; None: all.
    """

    stream: Stream[Any]
    start: int
    limit: int
    rendering: Rendering
    only: EventFilter | None = None


class RenderedBatch(NamedTuple):
    """A batch as a follower gets it.

    Attributes:
        atoms: The number of its atoms.
        next: The number after the last atom.
        published: The number of atoms that the stream had.
        then: The next question.
        is_news: Whether it tells the follower anything.
        is_whole: Whether nothing but new atoms can follow; else the next batch is there already.
    """

    body: bytes
    atoms: int
    next: int
    published: int
    then: Question | TableQuestion
    is_news: bool
    is_whole: bool = True


_Key = tuple[Question | TableQuestion, Epoch]


class SharedBatches:
    """Batches of atoms: followers that ask for the same atoms at the same epoch share one reading. For one event loop."""

    def __init__(
        self,
        reader: AtomReader,
        threads: ThreadPoolExecutor,
        read_page: Callable[[TableQuestion], Awaitable[TablePage]],
    ) -> None:
        """Take the reader of the journal, the threads in which it reads, and the reading of a page of a table."""
        self._reader = reader
        self._threads = threads
        self._read_page = read_page
        self._readings: dict[_Key, asyncio.Future[RenderedBatch]] = {}
        self._kept: OrderedDict[_Key, RenderedBatch] = OrderedDict()
        self._kept_bytes = 0

    async def newest(self, question: Question | TableQuestion) -> RenderedBatch:
        """Return the atoms that the journal has now.

        Raises:
            Gone: Retention has removed the first atom.
        """
        return await self._begin(question)

    async def at(self, question: Question | TableQuestion, epoch: Epoch) -> RenderedBatch:
        """Return the atoms that the journal has, with those of an epoch that is committed; raises as `newest`."""
        # After an epoch, all followers that have taken the last atom ask for the same batch.
        key = (question, epoch)
        if (kept := self._kept.get(key)) is not None:
            return kept
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = self._begin(question)
            reading.add_done_callback(partial(self._end, key))
        return await asyncio.shield(reading)  # the others still want it when this follower leaves

    def _begin(self, question: Question | TableQuestion) -> asyncio.Future[RenderedBatch]:
        if isinstance(question, TableQuestion):
            return asyncio.ensure_future(self._page(question))
        return asyncio.get_running_loop().run_in_executor(self._threads, self._read, question)

    async def _page(self, question: TableQuestion) -> RenderedBatch:
        page = await self._read_page(question)
        body = await asyncio.get_running_loop().run_in_executor(
            self._threads, question.rendering, page
        )
        position = page.position
        then = question._replace(position=position)
        is_news = bool(page.events) or position != question.position
        is_whole = position.after is None
        number = position.number
        return RenderedBatch(body, page.atoms, number, page.published, then, is_news, is_whole)

    def _end(self, key: _Key, reading: asyncio.Future[RenderedBatch]) -> None:
        """Keep a batch that was read, and drop the oldest ones; an error is not kept, nor is data of persons."""
        del self._readings[key]
        if reading.cancelled() or reading.exception() is not None:
            return
        if key[0].stream.events.is_personal:
            return
        self._kept[key] = reading.result()
        self._kept_bytes += len(reading.result().body)
        # Followers do not ask at the same moment, so the newest batches stay for a while.
        while self._kept_bytes > _KEPT_BYTES or len(self._kept) > _KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.body)

    def _read(self, question: Question) -> RenderedBatch:
        stream, start, limit, rendering, only = question
        atoms: list[StreamAtom] = []
        following, size = start, 0
        for atom in self._reader.atoms(stream.name, start):
            following += 1
            size += len(atom.events)
            wanted = atom if only is None else fitting_part(stream, atom, only)
            if wanted is not None:
                atoms.append(wanted)
            if len(atoms) >= limit or size >= _BATCH_BYTES or following - start >= _LIMIT_MAX:
                break
        published = self._reader.published(stream.name)
        batch = AtomBatch(stream, start, following, atoms, published)
        then, count = question._replace(start=following), len(atoms)
        # An event stream tells the number of the last atom, also of one that the follower does not want.
        is_news = count > 0 or (rendering is server_sent_events and following > start)
        return RenderedBatch(rendering(batch), count, following, published, then, is_news)


HEARTBEAT: Final = b":\n\n"

_FIRST: Final = b"retry: 1000\n\n"
_SEND_S: Final = 60.0
PIECE_BYTES: Final = 16 << 10
"""The server holds several sent pieces for a connection that takes nothing: whole events of any size would take much memory."""

_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""No proxy may keep the events, or collect them."""


class EventStream(Response):
    """A response of server-sent events, one for each follower; it ends with its iterator, or when the client disconnects."""

    def __init__(self, chunks: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        super().__init__(b"", 200, {**headers, **_HEADERS}, EVENTS)
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})
            with contextlib.suppress(asyncio.CancelledError, TimeoutError, OSError):
                sending.result()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with contextlib.aclosing(self._chunks) as chunks:  # type: ignore[type-var]
            await _send_chunk(send, _FIRST)
            async for chunk in chunks:
                await _send_chunk(send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def refused_event(error: PenstockError) -> bytes:
    """Return the last event of a stream that ends with an error."""
    return b"event: refused\ndata: %b\n\n" % bytes(response_of(error).body)


async def _send_chunk(send: Send, chunk: bytes) -> None:
    """Send a chunk, in pieces."""
    # The next events are read only when the server has taken these: a slow reader costs one event and
    # a bounded number of bytes, and one that takes nothing is disconnected.
    for begin in range(0, len(chunk), PIECE_BYTES):
        piece = chunk[begin : begin + PIECE_BYTES]
        async with asyncio.timeout(_SEND_S):
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


T = TypeVar("T")

TABLES: Final = "/tables/{table}"
"""The path of published tables."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_WAIT_MAX_S: Final = 60.0
_LIMIT_DEFAULT: Final = 1_000
_LIMIT_MAX: Final = 10_000
CHECK_S: Final = 1.0
"""How long a follower that gets atoms is served without a look at its credential."""
_THREADS: Final = 2


_WINDOW_S: Final = 60


def list_streams(
    topology: Topology, journal: Journal, reader: AtomReader, names: list[str], now: datetime
) -> list[StreamBody]:
    """Return the description of some streams, in order of their names."""
    publishers = publishers_of(topology)
    earlier, span_s = _earlier_counts(journal, now)
    listed: list[StreamBody] = []
    for name in sorted(names):
        stream, published = topology.streams[name], reader.published(name)
        rate = max(0, published - earlier.get(name, 0)) / span_s
        subscribers = [
            subscriber_name(subscriber) for subscriber in topology.subscribers.get(name, ())
        ]
        listed.append(
            StreamBody(
                name=name,
                events=type_name(stream.annotation),
                publisher=publishers[name],
                open=stream.is_open,
                subscribers=subscribers,
                oldest=reader.oldest(name),
                next=published,
                rate=round(rate, 3),
            )
        )
    return listed


def publishers_of(topology: Topology) -> dict[str, str]:
    """Return the publisher of each stream, by the name of the stream."""
    publishers = {name: _publisher(stream) for name, stream in topology.streams.items()}
    for name, plan in topology.workflows.items():
        publishers[plan.workflow.failed.name] = f"failures of workflow {name}"
    for name, table in topology.tables.items():
        publishers[table.failed.name] = f"failures of table {name}"
    for subscribers in topology.subscribers.values():
        for subscriber in subscribers:
            if not isinstance(subscriber, Sequencer):
                publishers[subscriber.failed.name] = f"failures of {subscriber_name(subscriber)}"
    return publishers


def subscriber_name(subscriber: Subscriber) -> str:
    """Return the kind and the name of a consumer."""
    match subscriber:
        case Workflow():
            return f"workflow {subscriber.flow_name}"
        case Splitter():
            return f"splitter {subscriber.name}"
        case Sequencer():
            return f"sequencer {subscriber.name}"
        case RequestSink():
            return f"requests {subscriber.name}"


def _publisher(stream: Stream[Any]) -> str:
    match stream:
        case Workflow() | Sequencer():
            return subscriber_name(stream)
        case Split():
            return subscriber_name(stream.splitter)
        case PublishedTable(source=source) if source is not None:
            return f"table of {source.name}"
        case _:
            return "appends and emit" if stream.is_open else ""


def _earlier_counts(journal: Journal, now: datetime) -> tuple[Mapping[str, int], float]:
    """Return the number of atoms of each stream a minute ago, and the seconds since then.

    Of a journal that holds no epoch of that time, they are the numbers at its first epoch. The seconds are at least 1.
    """
    try:
        epoch = epoch_as_of(journal, now - timedelta(seconds=_WINDOW_S))
    except QueryError:  # the journal is younger
        return _first_counts(journal, now)
    commit = next(iter(journal.commits(Epoch(epoch - 1), epoch)), None)
    return {} if commit is None else commit.atoms, _WINDOW_S


def _first_counts(journal: Journal, now: datetime) -> tuple[Mapping[str, int], float]:
    """Return the number of atoms at the first epoch that a journal holds, and the seconds since then.

    The atoms of epoch 0 itself count as published since then.
    """
    commit = next(iter(journal.commits(Epoch(journal.first() - 1))), None)
    if commit is None:
        return {}, _WINDOW_S
    span_s = now.timestamp() - commit.time_us / 1_000_000
    return commit.atoms if commit.epoch else {}, min(max(span_s, 1), _WINDOW_S)


class StreamHandler:
    """Serves the followers of one application's streams.

    Args:
        tail: The journal tail, which knows the newest epoch.
        authenticator: Says whether the credential of a follower is still valid.
        is_behind: Says whether a newer deployment than the served version is in force.
    """

    def __init__(  # noqa: PLR0913 -- what its followers read, and who they are
        self,
        app: App,
        journal: Journal,
        tail: AsyncJournalTail,
        metrics: FollowMetrics,
        authenticator: Authenticator,
        connections: Connections,
        entities: EntityReader,
        is_behind: Callable[[], Awaitable[bool]],
    ) -> None:
        self._app = app
        self._journal = journal
        self._tail = tail
        self._metrics = metrics
        self._authenticator = authenticator
        self._connections = connections
        self._is_behind = is_behind
        self._reader = AtomReader(journal)
        self._threads = ThreadPoolExecutor(_THREADS, "penstock-streams")
        tables = TableReader(journal, self._reader, entities, self._threads)
        self._batches = SharedBatches(self._reader, self._threads, tables.page)
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._is_stopping = False

    def serve(self, app: App) -> None:
        """Serve the streams of another version of the application; the followers of a removed stream end."""
        self._app = app
        self._wake()

    @Route(
        "GET",
        "/streams",
        "streams",
        name="streams.list",
        tag=STREAMS,
        answers=(Answer("The streams, by name.", json_content(StreamsBody), SHOWN),),
    )
    async def index(self, request: HttpRequest) -> Response:
        """List the streams that the caller may follow."""
        principal = request.principal
        names = [name for name in self._app.topology.streams if principal.may_follow(name)]
        listed = await self._in_thread(
            lambda: list_streams(
                self._app.topology, self._journal, self._reader, names, datetime.now(UTC)
            )
        )
        headers = reply_headers(self._tail.epoch)
        return Response(json_of(StreamsBody(listed)), 200, headers, JSON)

    @Route(
        "GET",
        "/streams/{stream}",
        "streams",
        parameters=(
            Parameter(
                "from",
                "query",
                "The number of the first atom, `earliest` (the default) or `latest`: the next new atom.",
                {"type": "string", "pattern": rf"^(\d{{1,18}}|{EARLIEST}|{LATEST})$"},
            ),
            Parameter(
                "limit",
                "query",
                "The most atoms of an answer; the default is 1,000. Large atoms come in smaller answers.",
                {"type": "integer", "minimum": 1, "maximum": _LIMIT_MAX},
            ),
            seconds("wait", "Seconds to wait for an atom."),
            TICKET,
            Parameter(
                "Last-Event-ID",
                "header",
                "The number of the last atom that the follower has; the answer begins with the next one.",
                {"type": "string", "pattern": r"^\d{1,18}$"},
            ),
        ),
        has_filters=True,
        answers=(Answer("The atoms.", {}, SHOWN),),
        errors=(410,),
    )
    async def follow(self, request: HttpRequest) -> Response:
        """Follow a stream.

        Returns atoms in their order, each with its number, its events, the time of the request that caused it, and its
        epoch. Each other field of the query string is the name of a field of the events, and the value that it must have;
        other events are left out. `next` is the number to ask for next. With `Accept: text/event-stream` the response does not end: each
        atom is a server-sent event, whose id is its number. An atom that retention has removed is refused with `gone`,
        and the header `Penstock-Oldest-Atom` has the oldest number.
        """
        name = request.path["stream"]
        request.principal.require_follow(name)
        stream = self._app.stream(name)
        text = request.field("limit", str(_LIMIT_DEFAULT))
        limit = whole_number("limit", text, "is not a number of atoms", 1, _LIMIT_MAX)
        form = self._form(request, server_sent_events, msgpack_body, json_body)
        texts = {
            each: value for each, value in request.query().items() if each not in FOLLOW_FIELDS
        }
        only = event_filter(stream, texts) if texts else None
        try:
            start = await self._start(request, name, request.field("from", EARLIEST))
            return await self._followed(request, Question(stream, start, limit, form, only))
        except Gone as error:
            return response_of(error, {OLDEST_ATOM: str(error.oldest)})

    @Route(
        "GET",
        TABLES,
        "streams",
        parameters=(
            Parameter(
                "after",
                "query",
                "The `position` of the last page; without it, the rows of the table come first.",
                {"type": "string", "pattern": POSITION},
            ),
            Parameter(
                "limit",
                "query",
                "The most changes of a page, except for those of one epoch; the default is 1,000.",
                {"type": "integer", "minimum": 1, "maximum": _LIMIT_MAX},
            ),
            seconds("wait", "Seconds to wait for a change."),
            TICKET,
            Parameter(
                "Last-Event-ID",
                "header",
                "The position of the last page, as `after`.",
                {"type": "string", "pattern": POSITION},
            ),
        ),
        answers=(Answer("The page.", {}, SHOWN),),
        errors=(410,),
    )
    async def table(self, request: HttpRequest) -> Response:
        """Copy a published table, and follow its changes.

        Returns changes, `put` and `removed`, that bring a copy from a position to the next one. The first page has
        no `after`; its changes are rows. When `complete` is true, the copy is the table at `epoch`. With
        `Accept: text/event-stream` the response does not end: each page is a server-sent event, whose id is the position. A
        position whose changes retention has removed is refused with `gone`: drop the copy, and begin again.
        """
        name = request.path["table"]
        request.principal.require_follow(name)
        tables = self._app.topology.tables
        if name not in tables:
            raise RequestError(unknown("published table", name, tables))
        text = request.field("limit", str(_LIMIT_DEFAULT))
        limit = whole_number("limit", text, "is not a number of changes", 1, _LIMIT_MAX)
        last, after = request.headers.get("last-event-id"), request.field("after")
        position = None if after is None else position_of("after", after)
        if last is not None:
            position = position_of("Last-Event-ID", last)
        form = self._form(request, event_page, msgpack_page, json_page)
        return await self._followed(request, TableQuestion(tables[name], position, limit, form))

    @staticmethod
    def _form(request: HttpRequest, events: T, packed: T, plain: T) -> T:
        """Choose the form of the answer that a request wants."""
        accept = request.headers.get("accept", "")
        if EVENTS in accept and request.verb == "GET":
            return events
        return packed if MSGPACK in accept else plain

    async def _followed(self, request: HttpRequest, question: Question | TableQuestion) -> Response:
        """Answer with a batch, or with an event stream."""
        if question.rendering not in (server_sent_events, event_page):
            return await self._answer(request, question)
        request.refuse_fields(("wait",), "a response of server-sent events does not end")
        self._connections.check_room()  # while there is still a status
        batch = await self._batches.newest(question)
        await self._check_filter(question)
        first = self._sent(question.stream, batch)
        events = self._events(request, question, first)
        return EventStream(events, reply_headers(self._tail.epoch))

    def stop(self) -> None:
        """End all event streams, and answer all requests that wait; their followers go on elsewhere."""
        self._is_stopping = True
        self._wake()

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

    async def _answer(self, request: HttpRequest, question: Question | TableQuestion) -> Response:
        """Answer with the next batch; wait for the first atom if the request asks for that."""
        wait_s = request.wait_s("wait", 0.0, _WAIT_MAX_S)
        stream = question.stream
        batch = await self._batches.newest(question)
        await self._check_filter(question)
        until = time.monotonic() + wait_s
        # Of the atoms that come, a follower may want none.
        while not batch.is_news and time.monotonic() < until and request.verb == "GET":
            with self._connections.staying(), self._metrics.following(stream.name, batch.next):
                left_s = max(0.0, until - time.monotonic())
                if not await self._published(stream.name, batch.next, left_s, request.gone()):
                    break
                self._check(request, stream.name)
                question = self._present(batch.then)
                batch = await self._batches.at(question, self._tail.epoch)
                await self._check_filter(question)
        body = self._sent(stream, batch).body
        is_packed = MSGPACK in request.headers.get("accept", "")
        media_type = MSGPACK if is_packed else JSON
        return Response(body, 200, reply_headers(self._tail.epoch), media_type)

    async def _events(
        self, request: HttpRequest, question: Question | TableQuestion, batch: RenderedBatch
    ) -> AsyncIterator[bytes]:
        """Yield the events of all atoms, from a batch that is read already on, while the credential is valid."""
        stream, body = question.stream, batch.body if batch.is_news else b""
        checked_s = time.monotonic()
        with (
            self._connections.staying(),
            self._metrics.following(stream.name, question.start) as follower,
        ):
            while not self._is_stopping:
                if body:
                    yield body
                body, follower.next = HEARTBEAT, batch.next
                try:
                    is_published = not batch.is_whole or await self._published(
                        stream.name, batch.next, HEARTBEAT_S
                    )
                    if (now_s := time.monotonic()) >= checked_s + CHECK_S:
                        await self._authenticator.awake()
                        self._check(request, stream.name)
                        checked_s = now_s
                    if is_published:
                        question = self._present(batch.then)
                        following = await self._batches.at(question, self._tail.epoch)
                        if await self._is_early(question):
                            await asyncio.sleep(CHECK_S)
                            continue
                        batch = self._sent(stream, following)
                        body = batch.body if batch.is_news else b""
                except PenstockError as error:  # the status is sent; a new request gets the error
                    yield refused_event(error)
                    return

    def _present(self, question: Question | TableQuestion) -> Question | TableQuestion:
        """Return a question as the version that is served now understands it: a deployment may have changed the events.

        Raises:
            RequestError: The events no longer have a field of the filter.
        """
        stream = self._app.topology.streams.get(question.stream.name)
        # A follower of a removed stream gets the atoms that are there.
        if stream is None or stream is question.stream:
            return question
        if isinstance(question, TableQuestion):
            return (
                question._replace(stream=stream) if isinstance(stream, PublishedTable) else question
            )
        only = question.only and event_filter(stream, dict(question.only.texts))
        return question._replace(stream=stream, only=only)

    async def _is_early(self, question: Question | TableQuestion) -> bool:
        """Say whether a filter may have left out events that fit by code which is in force, and not served yet."""
        if isinstance(question, TableQuestion) or question.only is None:
            return False
        return self._present(question) is not question or await self._is_behind()

    async def _check_filter(self, question: Question | TableQuestion) -> None:
        """Refuse an answer that may lack events, which the follower would never get."""
        if await self._is_early(question):
            raise StateUnavailable(LOADING)

    def _check(self, request: HttpRequest, stream: str) -> None:
        """Check that the sender of a request may still follow a stream."""
        self._authenticator.follower(request.scope).require_follow(stream)

    def _sent(self, stream: Stream[Any], batch: RenderedBatch) -> RenderedBatch:
        """Count the atoms of a batch that goes to a follower."""
        if batch.atoms:
            self._metrics.sent(stream.name, batch.atoms, batch.published - batch.next)
        return batch

    async def _published(
        self,
        stream: str,
        number: int,
        timeout_s: float,
        gone: Coroutine[Any, Any, None] | None = None,
    ) -> bool:
        """Wait until a stream has an atom.

        Returns:
            False if the time is up, the client has disconnected, or the gateway stops.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(timeout_s, _settle, waiter)
        leaving = None if gone is None else asyncio.create_task(gone)
        if leaving is not None:
            leaving.add_done_callback(lambda _: _settle(waiter))
        self._waiting[waiter] = None
        try:
            with self._tail.awaiting_atom(stream, number, waiter):
                if not self._is_stopping:
                    await waiter
        finally:
            del self._waiting[waiter]
            timer.cancel()
            if leaving is not None:
                leaving.cancel()
        is_published = self._tail.atoms.get(stream, 0) > number
        if not is_published:
            self._app.stream(stream)
        return is_published

    def _wake(self) -> None:
        """End all waits, so that each follower looks at the change."""
        for waiter in self._waiting:
            _settle(waiter)

    async def _in_thread(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _number(name: str, text: str) -> int:
    expected = f"is not the number of an atom, and not {EARLIEST} or {LATEST}"
    return whole_number(name, text, expected, 0)
