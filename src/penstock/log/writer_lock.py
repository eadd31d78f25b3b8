"""The writers' lock of a log file, and the high-water mark in the lock's file.

One writer at a time holds the lock, over all processes and threads. The lock's file stores how many
entries the log had taken at its newest commit. So a log that has lost acknowledged records is
detected, whether its file or its write-ahead log was damaged, cut, deleted or replaced by an older
one.

The mark is written after the commit was synced, and is not synced itself. After a crash it may be
behind the log; it is never ahead of it. A mark that does not fit its checksum is ignored.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import xxhash

from penstock.errors import LogUnavailable
from penstock.files.lock import KeptLock

_DIGITS: Final = 20
_CHECKSUM_BYTES: Final = 16
_MARK_BYTES: Final = _DIGITS + 1 + _CHECKSUM_BYTES + 1


class HighWaterMark:
    """The entry count at the newest commit; usable while the lock is held."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> int | None:
        """Return the count; None if it was never written or cannot be read."""
        text = os.pread(self._descriptor, _MARK_BYTES, 0)
        digits = text[:_DIGITS]
        return int(digits) if digits and text == _with_checksum(digits) else None

    def write(self, count: int) -> None:
        """Store the count. A failure does no harm: the mark is then behind the log."""
        with suppress(OSError):
            os.pwrite(self._descriptor, _with_checksum(b"%0*d" % (_DIGITS, count)), 0)


class WriterLock:
    """Lets one writer at a time into a log."""

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self.path = path
        self._timeout_s = timeout_ms / 1000
        self._lock = KeptLock(path)

    @contextmanager
    def held(self) -> Iterator[HighWaterMark]:
        """Hold the lock; lend the high-water mark.

        Raises:
            OSError: The lock's file cannot be opened.
        """
        with self._lock.held(self._timeout_s) as descriptor:
            if descriptor is None:
                raise LogUnavailable(f"{self.path}: another writer held the log for too long")
            yield HighWaterMark(descriptor)

    def close(self) -> None:
        """Close the lock's file; idempotent."""
        self._lock.close()


def _with_checksum(digits: bytes) -> bytes:
    return digits + b" " + xxhash.xxh3_64_hexdigest(digits).encode() + b"\n"
