"""`penstock driver`: Spark, in the foreground, until a signal stops it."""

from collections.abc import Callable
from typing import Final, Protocol

from rich.console import Console

from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    CoresOption,
    DataOption,
    PartitionsOption,
    SetOption,
    SupervisedOption,
)
from penstock.cli.status_line import shown
from penstock.cli.stop import Stop
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.process import logs, presence
from penstock.process.config import Config
from penstock.process.measures import DriverMeasures
from penstock.process.report import EpochReport
from penstock.process.reports import ReportWriter
from penstock.process.status import standing_of
from penstock.process.threads import end_with_threads

HELP: Final = """Run an application's driver alone: Spark, in the foreground, until SIGINT or SIGTERM.

It processes what is in the log; penstock call and gateways append to that. penstock run starts it
together with gateways and the SQL view.

The first signal commits the epoch that runs and stops; a second one ends at once, which loses
nothing either: the next start goes on from the journal.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from flags; the later
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


class Served(Protocol):
    """What is needed of a runtime to run it in the foreground; `SparkRuntime` is one."""

    @property
    def log(self) -> Log:
        """Where requests are appended."""

    @property
    def journal(self) -> Journal:
        """What was committed."""

    @property
    def on_epoch(self) -> list[Callable[[EpochReport], None]]:
        """Called with the report of each committed epoch."""

    def start(self) -> None:
        """Return when requests are processed."""

    def check(self) -> None:
        """Raise what made the runtime give up, if it did."""

    def stop(self) -> None:
        """Commit what runs, and end."""


def driver(  # noqa: PLR0913 -- one parameter for each flag
    app: AppArgument,
    data: DataOption = None,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    supervised: SupervisedOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Run an application's driver in the foreground; see `HELP`."""
    _, settings = application_of(
        app,
        data=data,
        file=config,
        assignments=assignments,
        partitions=partitions,
        cores=cores,
    )
    logs.configure(ROLE, settings.log_format, settings.log_level)
    end_with_threads()
    presence.refuse_second(settings.data, ROLE)
    console = Console(quiet=supervised)
    with Stop(supervised=supervised) as stop:
        console.print(f"{app} in {settings.data}: starting Spark …", highlight=False)
        # Nothing but this command and the benchmark pays for importing Spark.
        from penstock.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415

        serve(SparkRuntime(app, settings), app, settings, stop, console)


def serve(runtime: Served, app: str, settings: Config, stop: Stop, console: Console) -> None:
    """Start a runtime, say that it is there, show how it goes, and stop it when asked to.

    Raises:
        ConfigError: Another driver runs the application.
        EpochFailed: The runtime gave up.
    """
    data = settings.data
    runtime.on_epoch.append(ReportWriter(data).take)
    runtime.on_epoch.append(DriverMeasures(data).take)
    try:
        runtime.start()
        stop.listen()  # Spark has put a handler of its own in place
        facts = {"partitions": settings.partitions, "cores": settings.cores}
        with presence.present(data, ROLE, app, **facts), shown(console) as show:
            console.print("running; Ctrl-C stops", highlight=False)
            while not stop.wanted.wait(LOOK_S):
                runtime.check()
                show(lambda: str(standing_of(data, runtime.log, runtime.journal)))
            console.print("stopping after the running epoch …", highlight=False)
    finally:
        runtime.stop()
    console.print("stopped", highlight=False)
