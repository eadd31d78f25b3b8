"""`penstock driver`: run Spark in the foreground, until a signal."""

from collections.abc import Callable
from typing import Final, Protocol

from rich.console import Console

from penstock.cli.options import (
    AppOptions,
    CoresOption,
    JsonLogOption,
    PartitionsOption,
    SupervisedOption,
    log_flags,
)
from penstock.cli.status_line import shown
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.process import logs, presence
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.process.metrics import DriverMetrics
from penstock.process.reports import ReportWriter
from penstock.process.status import status_of
from penstock.process.stop import Stop
from penstock.process.threads import end_with_threads

HELP: Final = """Run an application's driver alone: Spark, in the foreground, until SIGINT or SIGTERM.

It processes the requests in the log, to which penstock call and gateways append. penstock run starts
the driver together with gateways and the SQL view.

At the first signal, the driver commits the epoch that runs and stops. A second signal ends it at
once, which loses nothing either: the next start goes on from the journal.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from options; the later
ones win. In the file they have the names that --set takes: cores, small_epoch, limits.time_ms …

\b
Examples:
  penstock driver examples/shop
  penstock driver shop.services:app --data /var/lib/shop --partitions 8
  penstock driver app.py --set limits.time_ms=500 --set epoch_records_max=2000
  PENSTOCK_CORES=2 penstock driver examples/bank --config production.toml
"""

ROLE: Final = "driver"
LOOK_S: Final = 0.25


class ServedRuntime(Protocol):
    """A runtime that can run in the foreground, such as `SparkRuntime`."""

    @property
    def log(self) -> Log:
        """The log, to which requests are appended."""

    @property
    def journal(self) -> Journal:
        """The journal of committed epochs."""

    @property
    def on_epoch(self) -> list[Callable[[EpochReport], None]]:
        """Called with the report of each committed epoch."""

    def start(self) -> None:
        """Return when requests are processed."""

    def check(self) -> None:
        """Raise the error that has stopped the runtime, if there is one."""

    def stop(self) -> None:
        """Commit the running epoch, and end."""


def _nothing() -> None:
    """Do nothing."""


def command(
    options: AppOptions,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    supervised: SupervisedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run an application's driver in the foreground; see `HELP`."""
    _, settings = options.load(partitions=partitions, cores=cores, **log_flags(as_json=as_json))
    logs.configure(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    presence.refuse_second(settings.data, ROLE)
    console = Console(quiet=supervised)
    with Stop(supervised=supervised) as stop:
        console.print(f"{settings.app} in {settings.data}: starting Spark …", highlight=False)
        from penstock.runtime.spark.jvm import Jvm, new_scratch  # noqa: PLC0415

        with Jvm(settings, new_scratch(settings.data)) as jvm:
            # Only this command and the benchmark import Spark, which takes long: Java starts meanwhile.
            from penstock.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415

            runtime = SparkRuntime(settings.app, settings, jvm)
            make = jvm.archive.make_in_background if settings.class_archive else _nothing
            serve(runtime, settings.app, settings, stop, console, when_running=make)


def serve(
    runtime: ServedRuntime,
    app: str,
    settings: Config,
    stop: Stop,
    console: Console,
    *,
    when_running: Callable[[], None] = _nothing,
) -> None:
    """Run a runtime until a stop is requested: announce it, and show its status.

    Args:
        runtime: The runtime.
        app: The application, as the command line names it.
        settings: The settings.
        stop: The request to stop.
        console: The place for messages.
        when_running: Called once, when requests are processed.

    Raises:
        ConfigError: Another driver runs the application.
        EpochFailed: The runtime has stopped by itself.
    """
    data = settings.data
    runtime.on_epoch.append(ReportWriter(data).take)
    runtime.on_epoch.append(DriverMetrics(data).take)
    try:
        runtime.start()
        stop.listen()  # Spark has installed its own signal handler
        facts = {"partitions": settings.partitions, "cores": settings.cores}
        with presence.present(data, ROLE, app, **facts), shown(console) as show:
            console.print("running; Ctrl-C stops", highlight=False)
            when_running()
            while not stop.wanted.wait(LOOK_S):
                runtime.check()
                show(lambda: str(status_of(data, runtime.log, runtime.journal)))
            console.print("stopping after the running epoch …", highlight=False)
    finally:
        runtime.stop()
    console.print("stopped", highlight=False)
