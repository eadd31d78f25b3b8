"""What the console shows of a running application, read from its data directory.

Promises figures of one moment each, without disturbing the driver, which need not run. Nothing is
held open between two looks.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import psutil

from penstock.base.ids import Epoch
from penstock.errors import OperationalError
from penstock.process import presence
from penstock.process.incidents import Incident, IncidentLog
from penstock.process.presence import Presence
from penstock.process.reports import ReportReader, StoredReport
from penstock.process.status import status_in
from penstock.sql.view_client import view_epoch

EPOCHS_MAX: Final = 600
"""Reports that one answer holds."""

INCIDENTS_MAX: Final = 20
"""Incidents that one answer holds."""

_STATES: Final = {
    psutil.STATUS_STOPPED: "stopped",
    psutil.STATUS_TRACING_STOP: "held by a debugger",
    psutil.STATUS_ZOMBIE: "ended",
}


class Process(msgspec.Struct, frozen=True):
    """One process of the application; `state` is `running`, or why it does nothing."""

    pid: int
    role: str
    started_s: float
    uptime_s: float
    memory_bytes: int
    state: str
    details: dict[str, str | int]


class Observed(msgspec.Struct, frozen=True):
    """The application at one moment.

    Attributes:
        app: Its name.
        dev: Whether it runs for a developer, who may kill its driver.
        now_us: That moment by this machine's clock, microseconds since the Unix epoch.
        epoch: The newest committed one; -1 before the first.
        accepted: Requests that are durable in the log.
        answered: Those whose epoch is committed.
        lag: Those that wait for their epoch.
        requests_per_s: What the epochs of the last seconds have processed.
        view_epoch: The epoch that SQL answers of; None where no view runs.
        processes: All that say they are there, in the order of their roles.
        incidents: The newest requests that were set aside, the newest first.
    """

    app: str
    dev: bool
    now_us: int
    epoch: Epoch
    accepted: int
    answered: int
    lag: int
    requests_per_s: float
    view_epoch: Epoch | None
    processes: list[Process]
    incidents: list[Incident]


class Killed(msgspec.Struct, frozen=True):
    """The driver that was killed, and how the application stood right before."""

    pid: int
    now_us: int
    epoch: Epoch
    accepted: int
    answered: int


class Observation:
    """Looks at one application's data directory."""

    def __init__(self, app: str, data: Path, *, dev: bool) -> None:
        """Look at a directory, which need not exist yet."""
        self._app = app
        self._data = data
        self._dev = dev
        self._reports = ReportReader(data)

    def now(self) -> Observed:
        """Return how the application stands.

        Raises:
            OperationalError: Log or journal cannot be read.
            IntegrityError: They are damaged.
        """
        now_us = time.time_ns() // 1_000
        standing = status_in(self._data, self._app)
        return Observed(
            app=self._app,
            dev=self._dev,
            now_us=now_us,
            epoch=standing.epoch,
            accepted=standing.accepted,
            answered=standing.answered,
            lag=standing.lag,
            requests_per_s=standing.requests_per_s,
            view_epoch=view_epoch(self._data),
            processes=list(self._processes()),
            incidents=IncidentLog(self._data).newest(INCIDENTS_MAX),
        )

    def epochs(self, after: Epoch) -> list[StoredReport]:
        """Return reports of later epochs, the newest 600 at most.

        Raises:
            OperationalError: The journal cannot be read.
            IntegrityError: It is damaged.
        """
        newest = status_in(self._data, self._app).epoch
        return self._reports.after(max(after, Epoch(newest - EPOCHS_MAX)))[-EPOCHS_MAX:]

    def kill_driver(self) -> Killed:
        """Kill the driver with SIGKILL; that very process, never another one of the same number.

        Raises:
            OperationalError: No driver runs.
        """
        now_us = time.time_ns() // 1_000
        standing = status_in(self._data, self._app)
        for driver in presence.find(self._data, "driver"):
            try:
                process = psutil.Process(driver.pid)
                if driver.alive:  # the number still means what the file says; psutil holds on to it
                    process.kill()
                    return Killed(
                        driver.pid, now_us, standing.epoch, standing.accepted, standing.answered
                    )
            except psutil.NoSuchProcess:
                continue
        raise OperationalError("no driver runs that could be killed; perhaps it starts again now")

    def _processes(self) -> Iterator[Process]:
        for role in presence.ROLES:
            for one in presence.find(self._data, role):
                try:
                    yield _described(one)
                except psutil.Error:  # it ended meanwhile
                    continue


def _described(one: Presence) -> Process:
    process = psutil.Process(one.pid)
    return Process(
        pid=one.pid,
        role=one.role,
        started_s=one.started_s,
        uptime_s=max(0.0, time.time() - one.started_s),
        memory_bytes=_memory_of(process, alone=one.role == "supervisor"),
        state=_STATES.get(process.status(), "running"),
        details={name: value for name, value in one.details.items() if name != "socket"},
    )


def _memory_of(process: psutil.Process, *, alone: bool) -> int:
    """Return the resident memory of a process, with that of those it started unless `alone`."""
    size: int = process.memory_info().rss
    for child in [] if alone else process.children(recursive=True):
        try:
            size += child.memory_info().rss
        except psutil.Error:
            continue
    return size
