"""The service of a driver: a runtime in the foreground, with its status, until a stop is requested."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from penstock.cli.running.status_line import shown
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.process.large_pages import HEAP
from penstock.process.metrics import DriverMetrics
from penstock.process.reports import ReportWriter
from penstock.process.status import status_of
from penstock.process.stop import Stop

if TYPE_CHECKING:
    from rich.console import Console

_log = logging.getLogger(__name__)

ROLE: Final = "driver"
LOOK_S: Final = 0.25
WATCH_S: Final = 0.05


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

    def abandon(self) -> None:
        """Let a start that runs in another thread fail soon; `stop` is called next."""

    def check(self) -> None:
        """Raise the error that has stopped the runtime, if there is one."""

    def stop(self) -> None:
        """Commit the running epoch, and end."""


def nothing() -> None:
    """Do nothing."""


def serve(
    runtime: ServedRuntime,
    app: str,
    settings: Config,
    stop: Stop,
    console: "Console",
    *,
    when_running: Callable[[], None] = nothing,
) -> None:
    """Run a runtime until a stop is requested: announce it, and show its status.

    Args:
        app: The application, as the command line names it.
        console: The place for messages.
        when_running: Called once, when requests are processed.
    """
    data = settings.data
    runtime.on_epoch.append(ReportWriter(data).take)
    runtime.on_epoch.append(DriverMetrics(data).take)
    runtime.on_epoch.append(lambda _: HEAP.after_work())
    try:
        with abandoned_at_stop(runtime, stop):
            runtime.start()
        if not stop.wanted.is_set():
            stop.listen()  # Spark has installed its own signal handler
            with presence.present(data, ROLE, app, cores=settings.cores), shown(console) as show:
                console.print("running; Ctrl-C stops", highlight=False)
                when_running()
                while not stop.wanted.wait(LOOK_S):
                    runtime.check()
                    show(lambda: str(status_of(data, runtime.log, runtime.journal)))
                console.print("stopping after the running epoch …", highlight=False)
    finally:
        runtime.stop()
    console.print("stopped", highlight=False)


class StartingRuntime(Protocol):
    """A runtime whose start can be abandoned, such as `SparkRuntime`."""

    def abandon(self) -> None:
        """Let a start that runs in another thread fail soon; `stop` is called next."""


@contextmanager
def abandoned_at_stop(runtime: StartingRuntime, stop: Stop) -> Iterator[None]:
    """Abandon the start of a runtime, which is the body, at a request to stop; the errors of the start then mean nothing."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_S):
            if stop.wanted.is_set():
                runtime.abandon()  # again while an epoch runs

    watcher = threading.Thread(target=watch, name="penstock-start-watch", daemon=True)
    watcher.start()
    try:
        yield
    except Exception:
        if not stop.wanted.is_set():
            raise
        _log.debug("the start is abandoned", exc_info=True)
    finally:
        ended.set()
        watcher.join()
