"""Source archives that a client sends: they are unpacked and read here, and their code never runs in this process."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from penstock.deployment.archives import own_paths, write_files
from penstock.deployment.loading import Location, locate
from penstock.deployment.source import SOURCE_BYTES_MAX
from penstock.errors import RequestError
from penstock.files.durable import storage
from penstock.files.temporary_folder import temporary_folder

UPLOAD_BYTES_MAX: Final = SOURCE_BYTES_MAX + (8 << 20)
"""The most bytes of an archive: its files, and their names."""

FILES_MAX: Final = 20_000


@contextmanager
def unpacked_upload(archive: bytes, app: str) -> Iterator[str]:
    """Unpack an archive into a temporary folder while the block runs; errors name files without this folder.

    Args:
        archive: The bytes of the archive, as `pack` returns them.
        app: `module:name`; of a set, `name=module:name,module:name`.

    Yields:
        The application in that folder, as for `locate`.
    """
    files = _files_of(archive)
    with ExitStack() as stack:
        with storage("unpack an archive"):
            folder = stack.enter_context(temporary_folder("upload")).resolve()
            write_files(files, folder)
        with own_paths(folder):
            yield _spec_in(folder, app)


def _spec_in(folder: Path, app: str) -> str:
    """Return an application in a folder as a text for `locate`, which checks the names."""
    name, equals, listed = app.rpartition("=")
    if equals:
        spec = Location(listed, name, str(folder), None).spec
    else:
        module, _, attribute = app.partition(":")
        spec = Location(module, attribute, str(folder), None).spec
    for part in locate(spec).applications:
        if part.folder != str(folder):
            raise RequestError(f"app={app} is not module:name")
    return spec


def _files_of(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive that a client has sent."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entries = opened.infolist()
            if len(entries) > FILES_MAX:
                raise RequestError(f"an archive has at most {FILES_MAX} files")
            for entry in entries:
                _check_entry(entry)
            if sum(entry.file_size for entry in entries) > UPLOAD_BYTES_MAX:
                raise RequestError("the files of the archive overlap")
            files = {entry.filename: opened.read(entry) for entry in entries}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise RequestError(f"the body is no archive of a source: {error}") from error
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    if both := folders.intersection(files):
        raise RequestError(f"the archive has a file and a folder of one name: {min(both)!r}")
    return files


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Check that a file is stored as it is, below the folder of the archive."""
    path = PurePosixPath(entry.filename)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise RequestError("the archive of a source is not compressed")
    if path.is_absolute() or ".." in path.parts or "\0" in entry.filename or entry.is_dir():
        raise RequestError(f"the archive has a path that it must not have: {entry.filename!r}")
