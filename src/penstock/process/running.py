"""The running processes of an application: their memory, their state and their children."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from penstock.process import presence

RUNNING: Final = "running"
_STATES: Final = {
    psutil.STATUS_STOPPED: "stopped",
    psutil.STATUS_TRACING_STOP: "held by a debugger",
    psutil.STATUS_ZOMBIE: "ended",
}


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process at one moment.

    Attributes:
        name: Its role, one of `presence.ROLES`; the name of the program for a child.
        started_s: The time of its start, seconds since the Unix epoch.
        memory_bytes: Its own resident memory; shared pages count for each process.
        state: `running`, or the reason why it does not run.
        details: The facts that it has announced.
        children: All processes below it; empty for the supervisor, whose children have roles.
    """

    name: str
    pid: int
    started_s: float
    memory_bytes: int
    state: str
    details: dict[str, str | int]
    children: tuple["RunningProcess", ...] = ()

    @property
    def family_bytes(self) -> int:
        """The resident memory of the process and its children."""
        return self.memory_bytes + sum(child.memory_bytes for child in self.children)

    @property
    def uptime_s(self) -> float:
        """The seconds since its start."""
        return max(0.0, time.time() - self.started_s)


def running_processes(data: Path) -> list[RunningProcess]:
    """Return the processes of the application in a data directory, in the order of their roles.

    A process that ends meanwhile is left out.
    """
    processes = []
    for role in presence.ROLES:
        for announced in presence.find(data, role):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(announced.pid)
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
    name: str,
    details: dict[str, str | int],
    children: tuple[RunningProcess, ...],
) -> RunningProcess:
    return RunningProcess(
        name=name,
        pid=process.pid,
        started_s=process.create_time(),
        memory_bytes=process.memory_info().rss,
        state=_STATES.get(process.status(), RUNNING),
        details=details,
        children=children,
    )
