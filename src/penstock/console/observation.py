"""What the console shows of a running application, read from its data directory.

Promises figures of one moment each, without disturbing the driver, which need not run. Log and
journal are opened for each look, about 1.5 ms, so that nothing is held open between two looks, and
a directory that was removed and begun anew is seen as it is.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn
from penstock.errors import OperationalError
from penstock.gateway.view_epoch import view_epoch
from penstock.journal.api import Journal
from penstock.journal.delta import DeltaJournal
from penstock.log.api import Log
from penstock.log.sqlite import SqliteLog
from penstock.runtime import presence
from penstock.runtime.presence import Presence
from penstock.runtime.reports import ReportReader, StoredReport

EPOCHS_MAX: Final = 600
"""Reports that one answer holds."""

RATE_OVER_S: Final = 5.0

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
        epoch, accepted, answered = self._position()
        recent = self._reports.since(now_us - int(RATE_OVER_S * 1e6))
        return Observed(
            app=self._app,
            dev=self._dev,
            now_us=now_us,
            epoch=epoch,
            accepted=accepted,
            answered=answered,
            lag=accepted - answered,
            requests_per_s=sum(one.records for one in recent) / RATE_OVER_S,
            view_epoch=view_epoch(self._data),
            processes=list(self._processes()),
        )

    def epochs(self, after: Epoch) -> list[StoredReport]:
        """Return reports of later epochs, the newest 600 at most.

        Raises:
            OperationalError: The journal cannot be read.
            IntegrityError: It is damaged.
        """
        newest, _, _ = self._position()
        return self._reports.after(max(after, Epoch(newest - EPOCHS_MAX)))[-EPOCHS_MAX:]

    def kill_driver(self) -> Killed:
        """Kill the driver with SIGKILL; that very process, never another one of the same number.

        Raises:
            OperationalError: No driver runs.
        """
        now_us = time.time_ns() // 1_000
        epoch, accepted, answered = self._position()
        for driver in presence.find(self._data, "driver"):
            try:
                process = psutil.Process(driver.pid)
                if driver.alive:  # the number still means what the file says; psutil holds on to it
                    process.kill()
                    return Killed(driver.pid, now_us, epoch, accepted, answered)
            except psutil.NoSuchProcess:
                continue
        raise OperationalError("no driver runs that could be killed; perhaps it starts again now")

    def _position(self) -> tuple[Epoch, int, int]:
        """Return the newest epoch, how many requests the log took, and how many are processed.

        The journal is read first: what it has processed is in the log for certain.
        """
        if not (self._data / "log.sqlite").exists():
            return BEFORE_FIRST, 0, 0
        with self._opened() as (log, journal):
            last = journal.last()
            ends = {one: log.end(one) for one in log.partitions}
        positions = {} if last is None else last.positions
        answered = sum(positions.get(one, Lsn(0)) for one in ends)
        return BEFORE_FIRST if last is None else last.epoch, sum(ends.values()), answered

    @contextmanager
    def _opened(self) -> Iterator[tuple[Log, Journal]]:
        log = SqliteLog(self._data / "log.sqlite")
        try:
            journal = DeltaJournal(self._data / "journal", self._app)
            try:
                yield log, journal
            finally:
                journal.close()
        finally:
            log.close()

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
