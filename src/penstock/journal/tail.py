"""The journal's tail: a thread follows the newest epochs and hands their replies to the waiters.

A reply is given only after its epoch is committed. If the journal cannot be read, the waiters get
the error, and the thread tries again. Of each epoch only the rows that are waited for are decoded.

`JournalTail` serves threads, `AsyncJournalTail` one event loop, which is woken once per epoch.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import JournalUnavailable, PenstockError, TimedOut
from penstock.journal.api import Commit, Journal
from penstock.journal.replies import (
    LogPosition,
    find_replies,
    find_reply,
    find_sent_reply,
    forgotten,
    replies_of,
)
from penstock.model.reply import Reply

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)

_LOOK_MS: Final = 100
_PAUSE_S: Final = 0.5
"""Between two tries of a journal that cannot be read."""

LOOK_S: Final = 0.05
"""Between two looks at waits with a time limit."""


class _Ahead(NamedTuple):
    """The replies of an epoch that were read before it was durable, and the positions for which they were read."""

    epoch: Epoch
    asked: Set[LogPosition]
    replies: Mapping[LogPosition, Reply]


_NOTHING_READ: Final = _Ahead(BEFORE_FIRST, frozenset(), {})

Waiter = Any
"""A future of `concurrent.futures` or of asyncio; both have `done`, `set_result`, `set_exception`."""


class JournalTail:
    """Follows one journal from its newest epoch on; any thread may wait.

    Attributes:
        epoch: The newest epoch that the thread has read.
        positions: The log position after it, by partition.
        atoms: The number of atoms of each stream after it.
        deployment: The name of the deployment that executes the epoch after it; empty if its driver has not said so.
        failure: Why the journal cannot be read now, or why no further epoch will come; else None.

    Args:
        on_waiting: Gets the number of awaited replies when it changes.
    """

    def __init__(
        self,
        journal: Journal,
        on_waiting: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._journal = journal
        self._on_waiting = on_waiting
        self._lock = threading.Lock()
        self._waiting: dict[LogPosition, list[Waiter]] = {}
        self._conditions: dict[Waiter, Callable[[], bool]] = {}
        last = journal.last()
        self.epoch = BEFORE_FIRST if last is None else last.epoch
        self.positions: dict[LogPartition, Lsn] = {} if last is None else dict(last.positions)
        self.atoms: Mapping[str, int] = {} if last is None else last.atoms
        self.deployment = "" if last is None else last.deployment
        self.failure: PenstockError | None = None
        self._ahead: _Ahead = _NOTHING_READ
        self._ended = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-tail", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many log positions are waited for."""
        return len(self._waiting)

    def is_committed(self, position: LogPosition) -> bool:
        """Say whether the request at a log position is processed."""
        partition, lsn = position
        return lsn < self.positions.get(partition, Lsn(0))

    def wait(self, position: LogPosition, timeout_ms: int) -> Reply:
        """Return the reply to the request at a log position.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
        """
        future: Future[Reply] = Future()
        if not self._register(position, future):
            return find_reply(self._journal, position)
        try:
            return future.result(timeout_ms / 1_000)
        except TimeoutError:
            raise TimedOut(
                f"no reply within {timeout_ms} ms; the request is in the log at {position[1]} and "
                "will be processed; ask again with the same request id"
            ) from None
        finally:
            self._unregister([(position, future)])

    def wait_until(self, position: LogPosition, timeout_ms: int) -> bool:
        """Block until everything below a log position is committed; False when time is up."""
        partition, lsn = position
        future: Future[None] = Future()
        self._when(lambda: self.positions.get(partition, Lsn(0)) >= lsn, future)
        try:
            future.result(timeout_ms / 1_000)
        except TimeoutError:
            return False
        finally:
            self._forget_condition(future)
        return True

    def fail(self, error: PenstockError) -> None:
        """Raise an error for the waiters, now and later: no further epoch will come."""
        self._fail(error, ended=True)

    def close(self) -> None:
        """Stop the thread; the waiters hear nothing more."""
        self._closed.set()
        self._thread.join(timeout=5)

    def _register(self, position: LogPosition, waiter: Waiter) -> bool:
        """Let a waiter wait for a reply; return False if the epoch is committed already."""
        with self._lock:
            waits = self._waits(position, waiter)
        self._on_waiting(len(self._waiting))
        return waits

    def _register_all(
        self, pairs: Sequence[tuple[LogPosition, Waiter]]
    ) -> list[tuple[LogPosition, Waiter]]:
        """Let waiters wait for replies; return those whose epoch is committed already."""
        committed = []
        with self._lock:
            for position, waiter in pairs:
                if not self._waits(position, waiter):
                    committed.append((position, waiter))
        self._on_waiting(len(self._waiting))
        return committed

    def _waits(self, position: LogPosition, waiter: Waiter) -> bool:
        """Let a waiter wait, unless its epoch is committed already; the lock is held. Raises as `_register`."""
        if self.is_committed(position):
            return False
        if self.failure is not None:
            raise self.failure
        self._waiting.setdefault(position, []).append(waiter)
        return True

    def _unregister(self, pairs: Iterable[tuple[LogPosition, Waiter]]) -> None:
        """Let waiters wait no longer; those that do not wait are ignored."""
        changed = False
        with self._lock:
            for position, waiter in pairs:
                waiters = self._waiting.get(position, [])
                if waiter in waiters:
                    changed = True
                    waiters.remove(waiter)
                    if not waiters:
                        del self._waiting[position]
        if changed:
            self._on_waiting(len(self._waiting))

    def _when(self, condition: Callable[[], bool], waiter: Waiter) -> None:
        """Give None to a waiter as soon as a condition over `epoch`, `positions` and `atoms` holds."""
        with self._lock:
            if not condition():
                self._conditions[waiter] = condition
                return
        waiter.set_result(None)

    def _forget_condition(self, waiter: Waiter) -> None:
        with self._lock:
            self._conditions.pop(waiter, None)

    def _follow(self) -> None:
        said = ""  # each further try fails in the same way
        while not self._closed.is_set():
            try:
                commit = self._journal.wait(self.epoch, _LOOK_MS, self._read_ahead)
                # Before the waiters wake: their next question must not get the failure that is over.
                with self._lock:
                    if not self._ended:
                        self.failure = None
                if said:
                    said = ""
                    _log.info("the journal can be followed again")
                if commit is not None:
                    self._advance(commit)
            except Exception as error:  # noqa: BLE001 -- the waiters must hear of any failure
                if self._closed.is_set():
                    return
                failure = _penstock_error(error)
                trace = _trace_of(error)
                if not said or trace is not None:
                    said = cause_text(failure)
                    _log.error(
                        "the journal cannot be followed", exc_info=trace, extra={"cause": said}
                    )
                self._fail(failure)
                self._closed.wait(_PAUSE_S)

    def _read_ahead(self, commit: Commit) -> None:
        """Read the replies of an epoch that are waited for; nobody hears of them before the epoch is durable."""
        with self._lock:
            wanted = set(self._done(commit))
        self._ahead = _Ahead(commit.epoch, wanted, replies_of(self._journal, commit, wanted))

    def _done(self, commit: Commit) -> list[LogPosition]:
        """Return the positions of an epoch, or before it, that are waited for; the lock is held."""
        ends = commit.positions
        return [position for position in self._waiting if position[1] < ends.get(position[0], 0)]

    def _advance(self, commit: Commit) -> None:
        """Read the replies of an epoch that are waited for, and wake their waiters."""
        ahead, self._ahead = self._ahead, _NOTHING_READ
        if ahead.epoch != commit.epoch:
            ahead = _NOTHING_READ
        replies, asked = dict(ahead.replies), set(ahead.asked)
        waiters: dict[LogPosition, list[Waiter]] = {}
        reached: list[Waiter] = []
        while True:
            with self._lock:
                done = self._done(commit)
                # At first all of them; then those that began to wait while the rows were read.
                missing = set(done) - asked
                if not missing:
                    self.epoch, self.positions = commit.epoch, dict(commit.positions)
                    self.atoms, self.deployment = commit.atoms, commit.deployment
                    waiters = {position: self._waiting.pop(position) for position in done}
                    reached = [waiter for waiter, holds in self._conditions.items() if holds()]
                    break
            replies |= replies_of(self._journal, commit, missing)
            asked |= missing
        outcomes: list[tuple[Waiter, Reply | Exception | None]] = [
            (waiter, replies.get(position) or forgotten(self._journal, position[1]))
            for position, several in waiters.items()
            for waiter in several
        ]
        self._settle([*outcomes, *((waiter, None) for waiter in reached)])

    def _fail(self, error: PenstockError, *, ended: bool = False) -> None:
        with self._lock:
            self._ended = self._ended or ended
            self.failure = error
            waiting, self._waiting = self._waiting, {}
        self._settle([(waiter, error) for several in waiting.values() for waiter in several])

    def _settle(self, outcomes: list[tuple[Waiter, Reply | Exception | None]]) -> None:
        """Give each waiter its outcome; `AsyncJournalTail` does it in the event loop."""
        _settle(outcomes)
        self._on_waiting(len(self._waiting))


class AsyncJournalTail(JournalTail):
    """A tail whose waiters live in one event loop, in which it must be made and closed; see `JournalTail`."""

    def __init__(
        self,
        journal: Journal,
        on_waiting: Callable[[int], None] = lambda count: None,
    ) -> None:
        import asyncio  # noqa: PLC0415 -- a driver and a command have no event loop

        self._loop = asyncio.get_running_loop()
        self._limited: list[tuple[float, float, Sequence[tuple[LogPosition, Waiter]]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._look_ups = ThreadPoolExecutor(1, "penstock-look-up")
        self._look_ups.submit(int)  # begins the thread: later the system may refuse one
        # Their epoch was committed before they waited.
        self._late: list[tuple[LogPosition, Waiter]] = []
        self._looks_up = False
        super().__init__(journal, on_waiting)

    async def sent_reply(self, position: LogPosition, request_id: str) -> Reply | None:
        """Return the reply to a request that the cascade of a record has sent; see `find_sent_reply`."""
        return await self._loop.run_in_executor(
            self._look_ups, find_sent_reply, self._journal, position, request_id
        )

    async def reply(self, position: LogPosition, timeout_s: float) -> Reply:
        """Return the reply to the request at a log position.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        self.watch(((position, future),), timeout_s)
        try:
            return await future
        except BaseException:
            self.forget(((position, future),))
            raise

    def watch(self, pairs: Sequence[tuple[LogPosition, Waiter]], timeout_s: float) -> None:
        """Give many waiters their replies or errors; after the time limit, give them `TimedOut`.

        `forget` ends their wait. A wait ends at most `LOOK_S` after its limit, and never before.
        """
        try:
            committed = self._register_all(pairs)
        except PenstockError as error:
            _settle((waiter, error) for _, waiter in pairs)
            return
        if committed:
            self._look_up_soon(committed)
        # One timer looks at all waits, because hardly any of them expires: with a timer for each wait, a request over
        # HTTP costs a gateway 84 µs in place of 79.
        end_s = time.monotonic() + timeout_s
        self._limited.append((end_s, timeout_s, pairs))
        if self._timer is None:
            self._timer = self._loop.call_later(min(LOOK_S, timeout_s), self._end_late)

    def _end_late(self) -> None:
        """End the waits whose time is up, and look again while some wait."""
        now_s = time.monotonic()
        kept: list[tuple[float, float, Sequence[tuple[LogPosition, Waiter]]]] = []
        for limited in self._limited:
            end_s, timeout_s, pairs = limited
            if end_s <= now_s:
                late = [pair for pair in pairs if not pair[1].done()]
                self.forget(late)
                for _, waiter in late:
                    waiter.set_exception(
                        TimedOut(
                            f"no reply within {timeout_s:g} s; the request is durable and will be "
                            "processed; ask again with the same request id"
                        )
                    )
            # The last one of a batch is the last one to have its reply, so nearly always one is asked.
            elif not all(waiter.done() for _, waiter in reversed(pairs)):
                kept.append(limited)
        self._limited = kept
        self._timer = self._loop.call_later(LOOK_S, self._end_late) if kept else None

    def forget(self, pairs: Iterable[tuple[LogPosition, Waiter]]) -> None:
        """Let waiters of `watch` wait no longer."""
        self._unregister(pairs)

    def _look_up_soon(self, pairs: Sequence[tuple[LogPosition, Waiter]]) -> None:
        """Let the thread of look-ups settle waiters whose epoch is committed, together with others that come meanwhile."""
        with self._lock:
            self._late += pairs
            if self._looks_up:
                return
            self._looks_up = True
        self._loop.run_in_executor(self._look_ups, self._look_up)

    def _look_up(self) -> None:
        """Settle all waiters of requests whose epoch is committed, until there are no more."""
        while True:
            with self._lock:
                late, self._late = self._late, []
                self._looks_up = bool(late)
            if not late:
                return
            self._settle(self._found(late))

    def _found(
        self, pairs: Sequence[tuple[LogPosition, Waiter]]
    ) -> list[tuple[Waiter, Reply | Exception | None]]:
        """Return waiters with the replies from the journal; with the error if it cannot be read."""
        try:
            outcomes = find_replies(self._journal, [position for position, _ in pairs])
        except Exception as error:  # noqa: BLE001 -- the waiters must hear of any failure
            failure = _penstock_error(error)
            trace = _trace_of(error)
            facts = {"cause": cause_text(failure)}
            _log.error("replies cannot be looked up", exc_info=trace, extra=facts)
            return [(waiter, failure) for _, waiter in pairs]
        return [(waiter, outcomes[position]) for position, waiter in pairs]

    async def until(self, epoch: Epoch, timeout_s: float) -> None:
        """Return when an epoch is committed and this process has read it.

        Raises:
            TimedOut: It was not committed in time.
        """
        if not await self._holds(lambda: self.epoch >= epoch, timeout_s):
            raise TimedOut(f"epoch {epoch} is not committed yet; the newest is {self.epoch}")

    async def until_deployed(self, known: str, timeout_s: float) -> None:
        """Return when another deployment than the known one executes the next epoch, or may do so; or after the time limit."""
        following = self.epoch + 1
        await self._holds(
            lambda: self.deployment != known or (not known and self.epoch >= following), timeout_s
        )

    async def until_committed(self, position: LogPosition, timeout_s: float) -> bool:
        """Wait until the request at a log position is processed; return False after the time limit."""
        return await self._holds(lambda: self.is_committed(position), timeout_s)

    @contextmanager
    def awaiting_atom(self, stream: str, number: int, waiter: Waiter) -> Iterator[None]:
        """Give None to a waiter as soon as a stream has an atom with this number, while the block runs."""
        self._when(lambda: self.atoms.get(stream, 0) > number, waiter)
        try:
            yield
        finally:
            self._forget_condition(waiter)

    async def _holds(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        future: asyncio.Future[bool | None] = self._loop.create_future()  # None: it holds
        self._when(condition, future)
        # Each epoch ends two of these waits, and `asyncio.timeout` costs several times as much as this timer.
        timer = self._loop.call_later(timeout_s, _settle, ((future, False),))
        try:
            return await future is None
        finally:
            timer.cancel()
            self._forget_condition(future)

    def close(self) -> None:
        """Stop the threads and the timer; the waiters hear nothing more."""
        super().close()
        if self._timer is not None:
            self._timer.cancel()
        self._look_ups.shutdown(wait=False)

    def _settle(self, outcomes: list[tuple[Waiter, Reply | Exception | None]]) -> None:
        if outcomes and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(super()._settle, outcomes)


def _trace_of(error: Exception) -> Exception | None:
    """Return an error whose text alone does not say enough."""
    return None if isinstance(error, PenstockError | OSError) else error


def _penstock_error(error: Exception) -> PenstockError:
    return error if isinstance(error, PenstockError) else JournalUnavailable(str(error))


def _settle(outcomes: Iterable[tuple[Waiter, Reply | Exception | bool | None]]) -> None:
    for waiter, outcome in outcomes:
        if waiter.done():  # its time was up
            continue
        if isinstance(outcome, Exception):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)
