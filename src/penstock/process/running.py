"""The running processes of an application: their memory, their state and their children."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import psutil

from penstock.process import presence

RUNNING: Final = "running"
_STATES: Final = {
    psutil.STATUS_STOPPED: "stopped",
    psutil.STATUS_TRACING_STOP: "held by a debugger",
    psutil.STATUS_ZOMBIE: "ended",
}


class RunningProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process at one moment.

    Attributes:
        role: One of `presence.ROLES`; the name of the program for a child.
        started_s: The time of its start, seconds since the Unix epoch.
        uptime_s: The seconds since its start.
        memory_bytes: Its resident memory and that of its children; shared pages count for each process.
        state: `running`, or the reason why it does not run.
        details: The facts that it has announced.
        children: All processes below it; empty for the supervisor, whose children have roles.
    """

    pid: int
    role: str
    started_s: float
    uptime_s: float
    memory_bytes: int
    state: str
    details: dict[str, str | int]
    children: tuple["RunningProcess", ...] = ()

    @property
    def own_bytes(self) -> int:
        """The resident memory without that of its children."""
        return self.memory_bytes - sum(child.memory_bytes for child in self.children)


def running_processes(data: Path) -> list[RunningProcess]:
    """Return the processes of the application in a data directory, in the order of their roles.

    A process that ends meanwhile is left out.
    """
    processes = []
    for role in presence.ROLES:
        for announced in presence.find(data, role):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(announced.pid)
                # The supervisor's children announce themselves, so they would be counted twice.
                below = [] if role == "supervisor" else process.children(recursive=True)
                processes.append(
                    _described(process, role, announced.details, tuple(_children(below)))
                )
    return processes


def _children(processes: list[psutil.Process]) -> Iterator[RunningProcess]:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            yield _described(process, process.name(), {}, ())


def _described(
    process: psutil.Process,
    role: str,
    details: dict[str, str | int],
    children: tuple[RunningProcess, ...],
) -> RunningProcess:
    started_s = process.create_time()
    return RunningProcess(
        pid=process.pid,
        role=role,
        started_s=started_s,
        uptime_s=max(0.0, time.time() - started_s),
        memory_bytes=process.memory_info().rss + sum(child.memory_bytes for child in children),
        state=_STATES.get(process.status(), RUNNING),
        details=details,
        children=children,
    )
