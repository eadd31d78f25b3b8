"""`Intake`: admits the requests of a gateway, appends them to the log, and lets them wait for their replies.

Requests over HTTP and over pipelined connections pass here alike: pauses, limits and fair shares, one append, one time
limit. Their senders have checked id, right and arguments before.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.errors import PenstockError
from penstock.gateway.append_batcher import AppendBatcher, Outcome
from penstock.gateway.auth.principal import Principal
from penstock.gateway.call_target import flow_caller
from penstock.gateway.flow.admission import Admission, Ticket
from penstock.gateway.request_ids import stored_id
from penstock.gateway.telemetry.request_timings import RequestTimings
from penstock.journal.replies import LogPosition
from penstock.journal.tail import AsyncJournalTail
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.model.reply import Reply
from penstock.process.config import GatewayConfig
from penstock.runtime.reads.arguments import CallTarget


class Waiter(Protocol):
    """The sender of a request, which hears of its append and of its reply."""

    def done(self) -> bool:
        """Say whether it waits no longer."""

    def accept(self, lsn: Lsn, /) -> None:
        """Note that the request is durable at a position; it may be done by that."""

    def set_result(self, reply: Reply, /) -> None:
        """Take the reply."""

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
        entry = Entry(stored_id(principal, request_id), body, hint, wall_clock_us())
        return Admitted(waiter, ticket, entry)

    def append(self, admitted: Sequence[Admitted], timeout_s: float) -> None:
        """Append requests together; the append goes on if their senders leave.

        Args:
            timeout_s: The longest wait for a reply, from the time when the request is durable.
        """
        if admitted:
            entries = [item.entry for item in admitted]
            self._batcher.append(entries, partial(self._appended, admitted, timeout_s))

    def abandon(self, admitted: Admitted) -> None:
        """End an admitted request that is not appended."""
        self._admission.abandon(admitted.ticket)

    def _appended(
        self, admitted: Sequence[Admitted], timeout_s: float, outcomes: Sequence[Outcome]
    ) -> None:
        waiting: list[tuple[LogPosition, Waiter]] = []
        for (waiter, ticket, _), outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, PenstockError):
                self._admission.abandon(ticket)
                if not waiter.done():  # otherwise the client has disconnected
                    waiter.set_exception(outcome)
                continue
            self._admission.appended(ticket, outcome)
            waiter.accept(outcome)
            if not waiter.done():
                waiting.append(((ONLY_PARTITION, outcome), waiter))
        if waiting:
            self._tail.watch(waiting, timeout_s)


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

    def accept(self, lsn: Lsn) -> None:
        """Note that the request is durable."""
        self._position = (ONLY_PARTITION, lsn)
        if self._timings is not None:
            self._timings.appended(lsn)
        if self._is_sent and not self._future.done():
            self._future.set_result(None)

    def set_result(self, reply: Reply) -> None:
        """Give the task its reply."""
        self._future.set_result(reply)

    def set_exception(self, error: PenstockError) -> None:
        """Raise an error for the task."""
        self._future.set_exception(error)

    async def reply(self) -> Reply:
        """Return the reply.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
        """
        reply = await self._ended()
        assert reply is not None, "the request is awaited, not sent"
        return reply

    async def durable(self) -> None:
        """Return when a sent request is durable; raises as `reply`."""
        await self._ended()

    async def _ended(self) -> Reply | None:
        try:
            return await self._future
        except BaseException:
            if self._position is not None:
                # The task waits no longer; without this, the tail would keep the waiter until its
                # time limit.
                self._tail.forget(((self._position, self),))
            raise
