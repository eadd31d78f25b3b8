"""Limits on a running handler: time, memory and depth, without a cost for each transaction.

One timer ticks for a whole run of transactions; a handler that is still the same after enough
ticks is interrupted. A handler that never returns to the interpreter (a loop in C) cannot be
interrupted: then the kernel ends the process, and its supervisor (Spark) starts another. Only a
running process sees ticks, and the kernel counts processor time, so a process that was stopped
blames no handler when it wakes up. The watchdog of the Spark runtime ends a handler that waits in C
without end.
"""

import faulthandler
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from signal import setitimer  # this function, because handlers may not call the one of the module
from types import FrameType
from typing import Final, Self, TypeVar

from penstock.engine.execute import Executor, Limits
from penstock.model.interruption import Interrupted
from penstock.process.tampering import OpenFiles, ProcessSettings, refuse_changes

T = TypeVar("T")

TICKS: Final = 4
RENEW_EVERY: Final = 32
"""Transactions between two looks at the memory that the process has by now."""

CHECK_EVERY: Final = 1_024
"""Transactions between two looks at all names and settings that a handler may have changed."""

_SIGNALS: Final = (signal.SIGALRM, signal.SIGPROF)
"""The signals of the time limits."""

_STATM_BYTES: Final = 256

STUCK: Final = 3
"""A handler that cannot be interrupted ends the process after this many times its limit of
processor time."""


class TamperedWith(RuntimeError):
    """A handler has changed its process while several transactions ran, or in a way that cannot be undone; none of them counts."""


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
    """

    def __init__(
        self,
        executor: Executor,
        limits: Limits,
        *,
        batched: bool = False,
        every: int = CHECK_EVERY,
    ) -> None:
        self._executor = executor
        self._limits = limits
        self._batched = batched
        self._every = every
        self._unchecked = 0  # transactions since the last look
        self._restored = ""
        self._seen = -1
        self._strikes = 0
        self._files = _files()
        self._timed = threading.current_thread() is threading.main_thread()
        self._process: ProcessSettings | None = None

    def __enter__(self) -> Self:
        refuse_changes()
        self._executor.isolation.begin()
        if self._timed:
            self._process = ProcessSettings()
            self._memory_before = resource.getrlimit(resource.RLIMIT_DATA)
            self._limit_memory()
            self._mask_before = signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            self._handler_before = signal.signal(signal.SIGALRM, self._tick)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._stop)
            self._tick_s = self._limits.time_ms / 1_000 / TICKS
            self._stuck_s = max(1.0, STUCK * self._limits.time_ms / 1_000)
            if sys.__stderr__ is not None:  # show where it was, then die as the signal wants
                faulthandler.register(signal.SIGPROF, file=sys.__stderr__, chain=True)
            setitimer(signal.ITIMER_PROF, self._stuck_s)
            self._timer_before = setitimer(signal.ITIMER_REAL, self._tick_s, self._tick_s)
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self._timed:
            setitimer(signal.ITIMER_REAL, 0)
            setitimer(signal.ITIMER_PROF, 0)
        self._executor.isolation.end()  # first, because what follows uses the names
        if self._timed:
            faulthandler.unregister(signal.SIGPROF)
            signal.signal(signal.SIGALRM, self._handler_before)
            if signal.getsignal(signal.SIGINT) == self._stop:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            setitimer(signal.ITIMER_REAL, *self._timer_before)  # whose it was before
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
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
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if signal.getsignal(signal.SIGALRM) != self._tick:
            signal.signal(signal.SIGALRM, self._tick)
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

    def _tick(self, _signal: int, _frame: FrameType | None) -> None:
        executor = self._executor
        if not executor.running or executor.runs != self._seen:
            self._seen = executor.runs
            self._strikes = 0
            setitimer(signal.ITIMER_PROF, self._stuck_s)
            return
        self._strikes += 1
        if self._strikes >= TICKS:
            executor.interrupted = f"ran longer than time_ms = {self._limits.time_ms}"
            raise Interrupted(executor.interrupted)


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
