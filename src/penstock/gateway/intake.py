"""`Intake`: admits the requests of a gateway, appends them to the log, and lets them wait for their replies.

Requests over HTTP and over pipelined connections pass here alike: pauses, limits and fair shares, one append, one time
limit. Their senders have checked id, right and arguments before; `target_of` and its neighbours say which call is meant.

`AppendBatcher` appends: requests that arrive during an append share the next one. It promises the guarantees of
`Log.append` for each request alone: a request that is refused does not affect the others of its batch. When the log cannot
be written, as on a full disk, one line says so, and another one says when it can be written again.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar

from penstock.base.http import DERIVED_KEY
from penstock.base.ids import ONLY_PARTITION, LogPartition, Lsn, RequestId
from penstock.errors import Forbidden, LogUnavailable, PenstockError, Truncated, UserError
from penstock.gateway.auth.principal import Principal
from penstock.gateway.flow.admission import Admission, Ticket
from penstock.gateway.flow.limit_table import Caller
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.request_ids import stored_id
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.telemetry.request_timings import RequestTimings
from penstock.journal.replies import LogPosition
from penstock.journal.tail import AsyncJournalTail
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.reply import Reply
from penstock.model.request import APPEND, with_caller
from penstock.model.right import RIGHT
from penstock.orders.cancellation import cancel, complete, end_cascade
from penstock.process.config import Config, GatewayConfig
from penstock.runtime.reads.arguments import CallTarget

_log = logging.getLogger(__name__)

_FINGERPRINT_BYTES: Final = 8
"""The size of a fingerprint in an access hint."""

_TOLD_AT_ONCE: Final = 32
_KNOWN_S: Final = 1.0
"""How long the outcome of a write says whether the next one would succeed."""

P = ParamSpec("P")
T = TypeVar("T")

Outcome = Lsn | PenstockError
"""The position of an appended request, or the reason why it was not appended."""

S = TypeVar("S")

Taker = Callable[[Sequence[S], Sequence[Outcome]], None]
"""Takes senders of requests that were appended, and the outcomes of these, in their order."""


def target_of(app: App, request: HttpRequest) -> CallTarget:
    """Return the target that the path of a request names, with the present name of its class."""
    path = request.path
    if "stream" in path:
        return CallTarget("", path["stream"], APPEND)
    if "function" in path:
        return target_in(app, "", None, path["function"])
    key: str | None = path["key"]
    if path["method"] in CREATIONS and key == DERIVED_KEY:
        key = None
    return target_in(app, path["entity"], key, path["method"])


def target_in(app: App, entity: str, key: str | None, method: str) -> CallTarget:
    """Return the target that a call names, with the present name of its class.

    Raises:
        Forbidden: The application calls it, and nobody else.
    """
    name = app.present_name(entity) if entity else ""
    if app.is_internal(name, method):
        called = f"{name}.{method}" if name else method
        raise Forbidden(f"{called} is internal: only the application itself calls it")
    former = app.stored_name(name) if entity else ""
    return CallTarget(name, key, method, "" if former == name else former)


def flow_caller(principal: Principal, target: CallTarget, hint: bytes) -> Caller:
    """Return the caller that the limits count for a call.

    Args:
        hint: The access hint of the call; its first fingerprint is that of the key, if there is one.
    """
    key = hint[:_FINGERPRINT_BYTES] if target.key is not None else b""
    return Caller(principal.namespace, target.owner, target.method, key, target.former)


def require_right(principal: Principal, target: CallTarget) -> None:
    """Check that a principal may make a call or an append."""
    if target.stream is None:
        principal.require_call(target.entity, target.method, target.former)
    else:
        principal.require_append(target.stream)


def require_every_row(principal: Principal, app: App, entity: str) -> None:
    """Check that a principal may read all entities of a class at once.

    The right of a class is about one entity and its present row, so it cannot be asked of files and of former rows. They need
    the right to read everything.

    Raises:
        Forbidden: It may not.
        RequestError: The class does not exist.
    """
    principal.require_read(entity, app.stored_name(entity))
    if app.entity(entity).allows is not None and not principal.may_query:
        raise Forbidden(
            f"{principal.name} lacks the scope sql: {entity} declares rights per row ({RIGHT}), which are not asked here"
        )


class _Group(NamedTuple):
    """The requests of one call of `AppendBatcher.append`."""

    entries: Sequence[Entry]
    senders: Sequence[Any]
    take: Taker[Any]


def _told_together(batch: Iterable[_Group]) -> Iterator[tuple[Taker[Any], list[Any]]]:
    """Yield the senders of groups that follow each other and have the same taker; a few at a time."""
    for take, groups in groupby(batch, attrgetter("take")):
        senders: list[Any] = []
        for group in groups:
            senders += group.senders
            if len(senders) >= _TOLD_AT_ONCE:
                yield take, senders
                senders = []
        if senders:
            yield take, senders


class _Written(NamedTuple):
    """The outcomes of an append, and the end of the log if it could not be written."""

    outcomes: Sequence[Outcome]
    end: Lsn


class AppendBatcher:
    """Appends the requests of one gateway. For one event loop."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        """Start the thread; `close` ends it."""
        self._log = log
        self._metrics = metrics
        # One thread: the event loop never waits for a disk, and requests that come during an append share
        # the next one. It begins now: the system may refuse a later one, and no request would be answered.
        self._thread = ThreadPoolExecutor(1, "penstock-append")
        self._thread.submit(int)
        self._waiting: list[_Group] = []
        self._idle = asyncio.Event()
        self._idle.set()
        # The end of the log when it could not be written; None while it can.
        self._failed_at: Lsn | None = None
        self._known_until_s = 0.0
        self._checking = asyncio.Lock()

    def append(self, entries: Sequence[Entry], senders: Sequence[S], take: Taker[S]) -> None:
        """Append requests durably, at least one, and call a function with the outcome of each. No task wakes for it.

        Args:
            senders: The sender of each request.
            take: Is called for the senders of several calls together, because a call for each costs more than its work.
                It gets these errors, among others: `RequestConflict` if the id belongs to a request with
                another body, `RecordTooLarge` if the body exceeds the log's limit, and `LogUnavailable` if the
                disk is full or fails. A request with an error was not appended.
        """
        assert entries, "an append has a request"
        self._waiting.append(_Group(entries, senders, take))
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: requests of the same round of the event loop share the append.
            loop = asyncio.get_running_loop()
            loop.call_soon(self._write, loop)

    async def schedule(self, entry: Entry, due_us: int) -> None:
        """Store a request durably until it is due and appended; raises as `append`."""
        await self._in_thread(self._log.schedule, entry, due_us)

    async def place_of(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return the position of a request id; None if the log does not know it, or no longer."""
        return await self._in_thread(self._log.find, request_id)

    async def body_of(self, place: tuple[LogPartition, Lsn]) -> bytes | None:
        """Return the body of an appended request; None if the log was truncated since."""
        return await self._in_thread(self._body, *place)

    async def due_of(self, request_id: RequestId) -> int | None:
        """Return the due time of a scheduled request in microseconds since the Unix epoch."""
        return await self._in_thread(self._log.scheduled, request_id)

    async def cancel(self, request_id: RequestId) -> Lsn | None:
        """Cancel a scheduled request; see `penstock.orders.cancellation.cancel`."""
        return await self._in_thread(cancel, self._log, request_id)

    async def end_cascade(self, config: Config, root: RequestId) -> Lsn | None:
        """End the rest of a cascade; see `penstock.orders.cancellation.end_cascade`."""
        # It reads the state, which would hold the appends up in their thread.
        return await asyncio.to_thread(end_cascade, config, self._log, root)

    async def complete(self, text: str) -> RequestId:
        """Complete the id of a scheduled request; see `penstock.orders.cancellation.complete`."""
        # It reads all scheduled requests, which would hold the appends up.
        return await asyncio.to_thread(complete, self._log, text)

    async def _in_thread(self, function: Callable[P, T], *arguments: P.args, **_: P.kwargs) -> T:
        """Run a function in the thread of the log."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def is_writable(self) -> bool:
        """Say whether an append would succeed now; a write finds out, at most one in a second."""
        async with self._checking:
            # A gateway without requests learns it only by a write of its own.
            if time.monotonic() >= self._known_until_s:
                self._report(await self._in_thread(self._check))
        return self._failed_at is None

    def _check(self) -> _Written:
        try:
            self._log.check_writable()
        except LogUnavailable as error:
            return _Written([error], self._end())
        except PenstockError:  # of a log whose damage the next append names
            return _Written([], Lsn(0))
        return _Written([self._end()], Lsn(0))

    async def close(self) -> None:
        """Wait for all appends that have begun; their clients may have left."""
        await self._idle.wait()
        self._thread.shutdown()

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Append the requests that wait, in the thread of the log; without any, there is nothing to do."""
        batch, self._waiting = self._waiting, []
        if batch:
            # Without a task and its futures, which would wake one after the other: each wake-up is a round of the event loop.
            self._thread.submit(self._append_batch, batch, loop)
        else:
            self._idle.set()

    def _append_batch(self, batch: Sequence[_Group], loop: asyncio.AbstractEventLoop) -> None:
        """Append a batch, and let the event loop tell its senders."""
        entries = [entry for group in batch for entry in group.entries]
        began = time.perf_counter()
        try:
            outcomes = self._append(entries)
        except Exception as error:  # noqa: BLE001 -- the senders must hear of any failure
            _log.exception("an append has failed")
            outcomes = [LogUnavailable(f"the append has failed: {error}")] * len(entries)
        took_s = time.perf_counter() - began
        is_failed = any(isinstance(each, LogUnavailable) for each in outcomes)
        written = _Written(outcomes, self._end() if is_failed else Lsn(0))
        loop.call_soon_threadsafe(self._written, batch, written, took_s, loop)

    def _written(
        self,
        batch: Sequence[_Group],
        written: _Written,
        took_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._metrics.appended(took_s, len(written.outcomes))
        self._report(written)
        self._tell(deque(_told_together(batch)), iter(written.outcomes), loop)

    def _tell(
        self,
        told: deque[tuple[Taker[Any], list[Any]]],
        outcomes: Iterator[Outcome],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Tell the next senders, and then the others, or append the requests that came meanwhile."""
        take, senders = told.popleft()
        try:
            take(senders, list(islice(outcomes, len(senders))))
        except Exception:  # noqa: BLE001 -- the other requests must hear of theirs
            _log.exception("the outcome of an append was not taken")
        if told:
            loop.call_soon(self._tell, told, outcomes, loop)  # others must not wait for all of them
        else:
            self._write(loop)

    def _report(self, written: _Written) -> None:
        """Log that the log cannot be written, or can be written again; not each refused request."""
        outcomes, end = written
        if outcomes:
            self._known_until_s = time.monotonic() + _KNOWN_S
        failure = next((each for each in outcomes if isinstance(each, LogUnavailable)), None)
        failed_at = self._failed_at
        if failure is not None and failed_at is None:
            self._failed_at = end
            _log.error(
                "requests are refused: the log cannot be written", extra={"cause": str(failure)}
            )
        elif failed_at is not None and any(
            # A repeated request gets its former position without a write, also on a full disk.
            isinstance(each, int) and each >= failed_at
            for each in outcomes
        ):
            self._failed_at = None
            _log.info("the log can be written again")

    def _end(self) -> Lsn:
        """Return the end of the log; its beginning if the log cannot be read."""
        try:
            return self._log.end()
        except PenstockError:
            return Lsn(0)

    def _body(self, partition: LogPartition, lsn: Lsn) -> bytes | None:
        try:
            return self._log.read(lsn, Lsn(lsn + 1), partition)[0].body
        except Truncated:
            return None

    def _append(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Append entries; a refused one is found by halving, so that it costs few durable writes."""
        try:
            return list(self._log.append(entries))
        except UserError as error:  # caused by one entry; then the log appends none
            if len(entries) == 1:
                return [error]
            # Halving finds the entry that the log refuses with few durable writes, and the others
            # are appended.
            half = len(entries) // 2
            return [*self._append(entries[:half]), *self._append(entries[half:])]
        except PenstockError as error:
            return [error] * len(entries)


class ReplyTaker(Protocol):
    """Takes a reply, or an error in its place."""

    def done(self) -> bool:
        """Say whether it waits no longer."""

    def set_result(self, reply: Reply, /) -> None:
        """Take the reply."""

    def set_exception(self, error: PenstockError, /) -> None:
        """Take the error in place of a reply."""


class Waiter(Protocol):
    """The sender of a request, which hears of its append."""

    def done(self) -> bool:
        """Say whether it waits no longer."""

    def accept(self, lsn: Lsn, /) -> "ReplyTaker":
        """Note that the request is durable at a position; return who takes its reply, and may be done by that."""

    def set_exception(self, error: PenstockError, /) -> None:
        """Take the error in place of a reply."""


class Admitted(NamedTuple):
    """A request that may be appended now."""

    waiter: Waiter
    ticket: Ticket
    entry: Entry


class Intake:
    """Takes the requests of one gateway. For one event loop."""

    def __init__(
        self,
        settings: GatewayConfig,
        admission: Admission,
        batcher: AppendBatcher,
        tail: AsyncJournalTail,
    ) -> None:
        self._admission = admission
        self._batcher = batcher
        self._tail = tail
        self._turn_timeout_s = settings.reply_timeout_ms / 1_000

    async def admit(
        self,
        waiter: Waiter,
        principal: Principal,
        target: CallTarget,
        request_id: str,
        encoded: tuple[bytes, bytes],
        on_wait: Callable[[], None] = lambda: None,
    ) -> Admitted:
        """Admit a request when its turn has come; raises as `Admission.admit`.

        Args:
            encoded: The body and the access hint of the log entry.
            on_wait: Is called if the request must wait for its turn.

        Returns:
            The request, which the caller hands to `append` or `abandon`.
        """
        body, hint = encoded
        caller = flow_caller(principal, target, hint)
        ticket = await self._admission.admit(caller, len(body), self._turn_timeout_s, on_wait)
        # The time of the record is that of its turn, not of its arrival: times of the log follow
        # its order.
        entry = Entry(
            stored_id(principal, request_id),
            with_caller(body, principal.rights),
            hint,
            wall_clock_us(),
        )
        return Admitted(waiter, ticket, entry)

    def append(self, admitted: Sequence[Admitted], timeout_s: float) -> None:
        """Append requests together; the append goes on if their senders leave.

        Args:
            timeout_s: The longest wait for a reply, from the time when the request is durable.
        """
        if admitted:
            entries = [item.entry for item in admitted]
            self._batcher.append(entries, [(item, timeout_s) for item in admitted], self._appended)

    def abandon(self, admitted: Admitted) -> None:
        """End an admitted request that is not appended."""
        self._admission.abandon(admitted.ticket)

    def _appended(
        self, senders: Sequence[tuple[Admitted, float]], outcomes: Sequence[Outcome]
    ) -> None:
        waiting: dict[float, list[tuple[LogPosition, ReplyTaker]]] = {}
        for ((waiter, ticket, _), timeout_s), outcome in zip(senders, outcomes, strict=True):
            try:
                if isinstance(outcome, PenstockError):
                    self._admission.abandon(ticket)
                    if not waiter.done():  # otherwise the client has disconnected
                        waiter.set_exception(outcome)
                    continue
                self._admission.appended(ticket, outcome)
                taker = waiter.accept(outcome)
                if not taker.done():
                    waiting.setdefault(timeout_s, []).append(((ONLY_PARTITION, outcome), taker))
            except Exception:  # noqa: BLE001 -- the other requests must hear of theirs
                _log.exception("the outcome of an append was not taken")
        for timeout_s, pairs in waiting.items():
            self._tail.watch(pairs, timeout_s)


class AwaitedReply:
    """The reply for which a task waits, also while its request is being appended. The task wakes once."""

    __slots__ = ("_future", "_is_sent", "_position", "_tail", "_timings")

    def __init__(
        self,
        tail: AsyncJournalTail,
        timings: RequestTimings | None = None,
        *,
        is_sent: bool = False,
    ) -> None:
        """Create it in the event loop of the tail.

        Args:
            timings: Notes the append; None if the request is not traced.
            is_sent: Whether the task waits only until the request is durable.
        """
        self._tail = tail
        self._timings = timings
        self._is_sent = is_sent
        self._future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._position: LogPosition | None = None

    def done(self) -> bool:
        """Say whether the wait has ended: with a reply, with an error, or because the task was cancelled."""
        return self._future.done()

    def accept(self, lsn: Lsn) -> "asyncio.Future[Reply | None]":
        """Note that the request is durable; return the future that the tail gives the reply."""
        self._position = (ONLY_PARTITION, lsn)
        if self._timings is not None:
            self._timings.appended(lsn)
        if self._is_sent and not self._future.done():
            self._future.set_result(None)
        return self._future

    def set_exception(self, error: PenstockError) -> None:
        """Raise an error for the task."""
        self._future.set_exception(error)

    async def reply(self) -> Reply:
        """Return the reply.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
        """
        try:
            reply = await self._future
        except BaseException:
            if self._position is not None:
                # The task waits no longer; without this, the tail would keep the waiter until its
                # time limit.
                self._tail.forget(((self._position, self._future),))
            raise
        assert reply is not None, "the request is awaited, not sent"
        return reply

    async def durable(self) -> None:
        """Return when a sent request is durable; raises as `reply`."""
        await self._future
