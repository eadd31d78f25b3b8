"""Source archives: the source of each deployment, as one file that its content names.

An archive is a zip file without compression, with sorted names and fixed times, so that equal sources
have equal bytes. Its name is the SHA-256 of these bytes. Archives lie in the folder `archives` of the
data directory and are never changed; a changed archive is found by its name.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import OperationalError, PenstockError
from penstock.files.hashed_files import HashedFiles
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


class Archives(HashedFiles):
    """The archives of one application."""

    def __init__(self, data: Path) -> None:
        super().__init__(shared_root(data), ARCHIVES, _SUFFIX)

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


def file_of(name: str) -> str:
    """Return the name of the file of an archive, in the shared root."""
    return f"{ARCHIVES}/{name}{_SUFFIX}"
