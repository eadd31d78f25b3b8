"""Copying files that must arrive as they were written.

Promises that a copy has its name only when it is whole, has the checksum that it must have, and is on
the disk; names become durable by `sync_tree`. A crash leaves temporary names, which `remove_unfinished`
knows.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import xxhash

from penstock.errors import OperationalError
from penstock.files import durable
from penstock.history.backup_set import FileEntry, FileMismatch

_CHUNK: Final = 1 << 20


@contextmanager
def storing(where: Path) -> Iterator[None]:
    """Translate a failure of the disk.

    Raises:
        OperationalError: Says where it was, and the operating system's reason.
    """
    try:
        yield
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        raise OperationalError(f"cannot copy to {where}: {error.strerror or error}{at}") from error


def copy(source: Path, target: Path, file: FileEntry) -> None:
    """Copy a file, and check what was read; what is there already is replaced.

    Raises:
        Unlike: The source is missing, or is not as it must be; there is no copy.
        OSError: The disk is full or fails; there is no copy.
    """
    temporary = durable.temporary_of(target)
    try:
        with _opened(source, file) as reading, temporary.open("xb") as writing:
            os.fchmod(writing.fileno(), 0o600)  # also of what an older version wrote for all
            hasher, size = xxhash.xxh3_128(), 0
            while chunk := os.read(reading, _CHUNK):
                hasher.update(chunk)
                size += len(chunk)
                writing.write(chunk)
            writing.flush()
            os.fsync(writing.fileno())
        check(file, size, hasher.hexdigest())
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def link(source: Path, target: Path, file: FileEntry) -> None:
    """Give a file that nobody ever changes a second name, where the file system can; else copy it.

    Raises:
        Unlike, OSError: As for `copy`.
    """
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        if not source.exists():
            raise FileMismatch(file, "is missing") from error
        raise
    except OSError:  # another file system, or one without links
        copy(source, target, file)


def check(file: FileEntry, size: int, checksum: str) -> None:
    """Compare what was read with what must be.

    Raises:
        Unlike: It differs.
    """
    if size != file.size:
        raise FileMismatch(file, f"has {size} bytes instead of {file.size}")
    if checksum != file.checksum:
        raise FileMismatch(file, f"does not have the checksum {file.checksum}")


def sync_tree(path: Path) -> None:
    """Make all names below a directory durable, and its own.

    Raises:
        OSError: The disk fails.
    """
    for folder, _, _ in os.walk(path):
        durable.sync_directory(Path(folder))
    durable.sync_directory(path.absolute().parent)


def remove_unfinished(folder: Path) -> None:
    """Remove what crashes have left in a folder in which nobody copies now."""
    for path in folder.glob(f".*{durable.TEMPORARY}*"):
        path.unlink(missing_ok=True)


@contextmanager
def _opened(source: Path, file: FileEntry) -> Iterator[int]:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileMismatch(file, "is missing") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
