"""`LeaseMark`: the newest epoch and the number of changes in the lease, so that processes at rest ask an object store for the lease alone.

The holder of the lease changes it each second, and tells in it the newest epoch. A process that changes a small file for which others
look, such as an order, a pause or the list of deployments, counts the change in the lease, too (`changed`). A process compares the mark
with that of its last look: if both are equal, nothing is new.

One process of a host reads the lease for all of them. The driver and a standby have it anyway, and leave the mark in a file of their
host (`LeaseMarks.note`). Where neither runs, a process that needs the mark reads the lease when that file is older than `FRESH_S`.

Nothing is decided by a mark: it only says when to look. A process that looks for nothing else still looks after `UNTOLD_S`, because a
writer may end between its change and the count.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.files.layout import RUN
from penstock.files.lock import locked_file

FRESH_S: Final = 2.5
"""A mark of this age is used. The driver and a standby leave a new one sooner."""
UNTOLD_S: Final = 300.0
"""The longest pause between two looks of a process that the mark tells of nothing."""


class LeaseMark(msgspec.Struct, frozen=True):
    """The part of the lease that processes at rest need.

    Attributes:
        run: The id of the holder, another one for each process.
        epoch: The newest epoch of which the holder has told.
        changes: How often small files have been changed; None if the holder is of a version that does not count.
    """

    run: str
    epoch: Epoch = BEFORE_FIRST
    changes: int | None = None


def changed(present: bytes | None) -> bytes | None:
    """Return the bytes of a lease that counts one more change; None without a lease, or if the lease has no count."""
    try:
        lease = msgspec.json.decode(present or b"null", type=dict[str, object] | None)
    except msgspec.MsgspecError:
        return None
    if lease is None or not isinstance(count := lease.get("changes"), int):
        return None
    return msgspec.json.encode({**lease, "changes": count + 1})


class LeaseMarks:
    """The marks of a shared root, for a process of a host; safe for threads.

    Args:
        host: The folder of the host.
        place: The place of the root: a host may also read a copy of the application elsewhere.
        read: Reads the lease; None without a lease.
    """

    def __init__(self, host: Path, place: str, read: Callable[[], bytes | None]) -> None:
        word = hashlib.sha256(place.encode()).hexdigest()[:8]
        self._path = host / RUN / f"lease-{word}.json"
        self._read = read
        self._known: tuple[tuple[int, int], LeaseMark | None] = (0, 0), None

    def now(self) -> LeaseMark | None:
        """Return the mark, which is a few seconds old at most; None without one, so that each process looks for itself.

        While another thread or process of this host asks the store, the former mark is returned.
        """
        try:
            if not self._is_fresh():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with locked_file(self._path.with_suffix(".lock"), 0) as held:
                    if held is not None and not self._is_fresh():
                        self._leave(self._asked())
            return self._left()
        except OSError:  # of the disk
            return None

    def note(self, lease: bytes | None) -> None:
        """Leave the mark of a lease that this process has read or written, for all processes of this host."""
        with suppress(OSError):  # they read the lease themselves
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._leave(lease)

    def _asked(self) -> bytes | None:
        """Return the lease; None if the store does not answer, which is asked again after `FRESH_S`, and not by each look."""
        with suppress(OSError):  # the look of the caller fails, too, and tells why
            return self._read()
        return None

    def _is_fresh(self) -> bool:
        with suppress(FileNotFoundError):
            return 0 <= time.time_ns() / 1e9 - self._path.stat().st_mtime < FRESH_S
        return False

    def _left(self) -> LeaseMark | None:
        """Return the mark in the file of this host."""
        with suppress(FileNotFoundError):
            facts = self._path.stat()
            if (stamp := (facts.st_ino, facts.st_mtime_ns)) != self._known[0]:
                self._known = stamp, _mark_of(self._path.read_bytes())
            return self._known[1]
        return None

    def _leave(self, lease: bytes | None) -> None:
        mark = None if lease is None else _mark_of(lease)
        passing = self._path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        passing.write_bytes(msgspec.json.encode(mark))
        passing.replace(self._path)


def _mark_of(data: bytes) -> LeaseMark | None:
    try:
        mark = msgspec.json.decode(data, type=LeaseMark | None)
    except msgspec.MsgspecError:
        return None
    return None if mark is None or mark.changes is None else mark
