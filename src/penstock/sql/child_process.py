"""`ChildProcess`: work that is done in a process of its own, which the system bounds and ends.

The process is a fork, so it has the memory of its parent (a DuckDB with its tables, a
journal, an application) and can change none of it. Promises that it ends when its time is up, however
its code behaves: the kernel's alarm ends it without anybody's help, its parent kills it, and it dies
with its parent; that it takes no more memory and processor time than it may; and that no zombie is
left. Its parent keeps the locks that the work will need while it forks, because no other thread lives
on in the child.
"""

import ctypes
import gc
import os
import resource
import select
import signal
import stat
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NoReturn

import psutil

_GRACE_S: Final = 0.2
"""The kernel ends a child so long after its parent should have."""

OUT_OF_MEMORY: Final = 3
"""How a child exits that has no memory left to say so."""

_CHUNK: Final = 1 << 20
_STATM: Final = 5
"""The field of `/proc/self/statm` that counts the pages that RLIMIT_DATA is about."""

_PR_SET_PDEATHSIG: Final = 1
_HELD_BACK: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask the parent to stop; questions that run are finished."""

_prctl = getattr(ctypes.CDLL(None), "prctl", None)
Work = Callable[[IO[bytes]], None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a child.

    Attributes:
        deadline: When it must have ended, as `time.monotonic` counts.
        memory_bytes: Memory beyond that of its parent when it was forked.
        threads: Each of which may use the processor until the deadline.
    """

    deadline: float
    memory_bytes: int
    threads: int


class ChildProcess:
    """The parent's side of a process that does one piece of work and writes the outcome."""

    def __init__(self, pid: int, source: int) -> None:
        self.pid = pid
        self._source = source
        self._ended: int | None = None

    def copy(self, target: IO[bytes], until: float) -> bool:
        """Copy its output until it has ended; False if the time is up before."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        while True:
            left_s = until - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1_000):
                return False
            data = os.read(self._source, _CHUNK)
            if not data:
                return True
            target.write(data)

    def end(self) -> int:
        """Kill it if it has not ended, and return its exit code; below 0: the signal, negated."""
        if self._ended is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._ended = self._reaped()
        return self._ended

    def joined(self) -> int:
        """Return the exit code as `end` does, but let the child end by itself: its pipe is closed already."""
        if self._ended is None:
            self._ended = self._reaped()
        return self._ended

    def is_alive(self) -> bool:
        """Say whether it has not ended yet."""
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._source)
                self._ended = os.waitstatus_to_exitcode(status)
        return self._ended is None

    def busy_s(self) -> float:
        """Return for how long it has used the processor."""
        with suppress(psutil.Error):
            found = psutil.Process(self.pid).cpu_times()
            return float(found.user + found.system)
        return 0.0

    def yield_to_others(self, nice: int) -> None:
        """Let other processes have the processor first, from now on."""
        with suppress(OSError):
            for one in Path(f"/proc/{self.pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(one.name), nice)

    def _reaped(self) -> int:
        os.close(self._source)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def start(
    work: Work,
    bounds: Bounds | None,
    still: AbstractContextManager[object],
    closed: Sequence[int] = (),
) -> ChildProcess:
    """Fork, and let the child do the work.

    Args:
        work: A function that writes its outcome to the pipe that it is given.
        bounds: Its limits; None if the work calls `keep_to` itself.
        still: Keeps other threads from everything that the work uses, while the process forks.
        closed: Descriptors that the child closes.

    Raises:
        OSError: The system has no room for another process.
    """
    parent = os.getpid()
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        with still:
            source, target = os.pipe()
            try:
                pid = _fork()
            except OSError:
                os.close(source)
                os.close(target)
                raise
            if pid:  # inside of `still`: another child would keep the pipe open
                os.close(target)
        if not pid:
            _do(work, target, bounds, parent, closed)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return ChildProcess(pid, source)


def _fork() -> int:
    with warnings.catch_warnings():  # of other threads, whose locks `still` keeps
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _do(
    work: Work, target: int, bounds: Bounds | None, parent: int, closed: Sequence[int]
) -> NoReturn:
    try:
        _leave(parent, closed)
        if bounds is not None:
            keep_to(bounds)
        with open(target, "wb") as pipe:
            work(pipe)
        os._exit(0)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BaseException:
        traceback.print_exc()
        raise
    finally:  # nothing of the parent's may be run to its end here
        os._exit(1)


def _leave(parent: int, closed: Sequence[int]) -> None:
    """Give up the files, signals and threads of the parent."""
    gc.disable()  # a collection would copy every page, and close files of the parent
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    for one in (*_sockets(), *closed):
        os.close(one)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    _limit(resource.RLIMIT_CORE, 0)


def keep_to(bounds: Bounds) -> None:
    """Let the system bound this process, which is a child, from now on."""
    left_s = max(0.001, bounds.deadline - time.monotonic()) + _GRACE_S
    signal.setitimer(signal.ITIMER_REAL, left_s)
    _limit(resource.RLIMIT_CPU, int(time.process_time() + left_s * bounds.threads) + 1)
    with suppress(OSError):  # not Linux, where the kernel counts and bounds it
        pages = int(Path("/proc/self/statm").read_text().split()[_STATM])
        _limit(resource.RLIMIT_DATA, pages * resource.getpagesize() + bounds.memory_bytes)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, hard if kind == resource.RLIMIT_CPU else most))


def _sockets() -> list[int]:
    """Return the open sockets, so that a client sees when the parent closes its socket."""
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 -- a fifth of the time
        with suppress(OSError):  # the directory's own
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
    return found
