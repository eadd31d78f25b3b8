"""Checks of the journal's rows of cascades: atoms, sent requests, later records.

The numbers of a stream's atoms have no gaps, and each epoch has the atoms that its commit counts. An atom has as
many events as its row says. Each row names a record of its own epoch. Rows are checked as columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, LogPartition, Lsn, epochs_text
from penstock.history.verification.finding import Finding, unrecoverable
from penstock.history.verification.row_epochs import misplaced
from penstock.journal.api import SCHEMAS, Commit, Journal, PartKind
from penstock.journal.atoms import decode_atom

_POSITION: Final = ("epoch", "partition", "lsn")
_COLUMNS: Final[Mapping[PartKind, Sequence[str]]] = {
    PartKind.EVENTS: (*_POSITION, "stream", "atom", "count", "events"),
    PartKind.SENT: (*_POSITION, "reply"),
    PartKind.APPENDS: _POSITION,
}


class CascadeRows:
    """The rows of cascades in consecutive epochs."""

    def __init__(
        self, journal: Journal, commits: Sequence[Commit], former: Commit | None, where: str
    ) -> None:
        """Name the epochs.

        Args:
            former: The commit before them; None if it is not known.
            where: The file to name in a finding.
        """
        self._journal = journal
        self._commits = commits
        self._former = former
        self._where = where
        self._is_start_known = former is not None or commits[0].epoch == 0

    def look(self) -> Iterator[Finding]:
        """Check all rows.

        Raises:
            Corrupt: A part is damaged.
        """
        for part_kind, names in _COLUMNS.items():
            rows = self._rows(part_kind, names)
            yield from misplaced(rows, part_kind, self._commits, self._where)
            yield from self._positions(rows, part_kind)
            if part_kind is PartKind.EVENTS:
                yield from self._atoms(rows)
            if part_kind is PartKind.SENT and (missing := rows["reply"].null_count):
                yield self._finding(f"{missing} sent requests have no reply")

    def _atoms(self, rows: pa.Table) -> Iterator[Finding]:
        """Compare the numbers of atoms with the commits, and their counts with their events."""
        streams = set(pc.unique(rows["stream"]).to_pylist()) | set(self._commits[-1].atoms)
        for stream in sorted(streams | set(self._former.atoms if self._former else ())):
            yield from self._numbers(stream, rows.filter(pc.equal(rows["stream"], stream)))
        stated = rows["count"].to_pylist()
        for count, data in zip(stated, rows["events"].to_pylist(), strict=True):
            if _events_in(data) != count:
                yield self._finding("an atom has another number of events than its row says")
                return

    def _numbers(self, stream: str, rows: pa.Table) -> Iterator[Finding]:
        """Compare the numbers of a stream's atoms with the ranges that the commits have counted."""
        rows = rows.sort_by("atom")
        numbers = rows["atom"].to_numpy()
        ends = np.array([commit.atoms.get(stream, 0) for commit in self._commits])
        start = self._former.atoms.get(stream, 0) if self._former else 0
        if not self._is_start_known:
            start = numbers[0] if len(numbers) else ends[-1]
        if not np.array_equal(numbers, np.arange(start, ends[-1])) or np.any(np.diff(ends) < 0):
            yield self._finding(
                f"the commits count the atoms {start} to {ends[-1] - 1} of stream {stream}, and the rows have others"
            )
        elif not np.array_equal(self._epochs_of(numbers, ends), rows["epoch"].to_numpy()):
            yield self._finding(
                f"atoms of stream {stream} lie in other epochs than those that count them"
            )

    def _positions(self, rows: pa.Table, part_kind: PartKind) -> Iterator[Finding]:
        """Check that each row names a position of the log that its own epoch has read."""
        for number in pc.unique(rows["partition"]).to_pylist():
            partition = LogPartition(number)
            own = rows.filter(pc.equal(rows["partition"], number))
            lsns = own["lsn"].to_numpy()
            ends = np.array([commit.positions.get(partition, 0) for commit in self._commits])
            start = self._former.positions.get(partition, Lsn(0)) if self._former else Lsn(0)
            epochs = self._epochs_of(lsns, ends)
            if np.any(lsns < start) or not np.array_equal(epochs, own["epoch"].to_numpy()):
                yield self._finding(f"rows of {part_kind} name records of other epochs")

    def _epochs_of(
        self, values: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the epoch of each value: int64, shape (values,); `ends` are the ends of the epochs' ranges."""
        epochs: npt.NDArray[np.int64] = np.searchsorted(ends, values, side="right")
        return epochs + self._commits[0].epoch

    def _rows(self, part_kind: PartKind, names: Sequence[str]) -> pa.Table:
        after, upto = Epoch(self._commits[0].epoch - 1), self._commits[-1].epoch
        read = self._journal.rows(part_kind, after, upto, names)
        empty = SCHEMAS[part_kind].empty_table().select(list(names))
        return pa.concat_tables([empty, *(table for _, table in read)])

    def _finding(self, what: str) -> Finding:
        span = epochs_text(self._commits[0].epoch, self._commits[-1].epoch)
        return unrecoverable(f"{what} ({span})", self._where)


def _events_in(data: bytes) -> int:
    """Return the number of events in the column `events`; -1 if it is damaged."""
    try:
        return len(decode_atom(data))
    except msgspec.MsgspecError:
        return -1
