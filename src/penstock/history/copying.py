"""Copies of files whose size and checksum are known, from any shared root to any other.

A copy gets its name only when it is complete, has the expected checksum and is stored. In a folder, `settle` or `sync_tree`
makes the names durable.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import xxhash

from penstock.errors import OperationalError
from penstock.files import durable
from penstock.files.file_entry import FileEntry, FileMismatch
from penstock.files.local_root import LocalRoot
from penstock.files.shared_root import SharedRoot

_CHUNK: Final = 1 << 20
_AT_ONCE: Final = 8
"""Copies at the same time, from or to an object store."""


@contextmanager
def translating_disk_errors(target: object) -> Iterator[None]:
    """Raise errors of the disk or of a store as `OperationalError`, with the name of the target and the reason."""
    try:
        yield
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        raise OperationalError(f"cannot copy to {target}: {error.strerror or error}{at}") from error


def copy(source: SharedRoot, name: str, target: SharedRoot, copied: str, file: FileEntry) -> None:
    """Copy a name of one root to a name of another, and check the bytes that were read; an existing name is replaced.

    Raises:
        FileMismatch: The source is missing or differs from `file`; the target is unchanged.
        OSError: The disk is full or fails, or a store does; the target is unchanged.
    """
    with target.scratch(copied) as path:
        try:
            with source.reading(name) as original:
                file.check(*_copied_bytes(original, path))
        except FileNotFoundError as error:
            raise FileMismatch(file, "is missing") from error
        target.take(path, copied)


def _copied_bytes(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file; return the size and the checksum of what was read."""
    hasher, size = xxhash.xxh3_128(), 0
    with source.open("rb", buffering=0) as reader, target.open("xb") as writer:
        os.fchmod(writer.fileno(), 0o600)  # the source may be readable by others
        while chunk := reader.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
            writer.write(chunk)
    return size, hasher.hexdigest()


def copy_all(
    source: SharedRoot,
    target: SharedRoot,
    copies: Sequence[tuple[str, str, FileEntry]],
    check: Callable[[], None] = lambda: None,
) -> Iterator[FileEntry]:
    """Copy many names (name, name of the copy, expected content), and yield each content after its copy is there.

    Args:
        check: Called before each copy; what it raises ends all.

    Raises:
        FileMismatch, OSError: See `copy`.
    """

    def copy_one(name: str, copied: str, file: FileEntry) -> FileEntry:
        check()
        copy(source, name, target, copied, file)
        return file

    if not (source.answers_prove or target.answers_prove):
        for each in copies:
            yield copy_one(*each)
        return
    # An answer of a store takes longer than its work.
    pool = ThreadPoolExecutor(_AT_ONCE, "penstock-copy")
    try:
        for done in as_completed([pool.submit(copy_one, *each) for each in copies]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def link(source: LocalRoot, target: LocalRoot, file: FileEntry) -> None:
    """Create a hard link to an immutable file, or a copy if the file system has no links.

    Raises:
        FileMismatch, OSError: See `copy`.
    """
    original, path = source.path / file.path, target.path / file.path
    try:
        os.link(original, path)
    except FileNotFoundError as error:
        if not original.exists():
            raise FileMismatch(file, "is missing") from error
        raise
    except OSError:  # another file system, or a file system without links
        copy(source, file.path, target, file.path, file)


def sync_tree(path: Path) -> None:
    """Make a directory's name and all names below it durable.

    Raises:
        OSError: The disk fails.
    """
    for folder, _, _ in os.walk(path):
        durable.sync_directory(Path(folder))
    durable.sync_directory(path.absolute().parent)
