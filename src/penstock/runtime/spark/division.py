"""Division: an epoch that fails is tried in halves, until the request that stops it stands alone.

Epochs may be cut anywhere, so a half that succeeds is committed like any other epoch. Of an epoch of
n requests with one that stops it, at most log2(n) + 2 attempts run that request. What it then does
alone tells whether it is to blame; that is for the driver to judge.

A driver that dies takes its memory along. So each attempt is noted in a file before it runs, and
the next driver goes on from there.
"""

from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.runtime.spark.quarantine import read_note

DEATHS_MAX: Final = 3
"""So often a driver may die while a request runs alone. Somebody may have killed it, so one death
accuses nobody."""


class Attempt(msgspec.Struct, frozen=True):
    """An attempt at an epoch, noted before it began.

    Attributes:
        epoch: The epoch.
        records: Requests that it tried to process.
        deaths: Drivers that had died before while the first of them ran alone.
    """

    epoch: Epoch
    records: int
    deaths: int


class Division:
    """How many requests the next epoch takes.

    Attributes:
        suspects: Among so many requests from the next one on is one that stops its epoch; 0: none.
        deaths: Drivers that died while the next request ran alone.
    """

    def __init__(self, path: Path, records_max: int) -> None:
        """Begin with epochs of up to `records_max` requests; `path` keeps the newest attempt."""
        self._path = path
        self._most = records_max
        self._width = records_max
        self.suspects = 0
        self.deaths = 0

    @property
    def width(self) -> int:
        """Requests that the next epoch takes at most."""
        return max(1, self.suspects // 2) if self.suspects else self._width

    def recall(self, last: Epoch, scratch: Path) -> None:
        """Go on where a driver died, if one did after the epoch `last` and before the next commit.

        Args:
            last: The newest committed epoch.
            scratch: The directory with the notes of earlier runs' tasks.
        """
        left = self._left()
        if left is None or left.epoch != last + 1:
            return
        self.suspects = left.records
        if left.records == 1:
            notes = (read_note(path) for path in scratch.glob(f"*/e{left.epoch}-*.running"))
            self.deaths = left.deaths + any(note is not None for note in notes)

    def begin(self, epoch: Epoch, records: int) -> None:
        """Note an attempt; a disk that takes no note costs the note."""
        if records > 1:
            self.deaths = 0
        try:
            self._path.write_bytes(msgspec.json.encode(Attempt(epoch, records, self.deaths)))
        except OSError:
            return

    def failed(self, records: int) -> None:
        """Take note that an attempt with so many requests failed."""
        self.suspects = records
        self._width = max(1, records // 2)

    def committed(self, records: int) -> None:
        """Take note of a commit; where nothing is suspected, the next epoch may be twice as wide."""
        self.suspects = max(0, self.suspects - records)
        self.deaths = 0
        if not self.suspects:
            self._width = min(self._most, 2 * self._width)

    def _left(self) -> Attempt | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Attempt)
        except (OSError, msgspec.MsgspecError):
            return None
