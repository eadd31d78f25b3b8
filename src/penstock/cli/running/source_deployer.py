"""`SourceDeployer`: deploys the source of an application into its running processes when a file changes.

A child process checks each change first. If the new source has an error, or a class does not fit the stored entities,
the error is shown, and the code that runs stays in force. Only a change during the start, or after a process that could
not run at all, starts the processes again. A source that was deployed in an earlier run, and replaced there, is deployed
when the processes have started.
"""

from pathlib import Path

from penstock.cli.error_output import text_of
from penstock.cli.running.foreground import Foreground
from penstock.cli.running.source_check import check
from penstock.cli.running.supervisor import Supervisor
from penstock.deployment.deploy_order import AppendedDeployment, append_deployment, store_code
from penstock.deployment.loading import Location
from penstock.errors import ConfigError, PenstockError, TimedOut
from penstock.orders.order import settled

_Stamp = dict[Path, tuple[int, int]]


class SourceFiles:
    """Watches the Python files of an application's package, or of its module's folder; of each application of a set."""

    def __init__(self, location: Location) -> None:
        self.folders = [_folder_of(part) for part in location.applications]
        self._known = self._stamp()
        self._seen = self._known

    def changed(self) -> bool:
        """Say whether files have changed since the last True, and rest since the last look.

        Editors and version control write several files one after the other; a change is reported
        when two looks in a row have seen the same.
        """
        before, self._seen = self._seen, self._stamp()
        if self._seen == self._known or self._seen != before:
            return False
        self._known = self._seen
        return True

    def _stamp(self) -> _Stamp:
        stamp: _Stamp = {}
        for path in (path for folder in self.folders for path in _python_files(folder)):
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue  # it has just been replaced
            stamp[path] = (facts.st_mtime_ns, facts.st_size)
        return stamp


def _folder_of(location: Location) -> Path:
    """Return the outermost package of an application, or the folder of its module."""
    if location.file is not None and "." not in location.module:
        file = Path(location.file)
        return file if file.is_dir() else file.parent
    top = Path(location.folder) / location.module.partition(".")[0]
    return top if top.is_dir() else top.parent


def _python_files(folder: Path) -> list[Path]:
    """Return the modules of a folder, and those of the packages in it."""
    modules: list[Path] = []
    waiting = [folder]
    while waiting:
        try:
            inside = list(waiting.pop().iterdir())
        except OSError:
            continue
        modules += [path for path in inside if path.suffix == ".py"]
        waiting += [path for path in inside if (path / "__init__.py").is_file()]
    return modules


class SourceDeployer:
    """Deploys the source of the application in the foreground when it has changed."""

    def __init__(self, foreground: Foreground, sources: SourceFiles) -> None:
        self._foreground = foreground
        self._sources = sources
        self._has_started = False
        self._waiting = False  # for a change, because the present source cannot run
        self._appended: AppendedDeployment | None = None  # and not executed yet

    def look(self, supervisor: Supervisor) -> None:
        """Deploy the source if it has changed; then watch the processes.

        Raises:
            OperationalError: A process has failed too often.
        """
        if not self._has_started and supervisor.ready:
            self._has_started = True
            # A driver continues code that has replaced the source before, and `dev` is for the source.
            self._deploy(has_changed=False)
        if self._sources.changed():
            if self._waiting or not self._has_started:
                self._start_again(supervisor)
            else:
                self._deploy()
        if self._appended is not None:
            self._tell_outcome(self._appended)
        if self._waiting:
            return
        try:
            supervisor.look()
        except ConfigError as error:
            supervisor.stop()
            self._foreground.tell("dev", f"waits for a change: {error}")
            self._waiting = True

    def _start_again(self, supervisor: Supervisor) -> None:
        tell = self._foreground.tell
        source = check(self._foreground.options.app, self._foreground.settings.data)
        if source.error:
            state = "waits" if self._waiting else "keeps the old processes running"
            tell("dev", f"{state} until this is corrected:\n{source.error}")
            return
        tell("dev", "the source has changed: it starts again")
        supervisor.stop()
        self._waiting = False

    def _deploy(self, *, has_changed: bool = True) -> None:
        """Append the deployment of the present source, unless something is wrong with it, or it is deployed."""
        tell, settings = self._foreground.tell, self._foreground.settings
        try:
            code = store_code(settings.data, self._foreground.options.app)
            self._appended = append_deployment(settings, code)
        except PenstockError as error:
            tell("dev", f"keeps the code that runs until this is corrected:\n{text_of(error)}")
            return
        if self._appended is None and has_changed:
            tell("dev", "the source is the deployed code again")
        for change in self._appended.changes if self._appended else ():
            tell("dev", change)

    def _tell_outcome(self, appended: AppendedDeployment) -> None:
        """Say whether a deployment is in force, when the driver has executed it."""
        tell, settings = self._foreground.tell, self._foreground.settings
        try:
            reply = settled(settings, appended.lsn, 0.0, "the deployment")
        except TimedOut:  # `look` asks again
            return
        except PenstockError as error:
            tell("dev", f"cannot see whether the code is in force: {error}")
            self._appended = None
            return
        self._appended = None
        try:
            reply.value()
        except PenstockError as error:
            tell("dev", f"keeps the code that runs until this is corrected:\n{text_of(error)}")
            return
        tell("dev", f"the new code is in force since epoch {reply.epoch + 1}")
        for warning in check(self._foreground.options.app, settings.data).warnings:
            tell("source", warning)
