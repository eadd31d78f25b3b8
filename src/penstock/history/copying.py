"""Copies of files whose size and checksum are known.

A copy gets its name only when it is complete, has the expected checksum and is on the disk.
`sync_tree` makes the names durable. After a crash, `remove_unfinished` removes temporary files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from penstock.errors import OperationalError
from penstock.files import durable
from penstock.files.sealed import size_and_checksum_of

_CHUNK: Final = 1 << 20


class FileEntry(msgspec.Struct, frozen=True):
    """The expected content of a file.

    Attributes:
        path: Relative to the data directory.
        size: Bytes.
        checksum: XXH3-128 of the bytes, hexadecimal.
    """

    path: str
    size: int
    checksum: str

    def __post_init__(self) -> None:
        """Reject paths that leave the directory, because a backup may come from anywhere."""
        if Path(self.path).is_absolute() or ".." in Path(self.path).parts:
            raise ValueError(f"the path {self.path} leaves the directory")
        if not self.checksum.isalnum():
            raise ValueError(f"{self.checksum} is not a checksum")

    def check(self, size: int, checksum: str) -> None:
        """Compare size and checksum of a file with the expected ones."""
        if size != self.size:
            raise FileMismatch(self, f"has {size} bytes instead of {self.size}")
        if checksum != self.checksum:
            raise FileMismatch(self, f"does not have the checksum {self.checksum}")

    def check_file(self, path: Path) -> None:
        """Read the file at `path` and compare it with the expected content.

        Raises:
            FileMismatch: The file is missing or differs.
        """
        try:
            self.check(*size_and_checksum_of(path))
        except FileNotFoundError as error:
            raise FileMismatch(self, "is missing") from error


class FileMismatch(Exception):
    """A file is missing or differs from its entry; the message continues "the file …"."""

    def __init__(self, file: FileEntry, how: str) -> None:
        super().__init__(how)
        self.file = file


@contextmanager
def translating_disk_errors(target: Path) -> Iterator[None]:
    """Raise errors of the disk as `OperationalError`, with the path and the system's reason."""
    try:
        yield
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        raise OperationalError(f"cannot copy to {target}: {error.strerror or error}{at}") from error


def copy(source: Path, target: Path, file: FileEntry) -> None:
    """Copy a file and check the bytes that were read; an existing target is replaced.

    Raises:
        FileMismatch: The source is missing or differs from `file`; the target is unchanged.
        OSError: The disk is full or fails; the target is unchanged.
    """
    temporary = durable.temporary_of(target)
    try:
        with _open_source(source, file) as reader, temporary.open("xb") as writer:
            os.fchmod(writer.fileno(), 0o600)  # the source may be readable by others
            hasher, size = xxhash.xxh3_128(), 0
            while chunk := os.read(reader, _CHUNK):
                hasher.update(chunk)
                size += len(chunk)
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        file.check(size, hasher.hexdigest())
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def link(source: Path, target: Path, file: FileEntry) -> None:
    """Create a hard link to an immutable file, or a copy if the file system has no links.

    Raises:
        FileMismatch, OSError: See `copy`.
    """
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        if not source.exists():
            raise FileMismatch(file, "is missing") from error
        raise
    except OSError:  # another file system, or a file system without links
        copy(source, target, file)


def sync_tree(path: Path) -> None:
    """Make a directory's name and all names below it durable.

    Raises:
        OSError: The disk fails.
    """
    for folder, _, _ in os.walk(path):
        durable.sync_directory(Path(folder))
    durable.sync_directory(path.absolute().parent)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of crashed copies; no copy may be in progress in the folder."""
    for path in folder.glob(f".*{durable.TEMPORARY}*"):
        path.unlink(missing_ok=True)


@contextmanager
def _open_source(source: Path, file: FileEntry) -> Iterator[int]:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileMismatch(file, "is missing") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
