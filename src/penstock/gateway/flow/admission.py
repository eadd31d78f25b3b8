"""`Admission`: decides which requests of one gateway are appended to the log.

A request passes the limits (`limit_table`) and the bounds of the queues. An admitted request has a `Ticket`
until its epoch is committed, or until its append fails. For one event loop.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.errors import Overloaded, Throttled
from penstock.gateway.flow.limit_table import Caller, Excess, Held, LimitTable
from penstock.gateway.telemetry.metrics import Metrics
from penstock.journal.tail import JournalTail
from penstock.process.config import GatewayConfig

OVERLOADED: Final = "overloaded"
THROTTLED: Final = "throttled"


@dataclass(frozen=True, slots=True)
class Ticket:
    """An admitted request: its principal, and the counts that it holds."""

    principal: str
    held: Held


class Admission:
    """Admits requests, and counts those that are under way."""

    def __init__(
        self,
        settings: GatewayConfig,
        limits: LimitTable,
        tail: JournalTail,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with no request under way.

        Args:
            settings: The gateway's settings.
            limits: The limits of the application and its settings.
            tail: The gateway's journal tail, which knows the committed positions.
            metrics: Counts refusals.
            clock: Seconds that never go back.
        """
        self._settings = settings
        self._limits = limits
        self._tail = tail
        self._metrics = metrics
        self._clock = clock
        self._under_way: dict[str, int] = {}
        self._in_log: deque[tuple[Lsn, Ticket]] = deque()
        self._log_end = Lsn(0)  # the position after the newest record that this gateway appended

    def admit(self, caller: Caller) -> Ticket:
        """Admit a request, which is then under way; the caller appends it.

        Raises:
            Throttled: A limit is reached.
            Overloaded: Too many requests wait in this gateway or in the log.
        """
        self._release_committed()
        self._check_load(caller)
        held = self._limits.admit(caller, self._clock())
        if isinstance(held, Excess):
            self._metrics.refused(THROTTLED, str(held.limit))
            error = Throttled(
                f"the limit `{held.limit}` is reached; send the request again in {held.wait_s:.3g} s"
            )
            error.retry_after_s = held.wait_s
            raise error
        self._under_way[caller.principal] = self._under_way.get(caller.principal, 0) + 1
        return Ticket(caller.principal, held)

    def appended(self, ticket: Ticket, lsn: Lsn) -> None:
        """Note that a request is in the log; it is under way until its epoch is committed."""
        self._log_end = max(self._log_end, Lsn(lsn + 1))
        if self._tail.is_committed((ONLY_PARTITION, lsn)):  # the id was used before
            self.release(ticket)
        else:
            self._in_log.append((lsn, ticket))

    def release(self, ticket: Ticket) -> None:
        """End the time under way of a request."""
        for limiter, group in ticket.held:
            limiter.release(group)
        left = self._under_way[ticket.principal] - 1
        if left:
            self._under_way[ticket.principal] = left
        else:
            del self._under_way[ticket.principal]

    def _release_committed(self) -> None:
        committed = self._tail.positions.get(ONLY_PARTITION, Lsn(0))
        in_log = self._in_log
        while in_log and in_log[0][0] < committed:
            self.release(in_log.popleft()[1])

    def _check_load(self, caller: Caller) -> None:
        """Refuse a request before queues grow without limit.

        While the gateway is full, a principal with less than an equal share of the places is admitted, so
        that the places are at most `waiting_max` times the harmonic number of the principals.

        Raises:
            Overloaded: Too many requests wait in this gateway or in the log.
        """
        most = self._settings.waiting_max
        if self._tail.waiting >= most:
            own = self._under_way.get(caller.principal, 0)
            principals = len(self._under_way) + (own == 0)
            if own >= most // principals:
                self._metrics.refused(OVERLOADED, "")
                raise Overloaded(f"{most} requests wait here already")
        lag = self._log_end - self._tail.positions.get(ONLY_PARTITION, Lsn(0))
        if lag > self._settings.lag_max:
            self._metrics.refused(OVERLOADED, "")
            raise Overloaded(
                f"{lag} requests wait in the log, at most {self._settings.lag_max} may"
            )
