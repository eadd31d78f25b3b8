"""`CodeInForce`: the deployment that executes an epoch, and its code in a process that goes on running.

The code comes from the archive of a deployment, and not from the source files. Each archive has a folder of its own below
`run/code` of the data directory. The folder is a copy: each use compares it with the archive, and writes it again if a
file differs.
"""

import logging
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.deployment.archives import Archives, write_files
from penstock.deployment.loading import Location, lines_of, locate
from penstock.deployment.side_modules import LoadedCode, load_aside, load_instead
from penstock.deployment.source import imported_code, loaded_code
from penstock.errors import BY_CODE, ConfigError, OperationalError, PenstockError
from penstock.files.layout import RUN
from penstock.files.looks import Looks
from penstock.files.roots import journal_root
from penstock.journal.api import Commit, Journal, newest_epoch
from penstock.journal.deployments import (
    NAME,
    Deployment,
    Deployments,
    deployment_at,
    is_same_source,
    replaces_source,
)
from penstock.model.application import App
from penstock.model.control import Deploy, DeployedCode
from penstock.orders.order import waiting_controls
from penstock.process.data_directory import DataDirectory

_log = logging.getLogger(__name__)

CODE: Final = "code"
"""The folder of unpacked archives, below `run`."""

KEPT: Final = 3
"""The newest deployments whose unpacked archives stay at a start."""

RETRY_S: Final = 5.0
"""The pause before a deployment that could not be served is tried again."""

REST_S: Final = 30.0
"""The pause between two looks at the deployments in an object store as long as the epoch is the same."""


def folder_of(data: Path, code: DeployedCode) -> Path:
    """Return the folder where the archive of code is unpacked."""
    return data.absolute() / RUN / CODE / code.archive


def unpacked(data: Path, code: DeployedCode) -> Location:
    """Return the place of an application in the folder of its archive, which is unpacked if it is not there.

    Raises:
        Corrupt: The archive is missing, or was changed.
    """
    folder = folder_of(data, code)
    files = Archives(data).files(code.archive)
    try:
        if not _holds(folder, files):
            _write(folder, files)
    except OSError as error:
        raise OperationalError(
            f"cannot unpack the code of a deployment into {folder}: {error.strerror}"
        ) from error
    return Location(code.module, code.name, str(folder), None)


def unpacked_here(spec: str, other: Path, data: Path, root: Path) -> str:
    """Return the name of an application on this host whose code another host has unpacked.

    Args:
        spec: Its name there, as `Location.spec`.
        other: The root of the other host.
        data: The data directory, with the archives.
        root: The root of this host.

    Raises:
        Corrupt: The archive is missing, or was changed.
        ConfigError: The name is not that of unpacked code.
    """
    there = quote(f"{other.absolute() / RUN / CODE}/")
    names = {part.partition("/")[0] for part in spec.split(there)[1:]}
    if not names:
        raise ConfigError(f"{spec} is no code of a deployment, so other hosts do not have it")
    for name in sorted(names):
        folder = root.absolute() / RUN / CODE / name
        files = Archives(data).files(name)
        try:
            if not _holds(folder, files):
                remove_unpacked(data, root)
                _write(folder, files)
        except OSError as error:
            raise OperationalError(
                f"cannot unpack the code of a deployment into {folder}: {error.strerror}"
            ) from error
    return spec.replace(there, quote(f"{root.absolute() / RUN / CODE}/"))


def is_unpacked(data: Path, location: Location) -> bool:
    """Say whether a location is in the folder of an archive."""
    return Path(location.folder).parent == data.absolute() / RUN / CODE


def code_in_force(data: Path, journal: Journal | None = None) -> tuple[str, Epoch] | None:
    """Return the application that the next epoch runs with, unpacked, and its first epoch; None without a deployment.

    Args:
        journal: The journal; None opens it.
    """
    deployment = deployment_in_force(data, journal)
    if deployment is None:
        return None
    return unpacked(data, deployment.code).spec, deployment.since


def load_deployed(data: Path, spec: str) -> App:
    """Import unpacked code, apart from the modules of this process; its classes read the rows of the journal."""
    app = load_aside(locate(spec)).app
    DataDirectory(data).open_journal(app).close()
    return app


def remove_unpacked(data: Path, root: Path | None = None) -> int:
    """Remove the unpacked archives of all but the newest deployments, and return their number.

    A process that still runs an older version may have missed the latest deployments, so some are kept.

    Args:
        root: The root of this host, if that is not the data directory.
    """
    every = Deployments(journal_root(data)).every()
    kept = {deployment.code.archive for deployment in every[-KEPT:]}
    surplus = [path for path in ((root or data) / RUN / CODE).glob("*") if path.name not in kept]
    for path in surplus:
        shutil.rmtree(path, ignore_errors=True)
    return len(surplus)


def deployment_in_force(data: Path, journal: Journal | None = None) -> Deployment | None:
    """Return the deployment that executes the next epoch; None if no deployment is recorded.

    Args:
        journal: The journal; None opens it.
    """
    if journal is None:
        directory = DataDirectory(data)
        if (name := directory.app_name) is None:
            return None
        with closing(directory.open_journal_of(name)) as opened:
            return deployment_in_force(data, opened)
    return deployment_at(Deployments(journal_root(data)).every(), Epoch(newest_epoch(journal) + 1))


def _holds(folder: Path, files: dict[str, bytes]) -> bool:
    """Say whether a folder has exactly these files; compiled modules do not count."""
    try:
        same = all((folder / path).read_bytes() == content for path, content in files.items())
    except FileNotFoundError:
        return False
    return same and all(
        str(path.relative_to(folder)) in files for path in folder.rglob("*.py") if path.is_file()
    )


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Replace a folder by one with these files, which is complete when it appears."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    written = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        write_files(files, written)
        if folder.exists():  # its files differ from the archive
            shutil.rmtree(folder, ignore_errors=True)
        written.rename(folder)
    except OSError:
        shutil.rmtree(written, ignore_errors=True)
        if not _holds(folder, files):  # another process has not done the same meanwhile
            raise


def spec_to_run(data: Path, spec: str) -> str:
    """Return the application that a driver runs which starts with `spec`: the code in force, or `spec` itself.

    `replaces_source` says which. A source that was never deployed is deployed by the start, unless the record of its deployment
    waits in the log: this has its place in the order.
    """
    code, in_force = _continued(data, spec)
    if in_force is None:
        return spec if (former := _waited_for(data, spec)) is None else former
    if not is_same_source(code, in_force.code):
        facts = {"number": in_force.number, "since": in_force.since}
        _log.warning("the source was replaced by a deployment, which stays in force", extra=facts)
    return unpacked(data, in_force.code).spec


def _waited_for(data: Path, spec: str) -> str | None:
    """Return the code in force, unpacked, if the deployment of a source waits in the log; else None."""
    in_force = deployment_in_force(data)
    code = None if in_force is None else loaded_code(spec)
    if in_force is None or code is None or is_same_source(in_force.code, code):
        return None
    directory = DataDirectory(data)
    with (
        closing(directory.open_journal_of(directory.app_name or "")) as journal,
        closing(directory.open_log()) as log,
    ):
        waiting = [each.code for each in waiting_controls(journal, log) if isinstance(each, Deploy)]
    if not any(is_same_source(each, code) for each in waiting):
        return None
    return unpacked(data, in_force.code).spec


def replacement_of(data: Path, spec: str) -> Deployment | None:
    """Return the deployment that a driver runs instead of the source that it starts with; None if it runs this source."""
    code, in_force = _continued(data, spec)
    return None if in_force is None or is_same_source(code, in_force.code) else in_force


def is_in_force(data: Path, spec: str) -> bool:
    """Say whether the code of a source is the code of the deployment in force."""
    in_force = deployment_in_force(data)
    return in_force is not None and is_same_source(loaded_code(spec), in_force.code)


def _continued(data: Path, spec: str) -> tuple[DeployedCode | None, Deployment | None]:
    """Return the code of a source, and the deployment in force if a driver that starts with the source continues it."""
    in_force = deployment_in_force(data)
    if in_force is None or not in_force.live:
        return None, None
    code = loaded_code(spec)
    continues = replaces_source(in_force, Deployments(journal_root(data)).every(), code)
    return code, in_force if continues else None


class CodeInForce:
    """The code that a process runs, and the deployment that it should run. For one thread at a time.

    Attributes:
        served: The deployment that the process serves. At first, it is the one whose archive the process was started
            with. Of a process that was started with source files, it is the newest one: the source is served until
            another deployment is recorded. If a live deployment has replaced the source, it is the last one of the
            source, so the process exchanges the source at once. None if the source was written since its import: the
            process exchanges it, too.
        problem: Why the process does not serve the deployment that it should; empty if it does.
        on_served: Is called with each deployment from which on the process serves it.

    Args:
        spec: The application, as for `load_app`.
        tell: Is called with each new problem.
        clock: Returns seconds that never go back.
        known: Returns the newest commit that the process knows: `Journal.known`.

    Raises:
        Corrupt: The file of deployments is damaged.
        JournalUnavailable: It cannot be read.
    """

    def __init__(
        self,
        data: Path,
        spec: str,
        tell: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        known: Callable[[], Commit | None] = lambda: None,
    ) -> None:
        self.problem = ""
        self.on_served: Callable[[Deployment], object] = lambda _: None
        self._data = data
        self._tell = tell
        self._clock = clock
        self._known_commit = known
        self._location = locate(spec)
        self._source = None if is_unpacked(data, self._location) else imported_code(spec)
        self._deployments = Deployments(journal_root(data))
        self._stamp: object = ()
        self._every: tuple[Deployment, ...] = ()
        self._looks = Looks(self._deployments.root, 0.0, REST_S, clock)
        self._looked_for = BEFORE_FIRST
        self._failed: Deployment | None = None
        self._retry_s = 0.0
        self.served = self._served_at_first()

    @property
    def is_far(self) -> bool:
        """Whether a look waits for a network."""
        return self._deployments.root.is_far

    def wanted(self, following: Epoch) -> Deployment | None:
        """Return the deployment that executes an epoch, if the process must load it for that; else None."""
        wanted = deployment_at(self._known(following), following)
        return wanted if wanted is not None and self._is_newer(wanted) else None

    def due(self, following: Epoch) -> Deployment | None:
        """Like `wanted`, but an error becomes the problem, and a failed deployment is due again after `RETRY_S`."""
        try:
            wanted = self.wanted(following)
        except PenstockError as error:
            self._note(f"the deployments cannot be read: {error}")
            return None
        if wanted is None:
            self._note("")
        elif wanted == self._failed and self._clock() < self._retry_s:
            return None
        return wanted

    def next_since(self, following: Epoch) -> Epoch | None:
        """Return the first epoch of the next deployment that begins after an epoch; None if there is none."""
        begins = (each.since for each in self._known(following) if self._is_newer(each))
        return min((since for since in begins if since > following), default=None)

    def load(self, deployment: Deployment) -> LoadedCode | None:
        """Load the code of a deployment; later imports of this process find it.

        Returns:
            The code; None if the process has loaded the very source that was deployed.
        """
        if is_same_source(self._source, deployment.code):
            return None
        try:
            location = unpacked(self._data, deployment.code)
            app = load_instead(location, self._location)
            with closing(DataDirectory(self._data).open_journal(app)):
                pass  # its classes know now the rows of all schema versions
        except PenstockError:
            raise
        except BaseException as error:
            raise ConfigError(f"the deployed code cannot be loaded:\n{lines_of(error)}") from error
        self._location, self._source = location, None
        return LoadedCode(app, location)

    @contextmanager
    def exchange(self, deployment: Deployment) -> Iterator[None]:
        """Serve a deployment if the block, which loads it, ends without an error; an error becomes the problem."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- the code of the application may raise everything
            self._failed, self._retry_s = deployment, self._clock() + RETRY_S
            self._note(f"deployment {deployment.number} cannot be served: {_text_of(error)}")
            return
        self.served, self._failed = deployment, None
        self.on_served(deployment)
        self._note("")

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            self._tell(problem)
        self.problem = problem

    def _served_at_first(self) -> Deployment | None:
        every = self._recorded()
        if is_unpacked(self._data, self._location):
            archive = Path(self._location.folder).name
            served = [each for each in every if each.code.archive == archive]
        elif self._source is None:
            served = []
        elif every and replaces_source(every[-1], every, self._source):
            served = [each for each in every if is_same_source(self._source, each.code)]
        else:
            served = list(every)
        return served[-1] if served else None

    def _known(self, following: Epoch) -> tuple[Deployment, ...]:
        """Return the deployments that an epoch may need."""
        # A deployment is recorded before the commit of the epoch before it, which names it. So without a new epoch, or with one
        # that names the known deployment, only the start of a driver records another one. Then a process need not ask a store,
        # which is paid for each question.
        is_known = following == self._looked_for or self._is_named(following)
        if self._looks.is_due() or not is_known:
            self._recorded()
            self._looked_for = following
        return self._every

    def _is_named(self, following: Epoch) -> bool:
        """Say whether a commit proves that no deployment up to an epoch is missing here."""
        commit = self._known_commit()
        if commit is None or commit.epoch + 1 < following or not commit.deployment:
            return False
        newest = deployment_at(self._every, Epoch(commit.epoch + 1))
        return newest is not None and newest.name == commit.deployment

    def _recorded(self) -> tuple[Deployment, ...]:
        # The deployments are read again only if their file has changed, so that a look costs a `stat`.
        try:
            stamp = self._deployments.root.stamp(NAME)
        except OSError:
            stamp = None
        if stamp != self._stamp:
            self._every = () if stamp is None else self._deployments.every()
            self._stamp = stamp
        return self._every

    def _is_newer(self, deployment: Deployment) -> bool:
        """Say whether a deployment is another one than the served one: one without epochs may be replaced."""
        served = self.served
        if served is None:
            return True
        is_same = (deployment.number, deployment.code) == (served.number, served.code)
        return not is_same and deployment.since >= served.since


def _text_of(error: Exception) -> str:
    """Return the text of an error, whose class may be the application's: its `__str__` may raise."""
    if type(error) in BY_CODE.values():
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()
