"""The writers' lock of a log file, and the high-water mark that lies in it.

It promises that one writer at a time passes, in all processes and threads, within a deadline; the
operating system frees the lock when its holder dies. In the lock's file stands how many entries the
log had ever taken after the newest commit, so that a log which has lost acknowledged records, because its file or its
write-ahead log was damaged, cut, deleted or replaced by an older one, does not pass for whole.

The mark is written after the commit was synced and is not synced itself: it may lag behind the
log after a crash, and is never ahead of it. One that does not fit its checksum is ignored.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import xxhash

from penstock.errors import LogUnavailable
from penstock.files.lock import locked_file

_DIGITS: Final = 20
_CHECKSUM_BYTES: Final = 16
_MARK_BYTES: Final = _DIGITS + 1 + _CHECKSUM_BYTES + 1


class WriterLock:
    """Lets one writer at a time through."""

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self.path = path
        self._timeout_s = timeout_ms / 1000

    @contextmanager
    def passing(self) -> Iterator["HighWaterMark"]:
        """Hold the lock; lend the high-water mark.

        Raises:
            LogUnavailable: The lock was not free in time.
            OSError: The lock's file cannot be opened.
        """
        with locked_file(self.path, self._timeout_s) as file:
            if file is None:
                raise LogUnavailable(f"{self.path}: another writer held the log for too long")
            yield HighWaterMark(file)


class HighWaterMark:
    """How far the log's last writer had come; usable while the lock is held."""

    def __init__(self, file: int) -> None:
        self._file = file

    def read(self) -> int | None:
        """Return the count; None when none was ever written, or what was is not legible."""
        text = os.pread(self._file, _MARK_BYTES, 0)
        digits = text[:_DIGITS]
        return int(digits) if digits and text == _legible(digits) else None

    def write(self, reached: int) -> None:
        """Note the count. A failure is no harm: the mark then lags behind."""
        with suppress(OSError):
            os.pwrite(self._file, _legible(b"%0*d" % (_DIGITS, reached)), 0)


def _legible(digits: bytes) -> bytes:
    return digits + b" " + xxhash.xxh3_64_hexdigest(digits).encode() + b"\n"
