"""Checks of the journal's rows, against the commits and against the log.

Each position that an epoch has read from the log must have one row with a reply, in that epoch. An
epoch changes an entity at most once, and each stored state has the shape of its class. A request
that the log still holds must equal the processed one. Rows are checked as columns, one unit of the
journal at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, LogPartition, Lsn, epochs_text, is_system
from penstock.errors import Corrupt, Truncated
from penstock.files.layout import JOURNAL, LOG
from penstock.history.verification.finding import Finding, harmless, unrecoverable
from penstock.journal.api import SCHEMAS, Commit, Journal, PartKind
from penstock.journal.atoms import decode_atom
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import EpochUnit
from penstock.journal.shapes import NAME
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.entity_type import row_head
from penstock.model.shape import is_personal

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


def misplaced(
    rows: pa.Table, part_kind: PartKind, commits: Sequence[Commit], where: str
) -> Iterator[Finding]:
    """Compare the epochs of rows with the epochs whose parts contain them.

    Args:
        rows: The rows of `commits`, in their order, with a column `epoch`.
    """
    counts = [sum(part.rows for part in commit.parts_of(part_kind)) for commit in commits]
    expected = np.repeat([commit.epoch for commit in commits], counts)
    if not np.array_equal(rows["epoch"].to_numpy(), expected):
        yield unrecoverable(
            f"rows of {part_kind} have other epochs than the parts that contain them", where
        )


_REQUESTS: Final = ("epoch", "partition", "lsn", "request_id", "time_us", "request", "reply")
_CHANGED: Final = ("epoch", "entity", "key")
_STATED: Final = (*_CHANGED, "state")
_SHAPES: Final = f"{JOURNAL}/{NAME}"
_DAY_US: Final = 86_400_000_000


class JournalRows:
    """The rows of a journal's undamaged units."""

    def __init__(
        self,
        app: App,
        journal: DeltaJournal,
        log: Log | None,
        progress: Callable[[int, int], None],
    ) -> None:
        """Prepare a check.

        Args:
            log: Its log; None leaves the log out.
            progress: Receives the number of checked units, and of all units.
        """
        self._app = app
        self._stored = journal.schemas()
        self._journal = journal
        self._log = log
        self._progress = progress
        self._former: Commit | None = None

    def look(self, units: Sequence[EpochUnit]) -> Iterator[Finding]:
        """Check the rows of units, which are in the order of epochs."""
        for done, unit in enumerate(units, start=1):
            where = f"{JOURNAL}/{unit.path}"
            before = Epoch(unit.first - 1)
            commits = list(self._journal.commits(before, unit.last))
            if self._former is not None and self._former.epoch != before:
                self._former = None  # the units between are damaged
            try:
                yield from self._commits(commits, where)
                yield from self._requests(commits, where)
                yield from self._changes(commits, where)
                yield from CascadeRows(self._journal, commits, self._former, where).look()
            except Corrupt as error:
                yield unrecoverable(str(error), where)
            self._former = commits[-1]
            self._progress(done, len(units))

    def _commits(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        former = self._former
        for commit in commits:
            if former is not None:
                for partition, lsn in former.positions.items():
                    if commit.positions.get(partition, Lsn(0)) < lsn:
                        what = f"epoch {commit.epoch} begins before {lsn}, where the log was read"
                        yield unrecoverable(what, where)
                if commit.time_us < former.time_us:
                    what = f"epoch {commit.epoch} is older than the one before it"
                    why = (
                        "the clock was set back; AS OF a time between the two gives the later epoch"
                    )
                    yield harmless(what, where, why)
            former = commit
        if commits[-1].time_us > wall_clock_us() + _DAY_US:
            why = "the clock was wrong when it was committed; AS OF a time is wrong near this epoch"
            yield harmless(f"epoch {commits[-1].epoch} has a time in the future", where, why)

    def _requests(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        rows = self._rows(PartKind.TRANSACTIONS, commits, _REQUESTS)
        yield from misplaced(rows, PartKind.TRANSACTIONS, commits, where)
        if rows["reply"].null_count:
            yield unrecoverable(f"{rows['reply'].null_count} requests have no reply", where)
        for partition in sorted(commits[-1].positions):
            in_partition = rows.filter(pc.equal(rows["partition"], partition)).sort_by("lsn")
            yield from self._positions(in_partition, partition, commits, where)
            if self._log is not None and not partition:
                yield from self._logged(self._log, in_partition)

    def _positions(
        self, rows: pa.Table, partition: LogPartition, commits: Sequence[Commit], where: str
    ) -> Iterator[Finding]:
        """Compare the positions of rows (sorted) with the ranges that the commits have read."""
        lsns = rows["lsn"].to_numpy()
        ends = np.array([commit.positions.get(partition, 0) for commit in commits])
        start = 0 if self._former is None else self._former.positions.get(partition, 0)
        if self._former is None and commits[0].epoch > 0:  # the start of its range is unknown
            start = lsns[0] if len(lsns) else ends[-1]
        if not np.array_equal(lsns, np.arange(start, ends[-1])):
            yield unrecoverable(
                f"the commits of {epochs_text(commits[0].epoch, commits[-1].epoch)} have passed the positions "
                f"{start} to {ends[-1] - 1} of the log, and have rows of other positions",
                where,
            )
            return
        epochs = commits[0].epoch + np.searchsorted(ends, lsns, side="right")
        if not np.array_equal(epochs, rows["epoch"].to_numpy()):
            yield unrecoverable(
                "requests lie in other epochs than those that have passed them", where
            )

    def _logged(self, log: Log, rows: pa.Table) -> Iterator[Finding]:
        """Compare rows with the records that the log still holds."""
        held = rows.filter(pc.greater_equal(rows["lsn"], log.start()))
        if not held.num_rows:
            return
        first, last = held["lsn"][0].as_py(), held["lsn"][-1].as_py()
        try:
            records = log.read(Lsn(first), Lsn(last + 1))
        except Truncated:  # the log was truncated during the check
            return
        except Corrupt:  # `check_log` reports it
            return
        wanted: list[dict[str, Any]] = held.select(
            ["lsn", "request_id", "request", "time_us"]
        ).to_pylist()
        for row, record in zip(wanted, records, strict=True):
            if tuple(row.values()) != msgspec.structs.astuple(record):
                what = f"request {row['request_id']} differs from the log's at {record.lsn}"
                yield unrecoverable(what, LOG)
                return

    def _changes(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        rows = self._rows(PartKind.CHANGES, commits, _STATED)
        yield from misplaced(rows, PartKind.CHANGES, commits, where)
        if rows.group_by(list(_CHANGED)).aggregate([]).num_rows != rows.num_rows:
            yield unrecoverable("an epoch changes an entity twice", where)
        present = rows.filter(pc.is_valid(rows["state"]))
        for name in filterfalse(is_system, pc.unique(present["entity"]).to_pylist()):
            yield from self._shaped(name, present, where)

    def _shaped(self, name: str, rows: pa.Table, where: str) -> Iterator[Finding]:
        """Compare the shape tags of a class's rows with the schema versions that the journal has stored."""
        if name not in self._stored:
            yield unrecoverable(f"there are rows of {name}, and its shape is not stored", _SHAPES)
            return
        of_class = rows.filter(pc.equal(rows["entity"], name))
        wrong = np.ones(of_class.num_rows, dtype=bool)
        for version in self._stored[name]:
            width = 1 if is_personal(version.shape) else len(version.attributes)
            head = row_head(version.shape.tag, width)
            heads = pc.binary_slice(of_class["state"], 0, len(head))
            has_begun = pc.greater_equal(of_class["epoch"], version.since)
            fits = pc.and_(has_begun, pc.equal(heads, pa.scalar(head, pa.binary())))
            wrong &= ~fits.to_numpy()
        if wrong.any():
            yield unrecoverable(f"{wrong.sum()} rows of {name} do not have its shape", where)

    def _rows(
        self, part_kind: PartKind, commits: Sequence[Commit], names: Sequence[str]
    ) -> pa.Table:
        after, upto = Epoch(commits[0].epoch - 1), commits[-1].epoch
        return pa.concat_tables(
            table for _, table in self._journal.rows(part_kind, after, upto, names)
        )
