"""The console's view of a running application, read from its data directory.

The figures of an answer are of the same moment. The driver is not disturbed, and need not run. No file
stays open between two answers.
"""

from typing import Final

import msgspec
import psutil

from penstock.base.ids import Epoch
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.errors import OperationalError
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.orders.paused_workflows import workflow_lags
from penstock.process import presence
from penstock.process.clock_jumps import ClockJumps, clock_jumps
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.process.generator_progress import GeneratorProgress, read_progress
from penstock.process.incidents import Incident, IncidentLog
from penstock.process.reports import ReportReader
from penstock.process.running import RunningProcess, running_processes
from penstock.process.status import status_in
from penstock.process.view_standing import ViewStanding, view_standings
from penstock.sql.view_client import view_epoch

EPOCHS_MAX: Final = 600
"""The largest number of epoch reports in an answer."""

INCIDENTS_MAX: Final = 20
"""The largest number of incidents in an answer."""


class ObservedProcess(msgspec.Struct, frozen=True):
    """A process of the application, as `RunningProcess`; its memory includes that of its children."""

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
        app: The application's name.
        dev: Whether the page may kill the driver, as under `penstock dev`.
        now_us: The moment by this machine's clock, in microseconds since the Unix epoch.
        epoch: The newest committed epoch; -1 before the first.
        accepted: The number of requests that are durable in the log.
        answered: The number of requests whose epoch is committed.
        lag: The number of requests that wait for their epoch.
        requests_per_s: The rate over the last seconds.
        view_epoch: The epoch of SQL results; None if no view runs.
        processes: The running processes, in the order of their roles.
        incidents: The newest requests that were set aside, the newest first.
        clock_jumps: The jumps of the machine's clock that processes have noted.
        clock_text: The same in words; empty without a jump.
        generators: The progress of each generator that has run.
        rates: The rates of streams and of calls over the last seconds, and the lag of each workflow.
        views: How each view stands.
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
    processes: list[ObservedProcess]
    incidents: list[Incident]
    generators: list[GeneratorProgress]
    rates: Rates = NO_RATES
    clock_jumps: ClockJumps = ClockJumps()
    clock_text: str = ""
    views: list[ViewStanding] = []


class Killed(msgspec.Struct, frozen=True):
    """The driver that was killed, and how the application stood right before."""

    pid: int
    now_us: int
    epoch: Epoch
    accepted: int
    answered: int


class Observation:
    """Looks at one application's data directory."""

    def __init__(self, app: App, config: Config, *, dev: bool) -> None:
        """Look at the data directory of a configuration, which need not exist yet."""
        self._application = app
        self._config = config
        self._app, self._data = app.name, config.data
        self._dev = dev
        self._reports = ReportReader(self._data)

    def now(self) -> Observed:
        """Return how the application stands.

        Raises:
            OperationalError: Log or journal cannot be read.
            IntegrityError: They are damaged.
        """
        now_us = wall_clock_us()
        standing = status_in(self._data, self._app)
        jumps = clock_jumps(self._data)
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
            processes=[_described(process) for process in running_processes(self._data)],
            incidents=IncidentLog(self._data).newest(INCIDENTS_MAX),
            clock_jumps=jumps,
            clock_text=str(jumps) if jumps.count else "",
            generators=read_progress(self._data),
            views=view_standings(self._data, standing.epoch),
            rates=msgspec.structs.replace(
                standing.rates, lags=workflow_lags(self._application, self._config)
            ),
        )

    def epochs(self, after: Epoch) -> list[EpochReport]:
        """Return reports of later epochs, the newest 600 at most."""
        newest = status_in(self._data, self._app).epoch
        return self._reports.after(max(after, Epoch(newest - EPOCHS_MAX)))[-EPOCHS_MAX:]

    def kill_driver(self) -> Killed:
        """Kill the driver with SIGKILL; that very process, never another one of the same number."""
        now_us = wall_clock_us()
        standing = status_in(self._data, self._app)
        for driver in presence.find(self._data, "driver"):
            try:
                process = psutil.Process(driver.pid)
                if (
                    driver.alive
                ):  # the process id has not been reused; psutil checks this again at the kill
                    process.kill()
                    return Killed(
                        driver.pid, now_us, standing.epoch, standing.accepted, standing.answered
                    )
            except psutil.NoSuchProcess:
                continue
        raise OperationalError("no driver runs that could be killed; perhaps it starts again now")


def _described(process: RunningProcess) -> ObservedProcess:
    return ObservedProcess(
        pid=process.pid,
        role=process.name,
        started_s=process.started_s,
        uptime_s=process.uptime_s,
        memory_bytes=process.family_bytes,
        state=process.state,
        details={name: value for name, value in process.details.items() if name != "socket"},
    )
