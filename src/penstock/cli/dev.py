"""`penstock dev`: an application in the foreground, restarted whenever its source changes.

A change is first checked in a process of its own: what is wrong is shown, and what runs keeps
running until it is right. So it does where a class has changed whose entities are stored: then the
difference is shown, and what can be done.
"""

from typing import Final

from penstock.cli.foreground import ROLE, Foreground
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    CoresOption,
    DataOption,
    PortOption,
    SetOption,
)
from penstock.cli.run import foreground_of
from penstock.cli.source_files import SourceFiles
from penstock.cli.source_warnings import check
from penstock.cli.supervisor import Supervisor
from penstock.errors import ConfigError
from penstock.process import logs
from penstock.process.loading import locate

HELP: Final = """Run an application while you write it: log, Spark, SQL view, gateway and console.

It starts again whenever a source file of the application changes; a mistake is shown and what runs
keeps running. The console has a button that kills the driver, to watch it come back with nothing
lost. Data stay in .penstock/<app name> between two runs. Where an entity's attributes change after
some were stored, the difference is shown, and the former code keeps running: put it back, or begin
with an empty directory, by --data or by removing that folder.

\b
Examples:
  penstock dev app.py
  penstock dev examples/shop --port 8080
  penstock dev shop.services:app --cores 2 --set small_epoch=100
"""


def dev(
    app: AppArgument,
    port: PortOption = None,
    data: DataOption = None,
    cores: CoresOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Run an application for its developer; see `HELP`."""
    foreground = foreground_of(
        app,
        data,
        config,
        assignments,
        {"gateway.port": port, "cores": cores},
        development=True,
    )
    logs.configure(ROLE, foreground.settings.log_format, foreground.settings.log_level)
    foreground.run(SourceRestarter(foreground, SourceFiles(locate(app))).look)


class SourceRestarter:
    """What is done again and again while a developer's application runs."""

    def __init__(self, foreground: Foreground, sources: SourceFiles) -> None:
        """Watch sources for what runs in the foreground."""
        self._foreground = foreground
        self._sources = sources
        self._waiting = False  # for a change, since what is there cannot run

    def look(self, supervisor: Supervisor) -> None:
        """Restart the application where its source has changed and is right; see `look` there.

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
        found = check(self._foreground.given.app, self._foreground.settings.data)
        if found.complaint:
            kept = "waits" if self._waiting else "keeps what runs"
            tell("dev", f"{kept} until this is right:\n{found.complaint}")
            return
        for line in found.cautions:
            tell("source", line)
        tell("dev", "the source has changed: it starts again")
        supervisor.stop()
        self._waiting = False
