"""Exclusive locks between processes and threads (`flock`).

The kernel frees a lock when its descriptor is closed, also when the holder is killed. A lock does
not reach other hosts on a shared file system.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_POLL_FIRST_S: Final = 0.0002
_POLL_LAST_S: Final = 0.002


class Claimed(Exception):
    """Another process has claimed a file.

    Attributes:
        holder: The process id of the holder, as text; `unknown` if it has not written it yet.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"process {holder} holds the lock")
        self.holder = holder


@contextmanager
def locked_file(path: Path, timeout_s: float | None = None) -> Iterator[int | None]:
    """Hold the lock of a file, which is created if it is missing.

    Yields the file's descriptor, or None if the lock was not free in time. Without a timeout the
    call waits as long as it takes.
    """
    # The file is opened for each use, so that a forked child does not share the lock for long.
    yield from _holding(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), timeout_s)


@contextmanager
def locked_directory(path: Path, timeout_s: float | None = None) -> Iterator[int | None]:
    """Hold the lock of a directory that exists; yields as `locked_file` does."""
    yield from _holding(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), timeout_s)


def claim(path: Path) -> int:
    """Lock a file until its descriptor, which is returned, is closed or this process ends.

    The file holds the id of the process, for the message of the next process that tries.

    Raises:
        Claimed: Another process holds the lock.
        OSError: The file cannot be written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _acquired(descriptor, timeout_s=0):
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            raise Claimed(holder or "unknown")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _holding(descriptor: int, timeout_s: float | None) -> Iterator[int | None]:
    try:
        yield descriptor if _acquired(descriptor, timeout_s) else None
    finally:
        os.close(descriptor)  # also frees the lock


def _acquired(descriptor: int, timeout_s: float | None) -> bool:
    if timeout_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + timeout_s
    pause_s = _POLL_FIRST_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _POLL_LAST_S)
        else:
            return True
