"""Exclusive locks between processes and threads (`flock`).

The kernel frees a lock when its descriptor is closed, also when the holder is killed. A lock does
not reach other hosts on a shared file system.
"""

import errno
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


class KeptLock:
    """The lock of a file whose descriptor stays open, so that no use of it needs a further one. Threads take turns.

    On a disk that was mounted for reading only, the descriptor is for reading only.
    """

    def __init__(self, path: Path) -> None:
        """Name the file, which the first use opens, and creates if it is missing."""
        self._path = path
        self._turn = threading.Lock()
        self._descriptor: int | None = None
        _KEPT.add(self)

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[int | None]:
        """Hold the lock; yields as `locked_file` does."""
        deadline = time.monotonic() + timeout_s
        if not self._turn.acquire(timeout=timeout_s):
            yield None
            return
        try:
            descriptor = self._opened()
            is_held = _acquired(descriptor, max(0.0, deadline - time.monotonic()))
            try:
                yield descriptor if is_held else None
            finally:
                if is_held:
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        with self._turn:
            self._drop()

    def _opened(self) -> int:
        """Return the descriptor of the file that has the path now: another one may have replaced it."""
        if self._descriptor is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                    return self._descriptor
            self._drop()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptor

    def _drop(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def forget(self) -> None:
        """Give the descriptor up in a forked child: else the child would keep the lock of a parent that dies."""
        self._turn = threading.Lock()
        self._drop()

    def __del__(self) -> None:
        self._drop()


_KEPT: Final[weakref.WeakSet[KeptLock]] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_KEPT):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


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
