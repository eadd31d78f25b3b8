"""Files that stay: creation, publication and replacement that a power loss cannot tear.

Promises that a name appears only after the bytes behind it are on the disk, and that what a call
has returned from is durable. Leaves to its callers what the files mean. The functions raise
`OSError`; `storage` is the one place that translates it.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.errors import JournalUnavailable

TEMPORARY: Final = ".tmp"


@contextmanager
def storage(doing: str) -> Iterator[None]:
    """Translate a failure of the disk.

    Raises:
        JournalUnavailable: Says what was being done, and the operating system's reason.
    """
    try:
        yield
    except OSError as error:
        raise JournalUnavailable(f"cannot {doing}: {error.strerror or error}") from error


def create(path: Path, data: bytes | memoryview) -> None:
    """Create a file and make its bytes durable; a failure leaves no file.

    Raises:
        FileExistsError: The name is taken.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, memoryview(data))
        os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def publish(path: Path, data: bytes) -> None:
    """Create a file that is whole from the moment it is visible, unless the name is taken.

    The name itself is durable after `sync_directory`, which is left to the caller because the
    caller must know which of the two failed.

    Raises:
        FileExistsError: The name is taken, and what it names is untouched.
    """
    temporary = temporary_of(path)
    create(temporary, data)
    try:
        os.link(temporary, path)  # unlike a rename, it fails where the name is taken
    finally:
        with suppress(OSError):  # once linked, a leftover name is no failure; `sweep` removes it
            temporary.unlink()


def replace(path: Path, data: bytes) -> None:
    """Put a durable file in the place of another; readers see the old one or the new one."""
    temporary = temporary_of(path)
    create(temporary, data)
    temporary.replace(path)
    sync_directory(path.parent)


def temporary_of(path: Path) -> Path:
    """Return a name beside `path` that is nobody else's; Delta readers ignore such names."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")


def sync(path: Path) -> None:
    """Make a file's bytes durable."""
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; what is durable already costs next to nothing."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    # A disk that fills up may take a part of the bytes first and refuse the next call.
    while data:
        data = data[os.write(descriptor, data) :]
