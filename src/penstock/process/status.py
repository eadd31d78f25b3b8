"""The status of an application: newest epoch, accepted requests, lag and rate, and its processes.

The command `status`, the console, the metrics and the line of `penstock run` show this one status. It is read from the data directory. The driver is not disturbed, and need not run. Nothing is
created.
"""

from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn
from penstock.dataflow.rates import NO_RATES, Rates
from penstock.errors import JournalUnavailable
from penstock.files.roots import shared_root
from penstock.journal.api import Journal, told_commit
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.process.capture_standing import CaptureStanding, capture_standings
from penstock.process.clock_jumps import ClockJumps, clock_jumps
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import lease_standing
from penstock.process.effect_files import EffectsReport, read_effects_report
from penstock.process.epoch_report import EpochReport, took_ms, total_of
from penstock.process.generator_progress import GeneratorProgress, read_progress
from penstock.process.incidents import Incident, IncidentLog
from penstock.process.lease import LeaseStanding
from penstock.process.presence import RunningProcess, running_processes
from penstock.process.reports import ReportReader
from penstock.process.view_standing import ViewStanding, view_standings

RATE_OVER_S: Final = 5.0
"""The seconds over which the rate is taken by default."""


class ApplicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The application at one moment. `status_of` gives the figures alone, `survey` also the processes.

    Attributes:
        app: The application's name; empty before its first start.
        dev: Whether the page of the console may kill the driver, as under `penstock dev`.
        now_us: The moment by this machine's clock, in microseconds since the Unix epoch.
        epoch: The newest committed epoch; -1 before the first.
        accepted: The position behind the newest request of the log; it jumps when the log moves to another host.
        answered: The position behind the newest request whose epoch is committed.
        lag: The number of requests that wait for their epoch.
        requests_per_s: The rate of the last seconds.
        epoch_ms: The duration of the newest epoch; None without a report.
        partitions: The number of partitions; 0 before the first epoch.
        rates: The rates of streams and of calls over the last seconds; with the lag of each workflow in the console.
        view_epoch: The epoch of SQL results; None if no view runs.
        processes: The running processes, in the order of their roles.
        incidents: The newest requests that were set aside, the newest first.
        generators: The progress of each generator that has run.
        clock_jumps: The jumps of the machine's clock that processes have noted.
        clock_text: The same in words; empty without a jump.
        lease: How the lease stands; None without an object store, or if the store does not answer.
        lease_text: The same in words.
        log_text: Where the log lies; empty before the first start, or if the object store does not answer.
        views: How each view stands.
        effects: The report of the process that calls effects; None if none has run here.
        captures: How each stream of changes stands.
    """

    app: str = ""
    dev: bool = False
    now_us: int = 0
    epoch: Epoch = BEFORE_FIRST
    accepted: int = 0
    answered: int = 0
    lag: int = 0
    requests_per_s: float = 0.0
    epoch_ms: float | None = None
    partitions: int = 0
    rates: Rates = NO_RATES
    view_epoch: Epoch | None = None
    processes: list[RunningProcess] = []
    incidents: list[Incident] = []
    generators: list[GeneratorProgress] = []
    clock_jumps: ClockJumps = ClockJumps()
    clock_text: str = ""
    lease: LeaseStanding | None = None
    lease_text: str = ""
    log_text: str = ""
    views: list[ViewStanding] = []
    effects: EffectsReport | None = None
    captures: list[CaptureStanding] = []

    def __str__(self) -> str:
        epoch = "-" if self.epoch == BEFORE_FIRST else str(self.epoch)
        took = "-" if self.epoch_ms is None else f"{self.epoch_ms:.0f}"
        return (
            f"epoch {epoch}  {self.requests_per_s:,.0f} requests/s  lag {self.lag:,}  "
            f"last epoch {took} ms"
        )


def status_in(data: Path, app: str, over_s: float = RATE_OVER_S) -> ApplicationStatus:
    """Return the status of the application in a data directory; zeros before its first start."""
    directory = DataDirectory(data)
    if not directory.log_path.exists() or directory.app_name is None:  # opening would create them
        return ApplicationStatus()
    # They are opened each time, in about 1.5 ms: the directory may have been removed and created again.
    with (
        closing(directory.open_log()) as log,
        closing(directory.open_journal_of(app)) as journal,
    ):
        return status_of(data, log, journal, over_s)


def status_of(
    data: Path, log: Log, journal: Journal, over_s: float = RATE_OVER_S
) -> ApplicationStatus:
    """Return the status of an application whose log and journal are open; raises as `status_in`."""
    # The journal is read first: the log then has every request that it has processed, and no lag is negative.
    last = told_commit(journal, shared_root(data))
    ends = {partition: log.end(partition) for partition in log.partitions}
    positions = {} if last is None else last.positions
    accepted = sum(ends.values())
    answered = sum(positions.get(partition, Lsn(0)) for partition in ends)
    reader = ReportReader(data)
    recent = reader.since(wall_clock_us() - int(over_s * 1e6))
    # Of an application that rests, the last epoch is older than the seconds of the rate.
    newest = recent[-1] if recent else reader.newest()
    return ApplicationStatus(
        epoch=BEFORE_FIRST if last is None else last.epoch,
        # The copy of a log in Kafka may be behind the journal on a host whose processes append nothing.
        accepted=max(accepted, answered),
        answered=answered,
        lag=max(0, accepted - answered),
        requests_per_s=sum(report.records for report in recent) / over_s,
        epoch_ms=None if newest is None else took_ms(newest.phases_ms),
        partitions=0 if last is None else last.partitions,
        rates=rates_of(recent, over_s),
    )


def survey(
    data: Path, app: str, view_epoch: Epoch | None, over_s: float = RATE_OVER_S
) -> ApplicationStatus:
    """Return the figures, the processes, and their notes; raises as `status_in`.

    Args:
        app: The application's name; empty before its first start.
        view_epoch: The epoch of SQL results, which the caller asks the view for.
    """
    now_us = wall_clock_us()  # before the figures: a page draws them at this time
    jumps = clock_jumps(data)
    lease, log_text = None, ""
    with suppress(JournalUnavailable):
        lease = lease_standing(data)
        log_text = DataDirectory(data).log_text() if app else ""
    figures = status_in(data, app, over_s) if app else ApplicationStatus()
    return msgspec.structs.replace(
        figures,
        app=app,
        now_us=now_us,
        view_epoch=view_epoch,
        processes=running_processes(data),
        incidents=IncidentLog(data).newest(),
        generators=read_progress(data),
        clock_jumps=jumps,
        clock_text=str(jumps) if jumps.count else "",
        lease=lease,
        lease_text="" if lease is None else str(lease),
        log_text=log_text,
        views=view_standings(data, figures.epoch),
        effects=read_effects_report(data),
        captures=capture_standings(data),
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
