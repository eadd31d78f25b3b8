"""Source archives: the source of each deployment, as one file that its content names.

An archive is a zip file without compression, with sorted names and fixed times, so that equal sources
have equal bytes. Its name is the SHA-256 of these bytes. Archives lie in the folder `archives` of the
data directory and are never changed; a changed archive is found by its name.
"""

import hashlib
import io
import math
import os
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import Corrupt, OperationalError, PenstockError
from penstock.files import durable
from penstock.files.layout import ARCHIVES

_SUFFIX: Final = ".zip"
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o600
_UNIX: Final = 3


def without_folder(text: str, folder: Path | str) -> str:
    """Return a text with the paths that the files of an archive have in it, and not in the folder where it is unpacked."""
    return text.replace(f"{folder}/", "").replace(str(folder), "the archive")


@contextmanager
def own_paths(folder: Path) -> Iterator[None]:
    """Let errors name the files of an archive without the folder where it is unpacked, while the block runs."""
    try:
        yield
    except PenstockError as error:
        error.args = tuple(
            without_folder(part, folder) if isinstance(part, str) else part for part in error.args
        )
        raise


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of an archive with these files; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, content in sorted(files.items()):
            entry = zipfile.ZipInfo(path, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _MODE << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def write_files(files: Mapping[str, bytes], target: Path) -> None:
    """Write the files of an archive below a directory, which is created if it is missing.

    Raises:
        OSError: The disk is full or fails.
    """
    for path, content in files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def hash_of(archive: bytes) -> str:
    """Return the name of an archive: 64 hexadecimal digits."""
    return hashlib.sha256(archive).hexdigest()


class Archives:
    """The archives of one data directory."""

    def __init__(self, data: Path) -> None:
        """Name the data directory; nothing is read yet."""
        self.folder = data / ARCHIVES

    def path_of(self, name: str) -> Path:
        """Return the file of an archive."""
        return self.folder / f"{name}{_SUFFIX}"

    def paths(self) -> list[Path]:
        """Return the files of all archives."""
        return sorted(self.folder.glob(f"*{_SUFFIX}"))

    def put(self, archive: bytes) -> str:
        """Store an archive durably, unless it is there undamaged; return its name.

        Raises:
            OSError: The disk is full or fails.
        """
        name = hash_of(archive)
        path = self.path_of(name)
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700)
            durable.sync_directory(self.folder.parent)
        if not path.is_file() or path.read_bytes() != archive:
            durable.replace(path, archive)
        else:
            os.utime(path)  # its time of grace begins again
        return name

    def read(self, name: str) -> bytes:
        """Return the bytes of an archive, which are those that its name tells.

        Raises:
            Corrupt: The archive is missing, or was changed.
            OperationalError: It cannot be read.
        """
        path = self.path_of(name)
        try:
            archive = path.read_bytes()
        except FileNotFoundError as error:
            raise Corrupt(f"{path} is missing; put the file back from a backup") from error
        except OSError as error:
            raise OperationalError(f"cannot read {path}: {error.strerror}") from error
        if hash_of(archive) != name:
            raise Corrupt(f"{path} was changed; put the file back from a backup")
        return archive

    def files(self, name: str) -> dict[str, bytes]:
        """Return the content of each file in an archive.

        Raises:
            Corrupt, OperationalError: See `read`.
        """
        with zipfile.ZipFile(io.BytesIO(self.read(name))) as opened:
            return {entry.filename: opened.read(entry) for entry in opened.infolist()}

    def unpack(self, name: str, target: Path) -> None:
        """Write the files of an archive below a directory, which is created if it is missing.

        Raises:
            Corrupt, OperationalError: See `files`; or a file cannot be written.
        """
        contents = self.files(name)
        try:
            write_files(contents, target)
        except OSError as error:
            raise OperationalError(f"cannot write to {target}: {error.strerror}") from error

    def remove_others(self, needed: Collection[str], grace_s: float = 0.0) -> int:
        """Remove the archives that are not in `needed`, and return their number.

        Args:
            grace_s: An archive that was stored within these seconds stays, too.

        Raises:
            OSError: The disk fails.
        """
        until = time.time() - grace_s
        others = [path for path in self.folder.glob(f"*{_SUFFIX}*") if path.stem not in needed]
        surplus = [path for path in others if _stored_at(path) <= until]
        for path in surplus:
            path.unlink(missing_ok=True)
        if surplus:
            durable.sync_directory(self.folder)
        return len(surplus)


def _stored_at(path: Path) -> float:
    """Return when a file was stored, in seconds; a temporary file that has got its name meanwhile was stored just now."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf
