"""The console's view of a running application, read from its data directory.

The figures of an answer are of the same moment. The driver is not disturbed, and need not run. No file
stays open between two answers.
"""

from typing import Final

import msgspec
import psutil

from penstock.base.ids import Epoch
from penstock.errors import OperationalError
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.orders.paused_workflows import workflow_lags
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.process.reports import ReportReader
from penstock.process.running import RunningProcess
from penstock.process.status import ApplicationStatus, status_in, survey
from penstock.sql_view.view_client import view_epoch

EPOCHS_MAX: Final = 600
"""The largest number of epoch reports in an answer."""

INCIDENTS_MAX: Final = 20
"""The largest number of incidents in an answer."""


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

    def now(self) -> ApplicationStatus:
        """Return how the application stands.

        Raises:
            OperationalError: Log or journal cannot be read.
            IntegrityError: They are damaged.
        """
        seen = survey(self._data, self._app, view_epoch(self._data))
        lags = workflow_lags(self._application, self._config)
        return msgspec.structs.replace(
            seen,
            dev=self._dev,
            incidents=seen.incidents[:INCIDENTS_MAX],
            processes=[_without_socket(process) for process in seen.processes],
            rates=msgspec.structs.replace(seen.rates, lags=lags),
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


def _without_socket(process: RunningProcess) -> RunningProcess:
    # A path of this machine is of no use to a browser.
    details = {name: value for name, value in process.details.items() if name != "socket"}
    return msgspec.structs.replace(process, details=details)
