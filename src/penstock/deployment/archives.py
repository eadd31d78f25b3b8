"""Source archives: the source of each deployment, as one file that its content names.

An archive is a zip file without compression, with sorted names and fixed times, so that equal sources
have equal bytes. Its name is the SHA-256 of these bytes. Archives lie in the folder `archives` of the
data directory and are never changed; a changed archive is found by its name.
"""

import hashlib
import io
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import Corrupt, OperationalError, PenstockError
from penstock.files.layout import ARCHIVES
from penstock.files.roots import shared_root

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
    """The archives of one application."""

    def __init__(self, data: Path) -> None:
        self._root = shared_root(data)

    def names(self) -> list[str]:
        """Return the names of all archives."""
        files = self._root.names(ARCHIVES)
        return sorted(file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX))

    def has(self, name: str) -> bool:
        """Say whether an archive is there, perhaps damaged."""
        return self._root.has(file_of(name))

    def put(self, archive: bytes) -> str:
        """Store an archive durably, unless it is there undamaged; return its name.

        Raises:
            OSError: The disk is full or fails.
        """
        name = hash_of(archive)
        # Also if it is there: its time of grace begins again.
        self._root.make_folders(ARCHIVES)
        self._root.replace(file_of(name), archive)
        return name

    def read(self, name: str) -> bytes:
        """Return the bytes of an archive, which are those that its name tells.

        Raises:
            Corrupt: The archive is missing, or was changed.
            OperationalError: It cannot be read.
        """
        path = f"{self._root}/{file_of(name)}"
        try:
            archive = self._root.get(file_of(name))
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
        count = 0
        for file in list(self._root.names(ARCHIVES)):
            # A file on its way to a name has a longer name.
            if _SUFFIX not in file or file.removesuffix(_SUFFIX) in needed:
                continue
            # One that does not exist any more has no age.
            if self._root.age_s(f"{ARCHIVES}/{file}") >= grace_s:
                self._root.remove(f"{ARCHIVES}/{file}")
                count += 1
        if count:
            self._root.settle(ARCHIVES)
        return count


def file_of(name: str) -> str:
    """Return the name of the file of an archive, in the shared root."""
    return f"{ARCHIVES}/{name}{_SUFFIX}"
