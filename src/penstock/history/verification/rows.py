"""Checks of the journal's rows: what the epochs say of themselves, and what the log says of them.

Promises that every position that the journal has passed has one row, in the epoch that has passed it,
with a reply; that no epoch changes an entity twice; that every row is of its class's shape; and that a request which the log still holds is
the one that was processed. All of that in columns, a unit of the journal at a time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.errors import Corrupt, Truncated
from penstock.history.verification.finding import Finding, harmless, unrecoverable
from penstock.journal.api import Commit, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import Unit
from penstock.journal.shapes import NAME
from penstock.log.api import Log
from penstock.model.application import App
from penstock.process.data_directory import JOURNAL, LOG

_REQUESTS: Final = ("epoch", "partition", "lsn", "request_id", "time_us", "request", "reply")
_CHANGED: Final = ("epoch", "entity", "key")
_STATED: Final = (*_CHANGED, "state")
_SHAPES: Final = f"{JOURNAL}/{NAME}"
_DAY_US: Final = 86_400_000_000


class JournalRows:
    """The rows of a journal's sound units."""

    def __init__(
        self,
        app: App,
        journal: DeltaJournal,
        log: Log | None,
        told: Callable[[int, int], None],
    ) -> None:
        """Name application, journal and log; `told` hears how many units are done, of how many."""
        self._app = app
        self._stored = journal.shapes()
        self._journal = journal
        self._log = log
        self._told = told
        self._former: Commit | None = None

    def look(self, units: Sequence[Unit]) -> Iterator[Finding]:
        """Check the rows of some units, in order."""
        for done, unit in enumerate(units, start=1):
            where = f"{JOURNAL}/{unit.path}"
            before = Epoch(unit.first - 1)
            commits = list(self._journal.commits(before, unit.last))
            if self._former is not None and self._former.epoch != before:
                self._former = None  # what lies between is damaged
            try:
                yield from self._commits(commits, where)
                yield from self._requests(commits, where)
                yield from self._changes(commits, where)
            except Corrupt as error:
                yield unrecoverable(str(error), where)
            self._former = commits[-1]
            self._told(done, len(units))

    def _commits(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        former = self._former
        for one in commits:
            if former is not None:
                for partition, lsn in former.positions.items():
                    if one.positions.get(partition, Lsn(0)) < lsn:
                        yield unrecoverable(
                            f"epoch {one.epoch} goes back in the log, from {lsn}", where
                        )
                if one.time_us < former.time_us:
                    why = "the clock went back; a time between the two means the later epoch"
                    yield harmless(f"epoch {one.epoch} is older than the one before it", where, why)
            former = one
        if commits[-1].time_us > time.time_ns() // 1_000 + _DAY_US:
            why = "the clock was wrong when it was committed; AS OF a time goes wrong there"
            yield harmless(f"epoch {commits[-1].epoch} is of the future", where, why)

    def _requests(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        rows = self._rows(PartKind.TRANSACTIONS, commits, _REQUESTS)
        yield from misplaced(rows, PartKind.TRANSACTIONS, commits, where)
        if rows["reply"].null_count:
            yield unrecoverable(f"{rows['reply'].null_count} requests have no reply", where)
        for partition in sorted(commits[-1].positions):
            mine = rows.filter(pc.equal(rows["partition"], partition)).sort_by("lsn")
            yield from self._positions(mine, partition, commits, where)
            if self._log is not None and not partition:
                yield from self._logged(self._log, mine)

    def _positions(
        self, rows: pa.Table, partition: LogPartition, commits: Sequence[Commit], where: str
    ) -> Iterator[Finding]:
        """Compare the positions of rows with those that the commits have passed."""
        lsns = rows["lsn"].to_numpy()
        ends = np.array([one.positions.get(partition, 0) for one in commits])
        start = 0 if self._former is None else self._former.positions.get(partition, 0)
        if self._former is None and commits[0].epoch > 0:  # where that began is not known
            start = lsns[0] if len(lsns) else ends[-1]
        if not np.array_equal(lsns, np.arange(start, ends[-1])):
            yield unrecoverable(
                f"the epochs {commits[0].epoch} to {commits[-1].epoch} have passed the positions "
                f"{start} to {ends[-1] - 1} of the log, and have rows of others",
                where,
            )
            return
        epochs = commits[0].epoch + np.searchsorted(ends, lsns, side="right")
        if not np.array_equal(epochs, rows["epoch"].to_numpy()):
            yield unrecoverable(
                "requests lie in other epochs than those that have passed them", where
            )

    def _logged(self, log: Log, rows: pa.Table) -> Iterator[Finding]:
        """Compare with what the log still holds."""
        held = rows.filter(pc.greater_equal(rows["lsn"], log.start()))
        if not held.num_rows:
            return
        first, last = held["lsn"][0].as_py(), held["lsn"][-1].as_py()
        try:
            records = log.read(Lsn(first), Lsn(last + 1))
        except Truncated:  # it was truncated just now
            return
        except Corrupt:  # the check of the log has found that
            return
        wanted: list[dict[str, Any]] = held.select(
            ["lsn", "request_id", "request", "time_us"]
        ).to_pylist()
        for row, record in zip(wanted, records, strict=True):
            if tuple(row.values()) != msgspec.structs.astuple(record):
                what = f"request {row['request_id']} is another one in the log, at {record.lsn}"
                yield unrecoverable(what, LOG)
                return

    def _changes(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        rows = self._rows(PartKind.CHANGES, commits, _STATED)
        yield from misplaced(rows, PartKind.CHANGES, commits, where)
        if rows.group_by(list(_CHANGED)).aggregate([]).num_rows != rows.num_rows:
            yield unrecoverable("an epoch changes an entity twice", where)
        present = rows.filter(pc.is_valid(rows["state"]))
        for name in pc.unique(present["entity"]).to_pylist():
            yield from self._shaped(name, present, where)

    def _shaped(self, name: str, rows: pa.Table, where: str) -> Iterator[Finding]:
        """Compare what the rows of a class begin with with the shape that the journal has of it."""
        if name not in self._stored:
            yield unrecoverable(
                f"there are rows of {name}, and how it is stored is not recorded", _SHAPES
            )
            return
        head = self._app.entities[name].row_head
        states = rows.filter(pc.equal(rows["entity"], name))["state"]
        heads = pc.binary_slice(states, 0, len(head))
        other = pc.sum(pc.not_equal(heads, pa.scalar(head, pa.binary()))).as_py()
        if other:
            yield unrecoverable(f"{other} rows of {name} are not of its shape", where)

    def _rows(self, kind: PartKind, commits: Sequence[Commit], names: Sequence[str]) -> pa.Table:
        after, upto = Epoch(commits[0].epoch - 1), commits[-1].epoch
        return pa.concat_tables(table for _, table in self._journal.rows(kind, after, upto, names))


def misplaced(
    rows: pa.Table, kind: PartKind, commits: Sequence[Commit], where: str
) -> Iterator[Finding]:
    """Compare the epochs of rows with those of the parts that they lie in."""
    counts = [sum(part.rows for part in one.parts_of(kind)) for one in commits]
    expected = np.repeat([one.epoch for one in commits], counts)
    if not np.array_equal(rows["epoch"].to_numpy(), expected):
        yield unrecoverable(f"rows of {kind} are not of the epochs that list them", where)
