"""The code of a deployment in a folder: processes import an application from there, whatever happens to its source.

Each archive has a folder of its own below `run/code` of the data directory. The folder is a copy: each use compares it
with the archive, and writes it again if a file differs.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.deployment.archives import Archives, write_files
from penstock.deployment.loading import Location, locate
from penstock.deployment.side_modules import load_beside
from penstock.errors import OperationalError
from penstock.files.layout import JOURNAL, RUN
from penstock.journal.api import Journal
from penstock.journal.deployments import Deployment, Deployments, deployment_at
from penstock.model.application import App
from penstock.model.control import DeployedCode
from penstock.process.data_directory import DataDirectory

CODE: Final = "code"
"""The folder of unpacked archives, below `run`."""

KEPT: Final = 3
"""The newest deployments whose unpacked archives stay at a start."""


def folder_of(data: Path, code: DeployedCode) -> Path:
    """Return the folder where the archive of code is unpacked."""
    return data.absolute() / RUN / CODE / code.archive


def unpacked(data: Path, code: DeployedCode) -> Location:
    """Return the place of an application in the folder of its archive, which is unpacked if it is not there.

    Raises:
        Corrupt: The archive is missing, or was changed.
        OperationalError: The archive cannot be read, or the folder cannot be written.
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


def is_unpacked(data: Path, location: Location) -> bool:
    """Say whether a location is in the folder of an archive."""
    return Path(location.folder).parent == data.absolute() / RUN / CODE


def spec_in_force(data: Path, journal: Journal) -> str | None:
    """Return the application that the next epoch runs with, as `code_in_force` does."""
    code = code_in_force(data, journal)
    return None if code is None else code[0]


def code_in_force(data: Path, journal: Journal) -> tuple[str, Epoch] | None:
    """Return the application that the next epoch runs with, unpacked, and its first epoch; None without a deployment.

    Raises:
        Corrupt: The file of deployments is damaged, or the archive is missing or was changed.
        OperationalError: The disk fails.
    """
    last = journal.last()
    deployment = deployment_in_force(data, None if last is None else last.epoch)
    if deployment is None:
        return None
    return unpacked(data, deployment.code).spec, deployment.since


def load_deployed(data: Path, spec: str) -> App:
    """Import unpacked code beside the modules of this process; its classes read the rows of the journal.

    Raises:
        UserError: The code cannot be imported, or its classes do not fit.
        IntegrityError: A file of the journal is damaged.
    """
    app = load_beside(locate(spec))
    DataDirectory(data).open_journal(app).close()
    return app


def remove_unpacked(data: Path) -> int:
    """Remove the unpacked archives of all but the newest deployments, and return their number.

    A process that still runs an older version may have missed the latest deployments, so some are kept.

    Raises:
        Corrupt: The file of deployments is damaged.
        JournalUnavailable: It cannot be read.
    """
    every = Deployments(data / JOURNAL).every()
    kept = {deployment.code.archive for deployment in every[-KEPT:]}
    surplus = [path for path in (data / RUN / CODE).glob("*") if path.name not in kept]
    for path in surplus:
        shutil.rmtree(path, ignore_errors=True)
    return len(surplus)


def deployment_in_force(data: Path, newest: Epoch | None) -> Deployment | None:
    """Return the deployment that executes the next epoch; None if no deployment is recorded.

    Args:
        data: The data directory.
        newest: The newest epoch of the journal; None before the first.

    Raises:
        Corrupt: The file of deployments is damaged.
        JournalUnavailable: It cannot be read.
    """
    following = Epoch((BEFORE_FIRST if newest is None else newest) + 1)
    return deployment_at(Deployments(data / JOURNAL).every(), following)


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
