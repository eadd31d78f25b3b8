"""`SourceRestarter`: restarts the processes of an application when its source changes.

A child process checks each change first. If the new source has an error, the error is shown and the
old processes keep running. The same happens if a class has changed whose entities are stored: the
difference is shown, with the choices of the developer.
"""

from penstock.cli.foreground import Foreground
from penstock.cli.source_check import check
from penstock.cli.source_files import SourceFiles
from penstock.cli.supervisor import Supervisor
from penstock.errors import ConfigError


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
