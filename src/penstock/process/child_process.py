"""Work in a forked child process, which the operating system bounds and ends.

A fork has its parent's memory (a DuckDB with its tables, a journal, an application) and cannot change
it. The child ends when its time is up, whatever its code does: the kernel's alarm ends it, its parent
kills it, and it dies with its parent. It takes at most the allowed memory and processor time, and
leaves no zombie. The parent holds all locks that the work needs during the fork, because other threads
do not exist in the child.
"""

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
from pathlib import Path
from typing import IO, Final, NoReturn

import msgspec
import psutil

from penstock.process.process_limits import end_with_parent

_GRACE_S: Final = 0.2
"""How long after the deadline the kernel ends a child that its parent has not ended."""

OUT_OF_MEMORY: Final = 3
"""The exit code of a child that is out of memory."""

_CHUNK: Final = 1 << 20
_LOOK_S: Final = 0.001
_STATM: Final = 5
"""The field of `/proc/self/statm` with the number of pages that RLIMIT_DATA limits."""

_HELD_BACK: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals that stop the parent after the running queries."""

Work = Callable[[IO[bytes]], None]


class Bounds(msgspec.Struct, frozen=True):
    """The limits of a child.

    Attributes:
        deadline: When the child must have ended, in seconds of `time.monotonic`.
        memory_bytes: Memory beyond its parent's memory at the fork.
        threads: How many threads may use the processor until the deadline.
    """

    deadline: float
    memory_bytes: int
    threads: int


class ChildProcess:
    """The parent's handle of a child, which does one piece of work and writes its output to a pipe."""

    def __init__(self, pid: int, source: int) -> None:
        self.pid = pid
        self._source = source
        self._ended: int | None = None

    def copy(self, target: IO[bytes], until: float) -> bool:
        """Copy the output; return whether the child has closed its pipe before `until`."""
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
        """Kill the child if it still runs; return its exit code, or the negated signal number."""
        if self._ended is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._ended = self._reaped()
        return self._ended

    def joined(self) -> int:
        """Wait until a child that has closed its pipe ends; return as `end` does."""
        if self._ended is None:
            self._ended = self._reaped()
        return self._ended

    def has_ended(self, until: float) -> bool:
        """Wait for the end of a child that may go on without its pipe; return whether it has ended before `until`."""
        while self.is_alive():
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)
        return True

    def is_alive(self) -> bool:
        """Return whether the child still runs."""
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._source)
                self._ended = os.waitstatus_to_exitcode(status)
        return self._ended is None

    def busy_s(self) -> float:
        """Return the processor time of the child in seconds."""
        with suppress(psutil.Error):
            times = psutil.Process(self.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def yield_to_others(self, nice: int) -> None:
        """Set the nice value of all threads of the child."""
        with suppress(OSError):
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(task.name), nice)

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
    """Fork a child that does some work.

    Args:
        work: Writes its output to the pipe that it receives.
        bounds: The limits of the child; None if `work` calls `keep_to` itself.
        still: A context for the fork, in which no other thread changes the data of `work`.
        closed: Descriptors that the child closes.

    Raises:
        OSError: The system cannot create a process.
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
            if pid:  # inside `still`, so that no other child inherits the pipe
                os.close(target)
        if not pid:
            _do(work, target, bounds, parent, closed)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return ChildProcess(pid, source)


def _fork() -> int:
    with (
        warnings.catch_warnings()
    ):  # the warning is about locks of other threads, which `still` holds
        warnings.simplefilter("ignore", DeprecationWarning)
        # A collection in the child, before `_leave`, would end connections of the parent.
        collects = gc.isenabled()
        gc.disable()
        pid = os.fork()
        if pid and collects:
            gc.enable()
        return pid


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
    finally:  # the child must not run the parent's cleanup
        os._exit(1)


def _leave(parent: int, closed: Sequence[int]) -> None:
    """Separate the child from the parent's sockets, signals and collector."""
    gc.disable()  # a collection would copy every page, and close files of the parent
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    end_with_parent(parent)
    for descriptor in (*_sockets(), *closed):
        os.close(descriptor)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    _limit(resource.RLIMIT_CORE, 0)


def keep_to(bounds: Bounds) -> None:
    """Set the limits of this process, which is a child."""
    left_s = max(0.001, bounds.deadline - time.monotonic()) + _GRACE_S
    signal.setitimer(signal.ITIMER_REAL, left_s)
    _limit(resource.RLIMIT_CPU, int(time.process_time() + left_s * bounds.threads) + 1)
    with suppress(OSError):  # only Linux counts and limits this
        pages = int(Path("/proc/self/statm").read_text().split()[_STATM])
        _limit(resource.RLIMIT_DATA, pages * resource.getpagesize() + bounds.memory_bytes)


def _limit(resource_number: int, most: int) -> None:
    _, hard = resource.getrlimit(resource_number)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(
        resource_number, (most, hard if resource_number == resource.RLIMIT_CPU else most)
    )


def _sockets() -> list[int]:
    """Return the open sockets; a client must see when the parent closes its socket."""
    sockets = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 -- a fifth of the time
        with suppress(OSError):  # the descriptor of the directory itself
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                sockets.append(int(name))
    return sockets
