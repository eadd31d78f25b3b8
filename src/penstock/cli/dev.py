"""`penstock dev`: run an application, and restart it when its source changes.

A child process checks each change first. If the new source has an error, the error is shown and the
old processes keep running. The same happens if a class has changed whose entities are stored: the
difference is shown, with the choices of the developer.
"""

from typing import Final

from penstock.cli.foreground import Foreground
from penstock.cli.options import AppOptions, CoresOption, JsonLogOption, PortOption, log_flags
from penstock.cli.run import foreground_of
from penstock.cli.source_check import check
from penstock.cli.source_files import SourceFiles
from penstock.cli.supervisor import Supervisor
from penstock.errors import ConfigError
from penstock.process.loading import locate

HELP: Final = """Run an application while you write it: log, Spark, SQL view, gateway and console.

It starts again whenever a source file of the application changes. If the new source has an error, the
error is shown and the old processes keep running. The console has a button that kills the driver, so
that you can watch it recover with nothing lost. The data stay in .penstock/<app name> between two
runs. If the attributes of an entity change after some were stored, the difference is shown and the
old code keeps running: undo the change, or begin with an empty directory, by --data or by removing
that folder.

\b
Examples:
  penstock dev app.py
  penstock dev examples/shop --port 8080
  penstock dev shop.services:app --cores 2 --set small_epoch=100
"""


def command(
    options: AppOptions,
    port: PortOption = None,
    cores: CoresOption = None,
    as_json: JsonLogOption = False,
) -> None:
    """Run an application for its developer; see `HELP`."""
    flags = {"gateway.port": port, "cores": cores, **log_flags(as_json=as_json)}
    foreground = foreground_of(options, flags, development=True)
    foreground.run(SourceRestarter(foreground, SourceFiles(locate(foreground.options.app))).look)


class SourceRestarter:
    """Restarts the processes of an application when its source has changed."""

    def __init__(self, foreground: Foreground, sources: SourceFiles) -> None:
        """Watch the sources of the application in the foreground."""
        self._foreground = foreground
        self._sources = sources
        self._waiting = False  # for a change, because the present source cannot run

    def look(self, supervisor: Supervisor) -> None:
        """Restart the application if its source has changed and is valid; then watch the processes.

        Raises:
            OperationalError: A process has failed too often.
        """
        if self._sources.changed():
            self._take_change(supervisor)
        if self._waiting:
            return
        try:
            supervisor.look()
        except ConfigError as error:
            supervisor.stop()
            self._foreground.tell("dev", f"waits for a change: {error}")
            self._waiting = True

    def _take_change(self, supervisor: Supervisor) -> None:
        tell = self._foreground.tell
        source = check(self._foreground.options.app, self._foreground.settings.data)
        if source.error:
            state = "waits" if self._waiting else "keeps the old processes running"
            tell("dev", f"{state} until this is corrected:\n{source.error}")
            return
        for warning in source.warnings:
            tell("source", warning)
        tell("dev", "the source has changed: it starts again")
        supervisor.stop()
        self._waiting = False
