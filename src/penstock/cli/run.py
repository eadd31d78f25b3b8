"""`penstock run`: an application in the foreground, until a signal stops it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.base.ids import Lsn
from penstock.cli import presence
from penstock.cli.failure import INTERRUPTED
from penstock.cli.settings import (
    AppArgument,
    ConfigOption,
    CoresOption,
    DataOption,
    PartitionsOption,
    SetOption,
    config_of,
    default_data,
)
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.runtime.loading import load_app
from penstock.runtime.report import EpochReport

HELP: Final = """Run an application in the foreground until SIGINT or SIGTERM.

The first signal commits the epoch that runs and stops; a second one ends at once, which loses
nothing either: the next start goes on from the journal.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from flags; the later
ones win. In the file they have the names that --set takes: cores, small_epoch, limits.time_ms …

\b
Examples:
  penstock run examples/shop
  penstock run shop.services:app --data /var/lib/shop --partitions 8
  penstock run app.py --set limits.time_ms=500 --set epoch_records_max=2000
  PENSTOCK_CORES=2 penstock run examples/bank --config production.toml
"""

LOOK_S: Final = 0.25
LINE_EVERY_S: Final = 5.0
RATE_OVER_S: Final = 2.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


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


def run(
    app: AppArgument,
    data: DataOption = None,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Run an application in the foreground; see `HELP`."""
    settings = config_of(
        default_data(load_app(app).name),
        data=data,
        file=config,
        assignments=assignments,
        partitions=partitions,
        cores=cores,
    )
    console = Console()
    with presence.present(settings.data, app), Stop() as stop:
        console.print(f"{app} in {settings.data}: starting Spark …", highlight=False)
        # Nothing but this command and the benchmark pays for importing Spark.
        from penstock.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415

        serve(SparkRuntime(app, settings), stop, console)


def serve(runtime: Served, stop: "Stop", console: Console) -> None:
    """Start a runtime, show how it goes, and stop it when asked to.

    Raises:
        EpochFailed: The runtime gave up.
    """
    status = Status(runtime)
    runtime.on_epoch.append(status.take)
    try:
        runtime.start()
        stop.listen()  # Spark has put a handler of its own in place
        with shown(console) as show:
            console.print("running; Ctrl-C stops", highlight=False)
            while not stop.wanted.wait(LOOK_S):
                runtime.check()
                show(status)
            console.print("stopping after the running epoch …", highlight=False)
    finally:
        runtime.stop()
    console.print("stopped", highlight=False)


class Stop:
    """The wish to stop: the first SIGINT or SIGTERM sets `wanted`, the second ends the process."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {one: signal.getsignal(one) for one in _SIGNALS}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def listen(self) -> None:
        """Put the handlers in place, again if somebody else took theirs."""
        for one in _SIGNALS:
            signal.signal(one, self._take)

    def _take(self, _signal: int, _frame: FrameType | None) -> None:
        if self.wanted.is_set():
            os._exit(INTERRUPTED)
        self.wanted.set()


class Status:
    """How it goes, in one line."""

    def __init__(self, runtime: Served) -> None:
        self._runtime = runtime
        self._report: EpochReport | None = None
        self._records = 0
        self._seen: list[tuple[float, int]] = [(time.monotonic(), 0)]

    def take(self, report: EpochReport) -> None:
        """Note an epoch; called in the driver's thread."""
        self._records += report.records
        self._report = report

    def line(self) -> str:
        """Return epoch, records a second, lag and how long the last epoch took."""
        now = time.monotonic()
        self._seen.append((now, self._records))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_OVER_S:
            self._seen.pop(0)
        (before, then), report = self._seen[0], self._report
        rate = (self._records - then) / max(now - before, LOOK_S)
        runtime = self._runtime
        last = runtime.journal.last()
        lag = sum(
            runtime.log.end(one) - (last.positions.get(one, Lsn(0)) if last is not None else 0)
            for one in runtime.log.partitions
        )
        epoch = "-" if last is None else str(last.epoch)
        took = "-" if report is None else f"{sum(report.phases_ms.values()):.0f}"
        return f"epoch {epoch}  {rate:,.0f} records/s  lag {lag:,}  last epoch {took} ms"


@contextmanager
def shown(console: Console) -> Iterator[Callable[[Status], None]]:
    """Give what shows a status: a live line on a terminal, else a line when it has changed."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda status: live.update(Text(status.line()), refresh=True)
        return
    last, due = "", 0.0

    def show(status: Status) -> None:
        nonlocal last, due
        now = time.monotonic()
        if now < due:
            return
        due = now + LINE_EVERY_S
        if (line := status.line()) != last:
            last = line
            console.print(line, highlight=False)

    yield show
