"""`VersionLoader`: it finds the deployments of an application, and loads their code into a process that goes on running.

The code comes from the archive of a deployment, and not from the source files. The deployments are read again only if
their file has changed, so that a look costs a `stat`.
"""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from penstock.base.ids import Epoch
from penstock.deployment.deployed_code import is_unpacked, unpacked
from penstock.deployment.deployment_start import imported_code
from penstock.deployment.loading import Location, lines_of, locate
from penstock.deployment.side_modules import load_instead
from penstock.errors import ConfigError, PenstockError
from penstock.files.layout import JOURNAL
from penstock.journal.deployments import (
    NAME,
    Deployment,
    Deployments,
    deployment_at,
    is_same_source,
    replaces_source,
)
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory


class LoadedVersion(NamedTuple):
    """The application of a deployment, and the name by which another process loads it."""

    app: App
    spec: str


class VersionLoader:
    """Loads one version after the other. For one thread at a time.

    Attributes:
        served: The deployment that the process serves. At first, it is the one whose archive the process was started
            with. Of a process that was started with source files, it is the newest one: the source is served until
            another deployment is recorded. If a live deployment has replaced the source, it is the last one of the
            source, so the process exchanges the source at once. None if the source was written since its import: the
            process exchanges it, too.
    """

    def __init__(self, data: Path, spec: str) -> None:
        """Begin with the application that the process has loaded.

        Args:
            data: The data directory.
            spec: The application, as for `load_app`.

        Raises:
            Corrupt: The file of deployments is damaged.
            JournalUnavailable: It cannot be read.
        """
        self._data = data
        self._location = locate(spec)
        self._source = None if is_unpacked(data, self._location) else imported_code(spec)
        self._deployments = Deployments(data / JOURNAL)
        self._path = data / JOURNAL / NAME
        self._stamp: tuple[int, ...] = ()
        self._every: tuple[Deployment, ...] = ()
        self.served = self._served_at_first()

    def wanted(self, following: Epoch) -> Deployment | None:
        """Return the deployment that executes an epoch, if the process must load it for that; else None.

        Raises:
            Corrupt: The file of deployments is damaged.
            JournalUnavailable: It cannot be read.
        """
        wanted = deployment_at(self._recorded(), following)
        return wanted if wanted is not None and self._is_newer(wanted) else None

    def next_since(self, following: Epoch) -> Epoch | None:
        """Return the first epoch of the next deployment that begins after an epoch; None if there is none."""
        begins = (each.since for each in self._recorded() if self._is_newer(each))
        return min((since for since in begins if since > following), default=None)

    def load(self, deployment: Deployment) -> LoadedVersion | None:
        """Load the code of a deployment; later imports of this process find it.

        Returns:
            The version; None if the process has loaded the very source that was deployed.

        Raises:
            PenstockError: The deployment cannot be loaded; the code before it stays in place.
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
        return LoadedVersion(app, location.spec)

    def _served_at_first(self) -> Deployment | None:
        every = self._recorded()
        if is_unpacked(self._data, self._location):
            served = [each for each in every if _is_of(self._location, each)]
        elif self._source is None:
            served = []
        elif every and replaces_source(every[-1], every, self._source):
            served = [each for each in every if is_same_source(self._source, each.code)]
        else:
            served = list(every)
        return served[-1] if served else None

    def _recorded(self) -> tuple[Deployment, ...]:
        try:
            facts = self._path.stat()
        except OSError:
            return ()
        stamp = facts.st_ino, facts.st_mtime_ns, facts.st_size
        if stamp != self._stamp:
            self._every = self._deployments.every()
            self._stamp = stamp
        return self._every

    def _is_newer(self, deployment: Deployment) -> bool:
        """Say whether a deployment is another one than the served one: one without epochs may be replaced."""
        served = self.served
        if served is None:
            return True
        is_same = (deployment.number, deployment.code) == (served.number, served.code)
        return not is_same and deployment.since >= served.since


def _is_of(location: Location, deployment: Deployment) -> bool:
    """Say whether a location is in the unpacked archive of a deployment."""
    return Path(location.folder).name == deployment.code.archive
