"""Limits on a running handler: time, memory and depth, without a cost for each transaction.

One timer ticks for a whole run of transactions. A handler that has used its processor time, or its wider bound of wall
time, is interrupted. One that swallows the interrupt meets it again before nearly each of its lines, so that a loop
around a `try` ends, too. Only a running process sees ticks, so a process that was stopped blames no handler when
it wakes up.

A handler that does not return to the interpreter (a loop in C) cannot be interrupted. In a worker the watchdog of the
Spark runtime knows from the notes when the handler must have ended, and ends the process. Elsewhere the kernel does so; and
in a process that belongs to the user, such as a test, its stack is shown, and the process waits for it.
"""

import faulthandler
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from time import monotonic, thread_time  # a rerun may stop the clocks of the module
from types import FrameType
from typing import Final, Self, TypeVar

from penstock.engine.execute import Executor, Limits
from penstock.engine.limits import TimeLimit
from penstock.model.context import active
from penstock.model.time_limit import Interrupted
from penstock.native.choice import core
from penstock.process.tampering import (
    OpenFiles,
    ProcessSettings,
    handler_of,
    mask_signals,
    refuse_changes,
    set_handler,
    setitimer,
    take_pending,
)

T = TypeVar("T")

TICK_S: Final = 0.25
"""The longest time between two ticks; short limits have at least four."""

GRACE_S: Final = 1.0
"""How long a handler may take to end after the interrupt."""

_INSIST_US: Final = 20
"""The longest time between two interrupts of a handler that has swallowed one: a loop around a `try` is outside of it shortly."""

_LOCKED: Final = frozenset({"logging", "importlib"})
"""Packages of Python with locks that all threads of the process share."""

RENEW_EVERY: Final = 32
"""Transactions between two looks at the memory that the process has by now."""

CHECK_EVERY: Final = 4_096
"""Transactions between two looks at all names and settings that a handler may have changed."""

_SIGNALS: Final = (signal.SIGALRM, signal.SIGPROF)
"""The signals of the time limits."""

_STATM_BYTES: Final = 256

_FALLBACK_S: Final = 4.0
"""How much longer than its limit a handler may run in C before the kernel ends a process that a watchdog observes."""

NoteDue = Callable[[TimeLimit, int, int], None]
"""Takes the limit of the handler that runs, and when it must have ended: milliseconds of the main thread's processor
time, and of the monotonic clock."""


class TamperedWith(RuntimeError):
    """A handler has changed its process while several transactions ran, or in a way that cannot be undone; none of them counts."""


_FRAMES: Final = 50
"""Frames of Python that a handler of a signal may need."""

OnSignal = Callable[[int, FrameType | None], None]
"""A handler of a signal."""


def _with_frames(handler: OnSignal, frames: int) -> OnSignal:
    """Return a handler of a signal that has so many more frames than the code that the signal interrupts.

    A signal that comes while it runs does nothing. The function takes a frame from that code itself. Where none is left, which is
    rare, that code gets a `RecursionError`.
    """
    is_running = False

    def run(signal_number: int, frame: FrameType | None) -> None:
        nonlocal is_running
        # On a busy machine the work may take longer than the time between two signals: one inside of the other, they would
        # fill the stack, and the process would end.
        if is_running:
            return
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(depth + frames)
        try:
            is_running = True
            handler(signal_number, frame)
        finally:
            is_running = False
            try:
                sys.setrecursionlimit(depth)
            except RecursionError:  # no frame is left: the next transaction has its own limit again
                sys.setrecursionlimit(depth + 1)

    return run


if core is not None:
    _with_frames = core.with_frames


class Guard:
    """Holds an executor's transactions to their limits while the block runs.

    Looking whether a handler has changed names or settings of its process costs more than a small
    transaction. So `batched` looks once for many transactions; where it finds something, it does not
    know which of them have run in the changed process, and raises. Their runner divides them, and runs
    them again. It also raises where a change cannot be undone: then the process must end. Without
    `batched`, the names of the application are looked at behind each transaction, and all others, with
    the settings, behind `every` transactions.

    Time limits need the main thread (signals go there); in other threads depth alone is limited.
    Memory is limited as growth of the process's private data, so mapped stores do not count.

    Args:
        executor: Runs the transactions.
        batched: Whether one look at replaced names counts for many transactions.
        every: How many transactions are between two looks.
        note_due: Takes the time by which a handler must have ended; then a watchdog ends the process of one that has not.
        may_end_process: Whether a handler that is stuck in C ends this process; else its stack is shown.
    """

    def __init__(
        self,
        executor: Executor,
        limits: Limits,
        *,
        batched: bool = False,
        every: int = CHECK_EVERY,
        note_due: NoteDue | None = None,
        may_end_process: bool = True,
    ) -> None:
        self._executor = executor
        self._limits = limits
        self._batched = batched
        self._every = every
        self._note_due = note_due
        self._may_end_process = may_end_process
        self._unchecked = 0  # transactions since the last look
        self._restored = ""
        self._seen = -1
        self._limit = limits.time_limit(None)
        self._tick_s = min(TICK_S, limits.time_ms / 1_000 / 4)
        self._due_s = 0.0  # of processor time
        self._ticks = 0  # of the running handler
        self._told_at = 0  # the tick that has interrupted it
        self._insists_until_s = 0.0
        self._pause_us = 0  # to the next interrupt while it insists
        self._files = _files()
        self._timed = threading.current_thread() is threading.main_thread()
        self._on_tick: OnSignal | None = None
        self._on_stop: OnSignal | None = None
        self._process: ProcessSettings | None = None

    def __enter__(self) -> Self:
        refuse_changes()
        self._executor.isolation.begin()
        if self._timed:
            self._process = ProcessSettings()
            self._memory_before = resource.getrlimit(resource.RLIMIT_DATA)
            self._limit_memory()
            self._mask_before = mask_signals(signal.SIG_UNBLOCK, _SIGNALS)
            # A signal may come where the running handler has no frames left. It must not get a RecursionError that depends
            # on the clock.
            self._on_tick = _with_frames(self._tick, _FRAMES)
            self._on_stop = _with_frames(self._stop, _FRAMES)
            self._handler_before = set_handler(signal.SIGALRM, self._on_tick)
            if handler_of(signal.SIGINT) is signal.default_int_handler:
                set_handler(signal.SIGINT, self._on_stop)
            if sys.__stderr__ is not None:  # show where it was, then die as the signal wants
                chain = self._may_end_process
                faulthandler.register(signal.SIGPROF, file=sys.__stderr__, chain=chain)
            self._executor.on_declared = self._begin
            self._timer_before = setitimer(signal.ITIMER_REAL, self._tick_s, self._tick_s)
            self._begin()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self._timed:
            self._insists_until_s = 0.0  # else a tick that is late starts the timer again
            _end_timers()
        self._executor.isolation.end()  # first, because what follows uses the names
        if self._timed:
            if self._note_due is not None:
                self._note_due(self._limit, 0, 0)
            faulthandler.unregister(signal.SIGPROF)
            set_handler(signal.SIGALRM, self._handler_before)
            if handler_of(signal.SIGINT) is self._on_stop:
                set_handler(signal.SIGINT, signal.default_int_handler)
            self._on_tick = self._on_stop = None  # they refer to this object
            setitimer(signal.ITIMER_REAL, *self._timer_before)  # whose it was before
            mask_signals(signal.SIG_SETMASK, self._mask_before)
            resource.setrlimit(resource.RLIMIT_DATA, self._memory_before)
        lost = self._restore_settings()
        are_closed = self._files.were_closed()
        if error_type is None:
            if are_closed and self._batched:
                raise TamperedWith("a handler has closed files of this process")
            if lost and self._batched:
                raise TamperedWith(f"a handler has changed {lost}, which cannot be restored")
            self._check()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items, and renew the limits, so that no transaction pays for the memory of others."""
        for index, item in enumerate(items):
            if index and (index % self._every == 0 or not self._batched):
                thoroughly = index % self._every == 0
                self._executor.isolation.restore_names(libraries=thoroughly)
                if thoroughly:
                    self._restore_settings()
                self._check()
            if index % RENEW_EVERY == 0:
                self._executor.isolation.collect()
                if self._timed:
                    self._renew()
            self._unchecked += 1
            yield item

    def _restore_settings(self) -> str:
        """Restore the settings of the process; return the name of one that cannot be restored, or an empty text."""
        if self._process is None:
            return ""
        restored, lost = self._process.restore()
        self._restored = restored or self._restored
        return lost

    def _check(self) -> None:
        """Refuse the transactions since the last check if something was restored, also while one of them failed."""
        isolation = self._executor.isolation
        changed = isolation.restored or self._restored
        if changed and self._unchecked > 1:
            raise TamperedWith(f"a handler has changed {changed}")
        isolation.restored = self._restored = ""
        self._unchecked = 0

    def _renew(self) -> None:
        """Restore timers and signals that a handler may have switched off, and measure the memory of the process."""
        self._limit_memory()
        mask_signals(signal.SIG_UNBLOCK, _SIGNALS)
        if handler_of(signal.SIGALRM) is not self._on_tick:
            set_handler(signal.SIGALRM, self._on_tick)
        if not signal.getitimer(signal.ITIMER_REAL)[1]:
            setitimer(signal.ITIMER_REAL, self._tick_s, self._tick_s)

    def _limit_memory(self) -> None:
        used, most = _data_bytes(), self._limits.memory_bytes
        self._executor.is_roomy = used < _data_bytes_at_first() + most
        soft, hard = used + most, self._memory_before[1]
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        """End the process as Ctrl-C does; a `KeyboardInterrupt` of a handler's own is an outcome."""
        self._executor.stopped = self._executor.running
        raise KeyboardInterrupt

    def _begin(self) -> None:
        """Count the time of the running handler from now on, or of the next one."""
        executor = self._executor
        self._seen = executor.runs
        self._limit = limit = self._limits.time_limit(executor.declared_ms)
        self._ticks = self._told_at = 0
        if self._insists_until_s:
            self._insists_until_s = 0.0
            setitimer(signal.ITIMER_REAL, self._tick_s, self._tick_s)
        self._due_s = thread_time() + limit.time_ms / 1_000
        self._note()
        grace_s = GRACE_S if self._note_due is None else _FALLBACK_S
        setitimer(signal.ITIMER_PROF, limit.time_ms / 1_000 + grace_s)

    def _note(self) -> None:
        if self._note_due is not None:
            # The ticks, and not the clock, say how much is left, because a process may have been stopped.
            left_ms = self._limit.wall_ms - self._ticks * self._tick_s * 1_000
            self._note_due(
                self._limit, int(self._due_s * 1_000), int(monotonic() * 1_000 + left_ms)
            )

    def _tick(self, _signal: int, frame: FrameType | None) -> None:
        """Interrupt the running handler if it has exceeded a bound."""
        executor = self._executor
        if not executor.running or executor.runs != self._seen:
            self._begin()
            return
        if self._insists_until_s:
            self._insist(frame)
            return
        self._ticks += 1
        if not self._told_at:
            exceeded = self._exceeded()
            if not exceeded:
                self._note()
                return
            self._told_at = self._ticks
            executor.interrupted = self._limit.exceeded(_running(executor), exceeded)
            if _may_hold_lock(frame):
                self._begin_to_insist()
                return
        elif (
            self._ticks > self._told_at
        ):  # again after each pause: on a busy machine no interrupt may come outside of its `try`
            self._begin_to_insist()
            if not _is_of_user(frame):  # it has ended, and what follows must not be interrupted
                return
        raise Interrupted(executor.interrupted)

    def _exceeded(self) -> str:
        """Return the bound that the running handler has exceeded; empty if there is none."""
        if thread_time() >= self._due_s:
            return "time_ms"
        return "wall_ms" if self._ticks * self._tick_s * 1_000 >= self._limit.wall_ms else ""

    def _begin_to_insist(self) -> None:
        self._insists_until_s = monotonic() + GRACE_S
        self._interrupt_soon()

    def _insist(self, frame: FrameType | None) -> None:
        """Interrupt a handler that has swallowed an interrupt, or that may have held a lock, for a while."""
        interrupted = self._executor.interrupted
        if monotonic() > self._insists_until_s:  # others than the guard end it now
            self._insists_until_s = 0.0
            setitimer(signal.ITIMER_REAL, self._tick_s, self._tick_s)
        elif interrupted is not None and _is_of_user(frame) and not _may_hold_lock(frame):
            self._interrupt_soon()
            raise Interrupted(interrupted)

    def _interrupt_soon(self) -> None:
        """Start the timer with another time than before: a loop whose times are always the same meets it at each of its places."""
        self._pause_us = self._pause_us % _INSIST_US + 1
        setitimer(signal.ITIMER_REAL, self._pause_us / 1e6, _INSIST_US / 1e6)


def _is_of_user(frame: FrameType | None) -> bool:
    """Say whether code of the user runs, or code of Python that it has called, and not Penstock's own."""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if type(module) is not str:
            return True
        package = module.partition(".")[0]
        if package not in sys.stdlib_module_names:
            return package != "penstock"
        frame = frame.f_back
    return False


def _may_hold_lock(frame: FrameType | None) -> bool:
    """Say whether code of Python runs that may have a lock and be outside of its `try`; all threads that log would wait for ever."""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        package = module.partition(".")[0] if type(module) is str else ""
        if package in _LOCKED or package not in sys.stdlib_module_names:
            return package in _LOCKED
        frame = frame.f_back
    return False


def _running(executor: Executor) -> str:
    """Return the name of the running handler, for a message."""
    if executor.signature is not None:
        return executor.signature.name
    transaction = active()
    if transaction is None or transaction.step is None:
        return "the transaction"
    name = getattr(transaction.step.running, "name", None)
    return f"a handler of {name}" if type(name) is str else "a function of a workflow"


@cache
def _files() -> OpenFiles:
    """Return the open files of this process."""
    return OpenFiles()


@cache
def _data_bytes_at_first() -> int:
    """Return the bytes of private data that this process had when it first asked."""
    return _data_bytes()


def _data_bytes() -> int:
    """Return the bytes of private data that this process has, 0 where that cannot be read."""
    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY)  # a file object costs three times as much
        try:
            return int(os.read(statm, _STATM_BYTES).split()[5]) * resource.getpagesize()
        finally:
            os.close(statm)
    except OSError:
        return resource.RLIM_INFINITY // 4 if resource.RLIM_INFINITY > 0 else 1 << 40


def _end_timers() -> None:
    setitimer(signal.ITIMER_REAL, 0)
    setitimer(signal.ITIMER_PROF, 0)
    # A last signal may be pending: for another thread, or for this one, if a handler has masked it. Later it would reach the
    # handler that was there before, or end the process.
    while take_pending(_SIGNALS, 0) is not None:
        pass
