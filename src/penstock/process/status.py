"""The status of an application: newest epoch, accepted requests, lag and rate.

It is read from the data directory. The driver is not disturbed, and need not run. Nothing is
created.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.process.data_directory import DataDirectory
from penstock.process.epoch_report import EpochReport, took_ms, total_of
from penstock.process.reports import ReportReader

RATE_OVER_S: Final = 5.0
"""The seconds over which the rate is taken by default."""


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """The figures of one moment.

    Attributes:
        epoch: The newest committed epoch; -1 before the first.
        accepted: The number of requests that were ever appended to the log.
        answered: The number of requests whose epoch is committed.
        requests_per_s: The rate of the last seconds.
        epoch_ms: The duration of the newest epoch; None without a report.
        partitions: The number of partitions; 0 before the first epoch.
        rates: The rates of streams and of calls over the last seconds.
    """

    epoch: Epoch = BEFORE_FIRST
    accepted: int = 0
    answered: int = 0
    requests_per_s: float = 0.0
    epoch_ms: float | None = None
    partitions: int = 0
    rates: Rates = NO_RATES

    @property
    def lag(self) -> int:
        """The number of requests that wait for their epoch."""
        return self.accepted - self.answered

    def __str__(self) -> str:
        epoch = "-" if self.epoch == BEFORE_FIRST else str(self.epoch)
        took = "-" if self.epoch_ms is None else f"{self.epoch_ms:.0f}"
        return (
            f"epoch {epoch}  {self.requests_per_s:,.0f} requests/s  lag {self.lag:,}  "
            f"last epoch {took} ms"
        )


def status_in(data: Path, app: str, over_s: float = RATE_OVER_S) -> ApplicationStatus:
    """Return the status of the application in a data directory; zeros before its first start.

    The function opens log and journal, about 1.5 ms, so that it notices a directory that was removed
    and created again.
    """
    directory = DataDirectory(data)
    if not directory.log_path.exists() or directory.app_name is None:  # opening would create them
        return ApplicationStatus()
    with (
        closing(directory.open_log()) as log,
        closing(directory.open_journal_of(app)) as journal,
    ):
        return status_of(data, log, journal, over_s)


def status_of(
    data: Path, log: Log, journal: Journal, over_s: float = RATE_OVER_S
) -> ApplicationStatus:
    """Return the status of an application whose log and journal are open; raises as `status_in`.

    The journal is read first, so that the log holds every request that it has processed.
    """
    last = journal.last()
    ends = {partition: log.end(partition) for partition in log.partitions}
    positions = {} if last is None else last.positions
    reader = ReportReader(data)
    recent = reader.since(wall_clock_us() - int(over_s * 1e6))
    newest = recent[-1] if recent else reader.newest()
    return ApplicationStatus(
        epoch=BEFORE_FIRST if last is None else last.epoch,
        accepted=sum(ends.values()),
        answered=sum(positions.get(partition, Lsn(0)) for partition in ends),
        requests_per_s=sum(report.records for report in recent) / over_s,
        epoch_ms=None if newest is None else took_ms(newest.phases_ms),
        partitions=0 if last is None else last.partitions,
        rates=rates_of(recent, over_s),
    )


def rates_of(reports: Iterable[EpochReport], over_s: float) -> Rates:
    """Return the rates of epochs, without lags.

    Args:
        reports: The reports of the epochs of these seconds.
        over_s: The seconds.
    """
    recent = list(reports)
    events = total_of(report.events for report in recent)
    calls = total_of(report.calls for report in recent)
    return Rates(over_s, _per_second(events, over_s), _per_second(calls, over_s))


def _per_second(counts: dict[str, int], over_s: float) -> dict[str, float]:
    return {name: round(count / over_s, 2) for name, count in sorted(counts.items())}
