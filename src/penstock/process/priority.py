"""A lower priority for some work of this process and of the processes below it, if it can be raised again.

Linux has a priority for each thread. A thread may always lower its own, but only a process with a privilege may raise it
again. So a thread of its own tries both first, and without the privilege nothing changes.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

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
    for _ in range(_PASSES):
        with suppress(psutil.Error, OSError):
            own = psutil.Process()
            for process in [own, *own.children(recursive=True)]:
                _set_of(process.pid, nice)


def _set_of(pid: int, nice: int) -> None:
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # the thread has ended
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
