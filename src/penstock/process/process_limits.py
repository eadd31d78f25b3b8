"""The limits of a process: its priority, its threads, its garbage, and when Linux or its parent ends it."""

import ctypes
import gc
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_SCORE: Final = "500"
"""Added to the score of this process (0 to 1,000); Linux kills the process with the highest score."""


def offer_this_process() -> None:
    """Let Linux kill this process before others, because another process can start it again."""
    with suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text(_SCORE)


_PR_SET_PDEATHSIG: Final = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # only Linux has it


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let Linux end this process when the thread that forked it ends; end now if that has happened.

    Args:
        parent: The process id of the parent before the fork.
        number: The signal that ends it; it stays when another program takes the place of this one.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


NO_TASKS: Final = "the system starts no further process or thread"
RAISE_TASKS: Final = "Raise the limit of processes and threads (ulimit -u, TasksMax of systemd, or that of the container)."


def is_lack_of_tasks(error: BaseException) -> bool:
    """Say whether the system has refused a process (EAGAIN of `fork`) or a thread."""
    return isinstance(error, BlockingIOError) or (
        isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")
    )


STEPS: Final = 10
"""How much lower the priority is, in steps of `nice`."""

_PASSES: Final = 2
"""A thread that starts meanwhile inherits a priority; a second pass reaches it."""


@contextmanager
def lowered() -> Iterator[None]:
    """Lower the priority of this process and of those below it until the block ends, if it can be raised again."""
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if not _may_raise(usual):
        yield
        return
    _set(usual + STEPS)
    try:
        yield
    finally:
        _set(usual)


def _may_raise(usual: int) -> bool:
    """Say whether a thread that has lowered its priority may raise it again."""
    outcomes: list[bool] = []

    def try_both() -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, usual + 1)
            os.setpriority(os.PRIO_PROCESS, 0, usual)
            outcomes.append(True)

    thread = threading.Thread(target=try_both)
    thread.start()
    thread.join()
    return bool(outcomes)


def _set(nice: int) -> None:
    """Set the priority of each thread of this process and of those below it."""
    import psutil  # noqa: PLC0415 -- the parent of all workers is smaller without it

    for _ in range(_PASSES):
        with suppress(psutil.Error, OSError):
            own = psutil.Process()
            for process in [own, *own.children(recursive=True)]:
                _set_of(process.pid, nice)


def _set_of(pid: int, nice: int) -> None:
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # the thread has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


_log = logging.getLogger(__name__)

OURS: Final = "penstock-"
"""How the names of such threads begin."""

DIED: Final = 70
"""The exit code."""

_ONE_THREAD: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def end_with_threads() -> None:
    """End this process, from now on, when one of its threads dies of an error."""
    threading.excepthook = _end


def _end(told: threading.ExceptHookArgs) -> None:
    name = "" if told.thread is None else told.thread.name
    if told.exc_value is None or not name.startswith(OURS):
        threading.__excepthook__(told)
        return
    try:
        _log.critical(
            "a thread died; the process ends, to be started again",
            extra={"died": name},
            exc_info=told.exc_value,
        )
    finally:
        os._exit(DIED)


def keep_libraries_single() -> None:
    """Let libraries that are loaded from now on start no thread, so that this process can fork."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)


OBJECTS: Final = 50_000
"""New objects between two collections; requests leave few cycles."""


def keep_present_objects() -> None:
    """Collect garbage now; later collections visit only objects that are made from now on.

    Call it again when present objects have become garbage: nothing else collects them if they are in cycles.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS)
