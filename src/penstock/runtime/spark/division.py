"""Division: an epoch that fails is tried in halves, until the request that fails it is alone.

Epochs may be cut anywhere, so a half that succeeds is committed like any other epoch. In an epoch of
n requests with one bad request, that request runs in at most log2(n) + 2 attempts. The driver then
decides whether the request or the environment is the cause.

Each attempt is noted in a file before it runs, so that the next driver continues the division after
the driver has died.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.runtime.spark.quarantine import read_note

DEATHS_MAX: Final = 3
"""Deaths of the driver that accuse a request which runs alone; fewer can be accidents."""


_NOTE_BYTES: Final = 128
"""The length of each note; it is longer than any note of a former version, whose file stays."""


class Attempt(msgspec.Struct, frozen=True):
    """An attempt at an epoch, noted before it began.

    Attributes:
        deaths: Drivers that had died while the first of these requests ran alone.
    """

    epoch: Epoch
    records: int
    deaths: int


class Division:
    """Decides how many requests the next epoch takes.

    Attributes:
        suspects: The number of next requests of which at least one fails its epoch; 0: none known.
        deaths: Drivers that died while the next request ran alone.
    """

    def __init__(self, path: Path, records_max: int) -> None:
        self._path = path  # keeps the newest attempt, for the driver that follows a dead one
        self._records_max = records_max
        self._width = records_max
        self.suspects = 0
        self.deaths = 0

    @property
    def width(self) -> int:
        """The most requests of the next epoch."""
        return max(1, self.suspects // 2) if self.suspects else self._width

    def recall(self, last: Epoch, scratch: Path) -> None:
        """Continue the division of a driver that died after the commit of the epoch `last`.

        Args:
            scratch: The directory with the notes of the tasks of earlier runs.
        """
        try:
            attempt = msgspec.json.decode(self._path.read_bytes(), type=Attempt)
        except (OSError, msgspec.MsgspecError):
            return
        if attempt.epoch != last + 1:
            return
        self.suspects = attempt.records
        if attempt.records == 1:
            notes = (read_note(path) for path in scratch.glob(f"*/e{attempt.epoch}-*.running"))
            self.deaths = attempt.deaths + any(note is not None for note in notes)

    def begin(self, epoch: Epoch, records: int) -> None:
        """Note an attempt; without a note where the disk is full."""
        if records > 1:
            self.deaths = 0
        note = msgspec.json.encode(Attempt(epoch, records, self.deaths)).ljust(_NOTE_BYTES)
        with suppress(OSError):
            # In place: to truncate the file and to fill it again is a change of the file system's journal, which waits for
            # the one that an fsync is about to write.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, note, 0)
            finally:
                os.close(descriptor)

    def failed(self, records: int) -> None:
        """Halve the next epoch after a failed attempt with so many requests."""
        self.suspects = records
        self._width = max(1, records // 2)

    def committed(self, records: int) -> None:
        """Double the next epoch after a commit, unless a bad request is still ahead."""
        self.suspects = max(0, self.suspects - records)
        self.deaths = 0
        if not self.suspects:
            self._width = min(self._records_max, 2 * self._width)
