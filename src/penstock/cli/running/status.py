"""`penstock status`: the processes of an application, and its figures."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from penstock.base.ids import BEFORE_FIRST
from penstock.cli.options import DIRECTORY, NOWHERE, AppOptions, JsonOption
from penstock.cli.output import counted, folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.dataflow.rates import Rates
from penstock.errors import JournalUnavailable
from penstock.files.layout import RUN
from penstock.process.capture_standing import CaptureStanding
from penstock.process.clock_jumps import ClockJumps
from penstock.process.disk_space import full_text
from penstock.process.effect_files import EffectsReport
from penstock.process.generator_progress import GeneratorProgress
from penstock.process.hosts import HostList, HostStanding, host_standings
from penstock.process.incidents import FILE_NAME, Incident
from penstock.process.lease import LeaseStanding
from penstock.process.view_files import ViewState
from penstock.process.view_standing import ViewStanding

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.process.presence import RunningProcess
    from penstock.process.status import ApplicationStatus

HELP: Final = """Show the processes of an application, its newest epoch, lag and rate.

Exit code 1: no driver runs.

\b
Examples:
  penstock status examples/shop
  penstock status --data /var/lib/shop
  penstock status --data /var/lib/shop --json
  penstock status --url http://127.0.0.1:8000
"""

RATE_OVER_S: Final = 10.0
_BELOW: Final = {"jvm": "java", "worker": "python"}
"""The roles of the children of a driver and a standby, with the first letters of their programs."""


class ProcessStatus(msgspec.Struct, frozen=True):
    """A process of the application.

    Attributes:
        role: Supervisor, driver, standby, view or gateway; jvm or worker for a child of driver and standby.
        uptime_s: Seconds since its start.
        memory_mb: Its resident memory; shared pages count for each process.
        details: The facts that it has announced.
    """

    role: str
    pid: int
    uptime_s: float
    memory_mb: float
    details: dict[str, str | int] = {}


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status as `--json` prints it. Keys are stable.

    Attributes:
        running: Whether a driver processes requests.
        data: The data directory; with `--url`, the URL.
        app: The application's name; None before its first start.
        epoch: The newest committed epoch.
        log_end: The position behind the newest request of the log. A log that has moved goes on at a higher position, so it is
            no count.
        lag: The number of requests that wait for their epoch.
        requests_per_s: The rate over the last ten seconds.
        view_epoch: The epoch of SQL results; None if no view runs.
        snapshot_epoch: The epoch of the newest snapshot; None before the first, and with `--url`.
        first_epoch: The oldest epoch in the journal; None with `--url`.
        held_by: The readers that need epochs which the settings would remove.
        incidents: The newest requests that stopped their epoch and were set aside, the newest first.
        clock_jumps: The jumps of the machine's clock that processes have noted.
        generators: The progress of each generator that has run.
        rates: The rates of streams and of calls over the last seconds, and with `--url` the lag of each workflow.
        partitions: The number of partitions; None before the first epoch.
        views: How each view stands.
        effects: The report of the process that calls effects; None if none has run here.
        captures: How each stream of changes stands.
        lease: Which driver holds the lease of an application in an object store, and since when it is unchanged.
        log: Where the log lies: `embedded, in FOLDER`, or its topic; empty before the first start.
        hosts: The hosts of an application in an object store.
    """

    running: bool
    data: str
    app: str | None
    processes: list[ProcessStatus]
    epoch: int | None
    log_end: int
    lag: int
    requests_per_s: float
    view_epoch: int | None
    snapshot_epoch: int | None = None
    first_epoch: int | None = None
    held_by: list[str] = []
    incidents: list[Incident]
    generators: list[GeneratorProgress]
    rates: Rates
    partitions: int | None = None
    clock_jumps: ClockJumps = ClockJumps()
    views: list[ViewStanding] = []
    effects: EffectsReport | None = None
    captures: list[CaptureStanding] = []
    lease: LeaseStanding | None = None
    log: str = ""
    disk: str = ""
    hosts: list[HostStanding] = []


def command(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """Show the processes and figures of an application; see `HELP`."""
    status = status_of(_folder(options)) if remote.url is None else _status_at(remote)
    print_result(status, lambda console: _show(status, console), as_json=as_json)
    if not status.running:
        raise typer.Exit(1)


def _folder(options: AppOptions) -> Path:
    """Return the data directory; the only one in `.penstock` needs no name."""
    known = sorted(DIRECTORY.iterdir()) if DIRECTORY.is_dir() else []
    default = known[0] if len(known) == 1 else NOWHERE
    return options.folder(default, f"; there are {', '.join(map(str, known))}" if known else "")


def _status_at(remote: RemoteOptions) -> Status:
    """Return the status that a gateway answers."""
    from penstock.process.status import ApplicationStatus

    hosts = remote.get("/console/api/hosts", HostList).hosts
    return _status(
        remote.get("/console/api/status", ApplicationStatus), data=str(remote.url), hosts=hosts
    )


def status_of(data: Path) -> Status:
    """Return the status of a data directory."""
    from penstock.process.data_directory import DataDirectory
    from penstock.process.status import survey
    from penstock.retention.maintenance_report import MaintenanceReport, last_report
    from penstock.sql_view.view_client import view_epoch

    seen = survey(data, DataDirectory(data).app_name or "", view_epoch(data), RATE_OVER_S)
    report = last_report(data) or MaintenanceReport()
    hosts, disk = list[HostStanding](), ""
    with suppress(JournalUnavailable):
        hosts = host_standings(data)
    with suppress(OSError):
        disk = full_text(data)
    return _status(
        seen,
        data=str(data),
        snapshot_epoch=None if report.snapshot == BEFORE_FIRST else report.snapshot,
        first_epoch=None if seen.epoch == BEFORE_FIRST else report.first,
        held_by=[holder.who for holder in report.holders],
        disk=disk,
        hosts=hosts,
    )


def _status(
    seen: "ApplicationStatus", hosts: Sequence[HostStanding] = (), **of_data: Any
) -> Status:
    """Return a status with the stable keys of `--json`; `of_data` are the facts that only a data directory has."""
    return Status(
        running=any(process.role == "driver" for process in seen.processes)
        or (seen.lease is not None and seen.lease.is_live),
        app=seen.app or None,
        processes=list(_processes(seen.processes)),
        epoch=None if seen.epoch == BEFORE_FIRST else seen.epoch,
        log_end=seen.accepted,
        lag=seen.lag,
        requests_per_s=round(seen.requests_per_s, 1),
        view_epoch=seen.view_epoch,
        rates=seen.rates,
        incidents=seen.incidents,
        generators=seen.generators,
        partitions=seen.partitions or None,
        clock_jumps=seen.clock_jumps,
        views=seen.views,
        effects=seen.effects,
        captures=seen.captures,
        lease=seen.lease,
        log=seen.log_text,
        hosts=list(hosts),
        **of_data,
    )


def _processes(processes: "Iterable[RunningProcess]") -> Iterator[ProcessStatus]:
    for process in processes:
        yield _status_of_process(process.role, process)
        for child in process.children if process.role in ("driver", "standby") else ():
            for role, program in _BELOW.items():
                if child.role.startswith(program):
                    yield _status_of_process(role, child)


def _status_of_process(role: str, process: "RunningProcess") -> ProcessStatus:
    return ProcessStatus(
        role=role,
        pid=process.pid,
        uptime_s=round(process.uptime_s, 1),
        memory_mb=round(process.own_bytes / (1 << 20), 1),
        details=process.details,
    )


def _show(status: Status, console: "Console") -> None:
    if not status.processes:
        console.print(f"nothing runs in {status.data}")
    else:
        table = folding_table("process", "pid", "up", "memory", "", box=None, pad_edge=False)
        for process in status.processes:
            details = "  ".join(f"{name} {value}" for name, value in process.details.items())
            indent = "  " if process.role in ("jvm", "worker") else ""
            up, memory = _duration(process.uptime_s), f"{process.memory_mb:,.0f} MB"
            table.add_row(indent + process.role, str(process.pid), up, memory, details)
        console.print(table)
        if not status.running:
            console.print("no driver runs: requests wait in the log", style="yellow")
    epoch = "-" if status.epoch is None else str(status.epoch)
    view = "-" if status.view_epoch is None else str(status.view_epoch)
    stores = (
        ""
        if status.partitions is None
        else f", {counted(status.partitions, 'partition', 'partitions')}"
    )
    console.print(
        f"{status.app or '-'} in {status.data}: epoch {epoch}, view at {view}, "
        f"log at {status.log_end:,}, lag {status.lag:,}, {status.requests_per_s:,.0f} requests/s"
        f"{stores}",
    )
    if status.snapshot_epoch is not None:
        held = f", held by {'; '.join(status.held_by)}" if status.held_by else ""
        console.print(
            f"newest snapshot: epoch {status.snapshot_epoch}; history begins with epoch "
            f"{status.first_epoch}{held}",
        )
    _show_hosts(status.hosts, console)
    _show_rates(status.rates, console)
    for generator in status.generators:
        console.print(generator_text(generator), style="red" if generator.reason else "")
    _show_views(status.views, console)
    _show_effects(status.effects, console)
    _show_captures(status.captures, console)
    _show_notes(status, console)
    if status.incidents:
        newest = status.incidents[0]
        aside = counted(len(status.incidents), "request was", "requests were")
        console.print(
            f"{aside} set aside: each stopped its epoch; the "
            f"newest: {newest.request_id}, incident {newest.incident} "
            f"({status.data}/{RUN}/{FILE_NAME} tells why)",
            style="yellow",
        )


def _show_notes(status: Status, console: "Console") -> None:
    if status.disk:
        console.print(f"{status.disk}; make space", style="red")
    if status.log:
        console.print(f"log: {status.log}", markup=False, soft_wrap=True)
    if status.lease is not None:
        console.print(str(status.lease), markup=False)
    if status.clock_jumps.count:
        console.print(str(status.clock_jumps), style="yellow")


def _show_hosts(hosts: Sequence[HostStanding], console: "Console") -> None:
    if not hosts:
        return
    names = ("host", "", "state", "view", "log", "disk free", "cents a day", "last seen")
    table = folding_table(*names, box=None, pad_edge=False)
    for host in hosts:
        report = host.report
        lags = [
            "-" if lag is None else "now" if not lag else f"-{lag:,}"
            for lag in (host.state_lag, host.view_lag, report.log_lag)
        ]
        if report.held:
            lags[0] += f" ({report.held} of {report.partitions} parts)"
        free = f"{report.disk_free / (1 << 30):,.1f} GB"
        role = "driver" if host.has_lease else "standby" if "standby" in report.processes else ""
        state = " ".join(filter(None, (host.state, role)))
        cents = f"{report.cents_per_day:,.0f}"
        table.add_row(report.name, state, *lags, free, cents, f"{host.age_s:,.0f} s ago")
    console.print(table)
    for host in hosts:
        for text in host.notes:
            console.print(f"{host.report.name}: {text}", style="yellow", markup=False)


def _show_rates(rates: Rates, console: "Console") -> None:
    for stream in rates.events:
        console.print(f"stream {stream}: {rates.of_stream(stream)}")
    for workflow, lag in rates.lags.items():
        if lag:
            console.print(f"workflow {workflow}: {rates.of_workflow(workflow)}", style="yellow")


def generator_text(progress: GeneratorProgress) -> str:
    """Return the progress of a generator in one line."""
    atoms = counted(progress.atoms, "atom", "atoms")
    text = f"generator {progress.generator}: {progress.status}, {atoms} on {progress.stream}"
    if progress.place:
        share = "" if progress.share is None else f" ({progress.share:.0%})"
        text += f", {progress.place}{share}"
    return f"{text}; {progress.reason}" if progress.reason else text


def _show_views(views: list[ViewStanding], console: "Console") -> None:
    for view in views:
        is_well = view.state == ViewState.FOLLOWING and not view.incomplete
        console.print(view_text(view), style="" if is_well else "yellow", markup=False)


def _show_effects(effects: EffectsReport | None, console: "Console") -> None:
    if effects is None:
        return
    dead = sum(each.dead for each in effects.functions)
    waiting = sum(each.waiting for each in effects.functions)
    letters = (
        f", {counted(dead, 'dead letter', 'dead letters')}: penstock effects list" if dead else ""
    )
    text = f"effects: {effects.state}, {waiting:,} wait{letters}"
    text = "; ".join(filter(None, (text, effects.reason, effects.remedy)))
    is_well = effects.state == "following" and not (dead or effects.reason)
    console.print(text, style="" if is_well else "yellow", markup=False)


def _show_captures(captures: list[CaptureStanding], console: "Console") -> None:
    for each in captures:
        kept = "" if each.retained_bytes is None else f", {each.retained_bytes / 1e6:,.1f} MB kept"
        text = f"changes {each.name}: {each.state}, {counted(each.rows, 'row', 'rows')}, {each.lag_s:.1f} s behind{kept}"
        unfit = (
            f"{counted(each.unfit, 'row does not fit its', 'rows do not fit their')} record"
            if each.unfit
            else ""
        )
        text = "; ".join(filter(None, (text, each.reason, each.remedy, unfit)))
        is_well = each.state in ("following", "reading") and not each.unfit
        console.print(text, style="" if is_well else "yellow", markup=False)


def view_text(view: ViewStanding) -> str:
    """Return how a view stands in one line."""
    target = f" ({view.target})" if view.target else ""
    filled = "" if view.filled is None else f" ({view.filled:.0%})"
    epoch = "-" if view.epoch == BEFORE_FIRST else view.epoch
    text = f"view {view.name}{target}: {view.state}{filled}, epoch {epoch}, lag {view.lag:,}"
    return "; ".join(filter(None, (text, view.reason, view.remedy)))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
