"""`Admission`: decides which requests of one gateway are appended to the log, and when.

A request passes the pauses, the bounds of the queues and the limits (`limit_table`). If the log holds many
requests that no epoch has committed, it waits for its turn in a `FairQueue`. An admitted request has a
`Ticket` until its epoch is committed, or until its append fails. For one event loop.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.errors import Overloaded, Paused, Stopping, Throttled
from penstock.files.layout import PAUSES
from penstock.files.roots import shared_root
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.gateway.flow.limit_table import Caller, Excess, Group, Held, Limiter, LimitTable
from penstock.gateway.telemetry.metrics import FlowMetrics
from penstock.journal.tail import AsyncJournalTail
from penstock.model.limit import Limit
from penstock.orders.pauses import Pauses, decode_actions, target_text
from penstock.process.config import GatewayConfig

SIZE_MIN: Final = 2
SIZE_MAX: Final = 10_000
"""By default, an epoch takes no more requests."""

SIZE_FIRST: Final = 250
"""The size before an epoch is known."""

FIXED_TIMES: Final = 4
"""An epoch of so many times its fixed time spends three quarters of it on requests."""

TIME_MAX_S: Final = 1.0
"""The longest epoch that a long fixed time can cause."""

_KEPT: Final = 0.95
"""The weight of an epoch, relative to the epoch after it."""

_PROBE_EVERY: Final = 16
_PROBE: Final = 4
"""Every 16th window is four times as large. Small epochs alone would hide how fast large ones are: while a small one
runs, the gateways use the same processors for the requests after it."""

_GROWTH_MAX: Final = 1.5
"""The window grows or shrinks at most by this factor after an epoch; a single slow epoch changes little."""

_SPREAD_MIN: Final = 0.1
"""Sizes that differ less, relative to their mean, say nothing about the fixed time."""


class Progress(NamedTuple):
    """The progress of the driver, as a gateway sees it.

    Attributes:
        epoch: The newest epoch.
        committed: The log position after it.
        own: The number of committed requests that this gateway has appended.
        now_s: The time, in seconds that never go back.
    """

    epoch: int
    committed: int
    own: int
    now_s: float


class Window:
    """The window of one gateway.

    Attributes:
        size: The number of requests, at least `SIZE_MIN`.
    """

    def __init__(self, time_s: float, gateways: int = 1) -> None:
        """Let the log hold the requests of one epoch.

        Args:
            time_s: The time of the epoch; 0 sets no bound.
        """
        self.size = SIZE_FIRST
        self._time_s = time_s
        self._part_min = 1 / gateways
        self._line = _Line()
        self._whole = float(SIZE_FIRST)
        self._resizes = 0
        self._busy_since: Progress | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return self._time_s > 0

    def note(self, progress: Progress, *, busy: bool) -> None:
        """Take the progress of the driver after an epoch.

        Args:
            busy: Whether more requests waited then, in the log or in this gateway. Only the time between two
                epochs that followed each other without a pause shows the driver's rate.
        """
        before = self._busy_since
        self._busy_since = progress if busy else None
        if (
            before is None
            or progress.committed <= before.committed
            or progress.now_s <= before.now_s
        ):
            return
        epochs = max(1, progress.epoch - before.epoch)
        own, count = progress.own - before.own, progress.committed - before.committed
        self._line.add(epochs, count, progress.now_s - before.now_s, own)
        self._resize()

    def _resize(self) -> None:
        line = self._line
        fixed_s, each_s = line.times()
        # The smallest window that keeps the driver busy is best: a request of a quiet principal
        # waits for half of the epoch that runs. But each epoch has a fixed time, so many small ones
        # are slow.
        time_s = max(self._time_s, min(FIXED_TIMES * fixed_s, TIME_MAX_S))
        wanted = (time_s - fixed_s) / each_s if each_s > 0 else SIZE_MAX
        bounded = min(max(wanted, self._whole / _GROWTH_MAX), self._whole * _GROWTH_MAX)
        self._whole = min(max(SIZE_MIN, bounded), SIZE_MAX)
        self._resizes += 1
        probe = 1 if self._resizes % _PROBE_EVERY else _PROBE
        # Gateways share the log without a protocol: each takes its part of the committed requests,
        # at least an equal one, so that a gateway that starts to send gets its part. All windows
        # together are at most twice as large as that of a single gateway.
        part = max(self._part_min, line.own_part())
        self.size = max(SIZE_MIN, round(probe * part * self._whole))


@dataclass(slots=True)
class _Line:
    """A line through the sizes and times of the last epochs; sums with weights."""

    epochs: float = 0.0
    counts: float = 0.0
    times_s: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    own: float = 0.0
    fixed_s: float = 0.0

    def add(self, epochs: int, count: int, time_s: float, own: int) -> None:
        """Add epochs.

        Args:
            time_s: Their time in seconds.
        """
        kept = _KEPT**epochs
        self.epochs = kept * self.epochs + epochs
        self.counts = kept * self.counts + count
        self.times_s = kept * self.times_s + time_s
        self.squares = kept * self.squares + count * count / epochs
        self.products = kept * self.products + count * time_s / epochs
        self.own = kept * self.own + own

    def times(self) -> tuple[float, float]:
        """Return the fixed time of an epoch, and the time of each request, in seconds."""
        count, time_s = self.counts / self.epochs, self.times_s / self.epochs
        variance = self.squares / self.epochs - count * count
        # Least squares. Without spread the slope is noise, and the last known fixed time stays.
        if variance > (_SPREAD_MIN * count) ** 2:
            slope = (self.products / self.epochs - count * time_s) / variance
            self.fixed_s = time_s - slope * count
        self.fixed_s = min(max(self.fixed_s, 0.0), time_s)
        return self.fixed_s, (time_s - self.fixed_s) / count

    def own_part(self) -> float:
        """Return the part of the requests that this gateway has appended."""
        return min(1.0, self.own / self.counts)


OVERLOADED: Final = "overloaded"
THROTTLED: Final = "throttled"
PAUSED: Final = "paused"

_FOLLOW_S: Final = 60.0
_TURNS_AT_ONCE: Final = 32

BYTES_OF_ONE: Final = 4_096
"""The bytes of a body that cost as much as a request itself."""

_CREDIT: Final = 1.0

T = TypeVar("T")


def watched_pauses(data: Path) -> WatchedFile[Pauses]:
    """Return the pauses of a data directory, kept up to date."""
    return WatchedFile(shared_root(data), PAUSES, lambda content: Pauses(decode_actions(content)))


class Ticket(NamedTuple):
    """An admitted request: its principal, and the counts that it holds."""

    principal: str
    held: Held


class FairQueue(Generic[T]):
    """Requests that wait for their turn, in one queue for each principal; a push or pop takes about a microsecond.

    Deficit round robin (Shreedhar and Varghese, 1995): each turn gives a principal a credit of 1, and a request is
    taken when the credit covers its cost. So principals that wait are served equally, in cost, however many requests
    each of them sends. A principal that did not wait gets its first turn within one round.
    """

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[tuple[float, T]]] = OrderedDict()
        self._credits: dict[str, float] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def holds(self, principal: str) -> bool:
        """Say whether requests of a principal wait."""
        return principal in self._queues

    def push(self, principal: str, size: int, item: T) -> None:
        """Let a request wait.

        Args:
            size: The bytes of its body.
        """
        queue = self._queues.get(principal)
        if queue is None:
            queue = self._queues[principal] = deque()
            self._credits[principal] = _CREDIT
        queue.append((1 + size // BYTES_OF_ONE, item))
        self._length += 1

    def pop(self) -> T:
        """Take the next request; the queue must not be empty."""
        while True:
            principal, queue = next(iter(self._queues.items()))
            cost, item = queue[0]
            credit = self._credits[principal]
            if cost <= credit:
                break
            # The request costs more than the credit: the principal keeps its credit, and the next
            # one has its turn.
            self._credits[principal] = credit + _CREDIT
            self._queues.move_to_end(principal)
        queue.popleft()
        self._length -= 1
        if queue:
            self._credits[principal] = credit - cost
        else:
            del self._queues[principal], self._credits[principal]
        return item


class Shares:
    """The part of the window that each principal has: its requests in the log, and on their way to it.

    A call takes about a microsecond.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0

    def add(self, principal: str) -> None:
        """Count a request that has its turn."""
        self._counts[principal] = self._counts.get(principal, 0) + 1
        self._total += 1

    def remove(self, principal: str) -> None:
        """End a request, because its epoch is committed or because it was not appended."""
        self._total -= 1
        left = self._counts[principal] - 1
        if left:
            self._counts[principal] = left
        else:
            del self._counts[principal]

    def is_below(self, principal: str, size: int, principals: int) -> bool:
        """Say whether a principal has less than an equal share of a window."""
        # Such a principal need not wait when the window is full, so all of them together get at
        # most another window.
        return self._total < 2 * size and self._counts.get(principal, 0) * principals < size


class Admission:
    """Admits requests, and counts those that are under way.

    Attributes:
        clock: Returns seconds that never go back.
        window: The number of requests that the log may hold.

    Args:
        log_end: The position after the log's newest record.
    """

    def __init__(
        self,
        settings: GatewayConfig,
        limits: LimitTable,
        pauses: WatchedFile[Pauses],
        tail: AsyncJournalTail,
        metrics: FlowMetrics,
        log_end: Lsn,
    ) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self.window = Window(settings.window_ms / 1_000, settings.processes)
        self._settings = settings
        self._limits = limits
        self._pauses = pauses
        self._tail = tail
        self._metrics = metrics
        self._queue: FairQueue[tuple[asyncio.Future[None], str]] = FairQueue()
        self._shares = Shares()
        self._under_way: dict[str, int] = {}
        self._count = 0
        self._appending = 0  # requests that had their turn, and are not in the log yet
        self._in_log: deque[tuple[Lsn, Ticket]] = deque()
        self._own_committed = 0
        self._log_end = log_end  # or after the newest record that this gateway has appended
        self._follower: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def admit(
        self,
        caller: Caller,
        size: int,
        timeout_s: float,
        on_wait: Callable[[], None] = lambda: None,
    ) -> Ticket:
        """Admit a request when its turn has come; the caller then appends it.

        Args:
            size: The bytes of its body.
            timeout_s: The longest wait for its turn.
            on_wait: Is called if the request must wait for its turn.

        Returns:
            The ticket, which the caller hands to `appended` or `abandon`.
        """
        if self._pauses.is_far:
            await self._pauses.awake()
        self._release_committed()
        self._check_pauses(caller)
        self._check_load(caller)
        ticket = Ticket(caller.principal, self._hold(caller))
        self._under_way[ticket.principal] = self._under_way.get(ticket.principal, 0) + 1
        self._count += 1
        # The first request after a quiet time: the counts on disk may be stale.
        if self._count == 1:
            self._show()
        if self._must_wait(ticket):
            on_wait()
            await self._wait_for_turn(ticket, size, timeout_s)
        else:
            self._place(ticket.principal)
        return ticket

    def _must_wait(self, ticket: Ticket) -> bool:
        """Say whether a request must wait for its turn.

        Without keys and tokens there is one principal, and the log itself is its queue. A principal with less
        than an equal share of the window does not wait.
        """
        if not ticket.principal or (not self._queue and self._room() > 0):
            return False
        return self._queue.holds(ticket.principal) or not self._shares.is_below(
            ticket.principal, self.window.size, len(self._under_way)
        )

    def apply_limits(self, limits: Iterable[Limit]) -> None:
        """Apply other limits from now on; a limit that stays keeps its counts."""
        self._limits = LimitTable(limits, self._settings.processes, self._limits)

    def appended(self, ticket: Ticket, lsn: Lsn) -> None:
        """Note that a request is in the log; it is under way until its epoch is committed."""
        self._appending -= 1
        self._log_end = max(self._log_end, Lsn(lsn + 1))
        if self._tail.is_committed((ONLY_PARTITION, lsn)):  # the id was used before
            self._leave(ticket)
            self._give_turns()
        else:
            self._in_log.append((lsn, ticket))
            self._follow()

    def abandon(self, ticket: Ticket) -> None:
        """End a request that was not appended to the log."""
        self._appending -= 1
        self._leave(ticket)
        self._give_turns()

    async def awake(self) -> None:
        """Look at the pauses before `reading`, if nobody has used them for some seconds."""
        await self._pauses.awake()

    @contextmanager
    def reading(self, callers: Iterable[Caller]) -> Iterator[None]:
        """Admit calls that append nothing; they are under way while the block runs.

        The bounds of the queues and the turns of principals do not concern them.

        Raises:
            Corrupt: The file of the pauses cannot be used now.
        """
        self._release_committed()
        held: list[tuple[Limiter, Group]] = []
        try:
            for caller in callers:
                self._check_pauses(caller)
                held += self._hold(caller)
            yield
        finally:
            for limiter, group in held:
                limiter.release(group)

    def refuse_waiting(self) -> None:
        """Refuse the requests that wait for their turn, now and later, because the gateway stops.

        They are not in the log. Requests that have had their turn go on.
        """
        self._is_stopping = True
        while self._queue:
            turn, _ = self._queue.pop()
            if not turn.done():
                turn.set_exception(_stopping())

    def close(self) -> None:
        """Stop following the journal; no request may be running."""
        if self._follower is not None:
            self._follower.cancel()

    def _hold(self, caller: Caller) -> Held:
        """Count a request by its limits."""
        held = self._limits.admit(caller, self.clock())
        if isinstance(held, Excess):
            self._metrics.refused(THROTTLED, str(held.limit))
            error = Throttled(
                f"the limit `{held.limit}` is reached; send the request again in {held.wait_s:.3g} s"
            )
            error.retry_after_s = held.wait_s
            raise error
        return held

    def _check_pauses(self, caller: Caller) -> None:
        """Refuse a request that an operator has paused."""
        pauses = self._pauses.value()
        pause = pauses.pause_of(caller.entity, caller.method)
        if pause is None and caller.former:
            pause = pauses.pause_of(caller.former, caller.method)
        if pause is not None:
            self._metrics.refused(PAUSED, pause.target)
            what = target_text(pause.target)
            raise Paused(f"{what} is paused{f': {pause.reason}' if pause.reason else ''}")

    def _check_load(self, caller: Caller) -> None:
        """Refuse a request before queues grow without limit.

        While the gateway is full, a principal with less than an equal share of the places is admitted, so
        that the places are at most `waiting_max` times the harmonic number of the principals.
        """
        most = self._settings.waiting_max
        if self._tail.waiting + len(self._queue) >= most:
            own = self._under_way.get(caller.principal, 0)
            principals = len(self._under_way) + (own == 0)
            if own >= most // principals:
                self._metrics.refused(OVERLOADED, "")
                raise Overloaded(f"{most} requests wait here already")
        lag = self._lag()
        if lag > self._settings.lag_max:
            self._metrics.refused(OVERLOADED, "")
            raise Overloaded(
                f"{lag} requests wait in the log, at most {self._settings.lag_max} may"
            )

    async def _wait_for_turn(self, ticket: Ticket, size: int, timeout_s: float) -> None:
        """Return when the log has room and the other principals had their turns.

        Args:
            size: The bytes of its body.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_stopping:
            turn.set_exception(_stopping())
        else:
            self._queue.push(ticket.principal, size, (turn, ticket.principal))
            self._follow()
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._appending -= 1  # the turn came, and its request has ended
                self._shares.remove(ticket.principal)
            self._end(ticket)
            self._give_turns()
            if isinstance(error, TimeoutError):
                self._metrics.refused(OVERLOADED, "")
                raise Overloaded(f"the request had no turn within {timeout_s:g} s") from None
            raise

    def _give_turns(self) -> None:
        """Give turns while there is room, a few in each round of the event loop: other callers must not wait for all."""
        given = 0
        while self._queue and self._room() > 0:
            if given == _TURNS_AT_ONCE:
                asyncio.get_running_loop().call_soon(self._give_turns)
                return
            given += 1
            turn, principal = self._queue.pop()
            if not turn.done():  # otherwise its request has ended
                turn.set_result(None)
                self._place(principal)

    def _place(self, principal: str) -> None:
        """Count a request as one that is being appended."""
        self._appending += 1
        self._shares.add(principal)

    def _room(self) -> int:
        """Return the number of requests that may be appended now."""
        window = self.window
        return window.size - self._lag() - self._appending if window.is_bounded else 1

    def _lag(self) -> int:
        """Return the number of requests in the log that no epoch has committed."""
        return self._log_end - self._committed

    @property
    def _committed(self) -> Lsn:
        return self._tail.positions.get(ONLY_PARTITION, Lsn(0))

    def _release_committed(self) -> None:
        in_log = self._in_log
        if not in_log:
            return
        committed = self._committed
        while in_log and in_log[0][0] < committed:
            self._leave(in_log.popleft()[1])
            self._own_committed += 1

    def _leave(self, ticket: Ticket) -> None:
        """End a request that had its turn."""
        self._shares.remove(ticket.principal)
        self._end(ticket)

    def _end(self, ticket: Ticket) -> None:
        """End the time under way of a request."""
        for limiter, group in ticket.held:
            limiter.release(group)
        left = self._under_way[ticket.principal] - 1
        if left:
            self._under_way[ticket.principal] = left
        else:
            del self._under_way[ticket.principal]
        self._count -= 1
        if not self._count:
            self._show()

    def _follow(self) -> None:
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow_epochs())

    async def _follow_epochs(self) -> None:
        """After each epoch, end its requests and give turns, until no request waits for an epoch.

        Requests that wait for their turn may wait for the epochs of other gateways' requests.
        """
        while self._in_log or self._queue:
            awaited = self._in_log[0][0] if self._in_log else self._committed
            await self._tail.until_committed((ONLY_PARTITION, awaited), _FOLLOW_S)
            self._release_committed()
            committed = self._committed
            progress = Progress(self._tail.epoch, committed, self._own_committed, self.clock())
            busy = bool(self._queue) or self._log_end > committed
            self.window.note(progress, busy=busy)
            self._give_turns()
            self._show()
        self._follower = None

    def _show(self) -> None:
        self._metrics.under_way(self._count, len(self._queue))


def _stopping() -> Stopping:
    return Stopping("this gateway stops; the request is not in the log, send it again")
