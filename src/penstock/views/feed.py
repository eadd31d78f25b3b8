"""The feed of a view: the journal as changes of the view's tables.

A view is filled from the newest snapshot and the epochs behind it, in parts, so that its memory is bounded. From then on
it takes batches of whole epochs, in which the last state of each entity counts.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.journal.api import Commit, Journal, PartKind
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.snapshots.states_in_parts import StatesInParts, base_of
from penstock.sql_view.change_batch import ChangeBatch, journal_batches
from penstock.views.tables import ViewTables, merged
from penstock.views.target import Position, TableChange

_STEP: Final = 20_000
"""Entities or atoms that become rows at once: all of their rows are in memory."""

_KINDS: Final = frozenset({PartKind.CHANGES, PartKind.EVENTS})
_EVENT_COLUMNS: Final = ("stream", "atom", "epoch", "time_us", "events")


class Feed:
    """The journal of one data directory, for the tables of one view."""

    def __init__(self, journal: Journal, snapshots: Snapshots) -> None:
        self._journal = journal
        self._snapshots = snapshots
        self._lineage = xxhash.xxh3_128_hexdigest(journal.secret)

    def position(self, epoch: Epoch, definition: str) -> Position:
        """Return the position of a view that shows an epoch."""
        identity = self._journal.identity
        return Position(self._lineage, identity, epoch, self._checksum(epoch), definition)

    def refusal(self, position: Position, newest: Epoch) -> str:
        """Return why the tables at a position cannot be continued; empty if they can."""
        if position.journal != self._journal.identity:
            how = (
                "a copy of this journal" if position.lineage == self._lineage else "another journal"
            )
            return f"its tables were filled from {how}"
        if position.epoch > newest:
            return (
                f"its tables show epoch {position.epoch}, and the journal ends with epoch {newest}: the data directory "
                "was put back to an earlier time"
            )
        is_held = position.epoch >= self._journal.first()
        if is_held and position.checksum != self._checksum(position.epoch):
            return f"its tables show another epoch {position.epoch} than the journal has"
        return ""

    def continues(self, epoch: Epoch) -> bool:
        """Say whether the journal holds all epochs behind an epoch."""
        return epoch + 1 >= self._journal.first()

    def batches(self, after: Epoch, upto: Epoch) -> Iterator[ChangeBatch]:
        """Yield the epochs of (after, upto] as batches."""
        return journal_batches(self._journal, after, upto, _KINDS, lambda: _STEP)

    def filling(self, tables: ViewTables, epoch: Epoch) -> "Filling":
        """Return the rows of all tables at an epoch, which is the newest one or a little older.

        Raises:
            Diverged: Neither the journal nor a snapshot leads to the epoch.
        """
        base = base_of(self._journal, self._snapshots, epoch)
        return Filling(self._journal, self._snapshots, tables, base, epoch)

    def first_atoms(self, streams: Iterable[str]) -> dict[str, int]:
        """Return the first atom of each stream that the journal still holds, or will have."""
        first = self._journal.first()
        before = Epoch(first - 1)
        commit = next(iter(self._journal.commits(before, first)), None)
        if commit is None:
            return dict.fromkeys(streams, 0)
        counts: dict[str, int] = {}
        for _, rows in self._journal.rows(PartKind.EVENTS, before, first, ("stream",)):
            for each in pc.value_counts(rows["stream"]).to_pylist():
                counts[each["values"]] = counts.get(each["values"], 0) + each["counts"]
        return {name: commit.atoms.get(name, 0) - counts.get(name, 0) for name in streams}

    def _checksum(self, epoch: Epoch) -> str:
        """Return a checksum of a commit that no merging of files changes; empty for the empty state."""
        if epoch == BEFORE_FIRST:
            return ""
        for commit in self._journal.commits(Epoch(epoch - 1), epoch):
            return checksum_of(commit)
        raise Corrupt(f"the journal lacks epoch {epoch}")


def commit_time_us(journal: Journal, epoch: Epoch) -> int | None:
    """Return when an epoch was committed, in microseconds since 1970; None if the journal does not hold it."""
    return next((each.time_us for each in journal.commits(Epoch(epoch - 1), epoch)), None)


def checksum_of(commit: Commit) -> str:
    """Return the checksum of what a commit says, without the places of its files."""
    positions = sorted(commit.positions.items())
    facts = (commit.epoch, commit.time_us, positions, sorted(commit.atoms.items()))
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(facts))


def changes_in(batch: ChangeBatch, tables: ViewTables) -> list[TableChange]:
    """Return the changes of a view's tables that follow from a batch."""
    changes: list[TableChange] = []
    for name in sorted(tables.classes & batch.changes.keys()):
        changes += tables.of_states(name, batch.changes[name])
    if batch.events and tables.streams:
        atoms = pa.concat_tables(each.select(_EVENT_COLUMNS) for each in batch.events)
        changes += _of_atoms(tables, atoms)
    return merged(changes)


def _of_atoms(tables: ViewTables, atoms: pa.Table) -> Iterator[TableChange]:
    for name in sorted(tables.streams.intersection(pc.unique(atoms["stream"]).to_pylist())):
        yield from tables.of_atoms(name, atoms.filter(pc.equal(atoms["stream"], name)))


class Filling:
    """The rows of all tables of a view at one epoch, in parts.

    Attributes:
        done: The part of the work that is done, from 0 to 1.
    """

    def __init__(
        self,
        journal: Journal,
        snapshots: Snapshots,
        tables: ViewTables,
        base: Manifest | None,
        epoch: Epoch,
    ) -> None:
        self.done = 0.0
        self._journal = journal
        self._snapshots = snapshots
        self._tables = tables
        self._base = base
        self._epoch = epoch

    def __iter__(self) -> Iterator[TableChange]:
        names = [*sorted(self._tables.classes), *([""] if self._tables.streams else [])]
        for at, name in enumerate(names):
            for share, changes in self._atoms() if not name else self._class(name):
                for change in changes:
                    if change.rows:
                        yield change
                self.done = (at + share) / len(names)
        self.done = 1.0

    def _class(self, name: str) -> Iterator[tuple[float, Iterable[TableChange]]]:
        """Yield the entities of a class, and the part of them that is done."""
        parts = StatesInParts(self._journal, self._snapshots, name, self._base, self._epoch)
        total = max(1, len(parts))
        done = 0
        for rows in parts:
            for step in _steps(rows):
                yield min(1.0, (done + step.num_rows) / total), self._rows_of(name, step)
            done += rows.num_rows

    def _rows_of(self, name: str, step: pa.Table) -> Iterator[TableChange]:
        states = dict(zip(step["key"].to_pylist(), step["state"].to_pylist(), strict=True))
        return self._tables.of_states(name, states)

    def _atoms(self) -> Iterator[tuple[float, Iterable[TableChange]]]:
        first = self._journal.first()
        after = Epoch(first - 1)
        every = self._journal.rows(PartKind.EVENTS, after, self._epoch, _EVENT_COLUMNS)
        for epoch, rows in every:
            for step in _steps(rows):
                yield (
                    (epoch - after) / max(1, self._epoch - after),
                    _of_atoms(self._tables, step),
                )


def _steps(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _STEP):
        yield rows.slice(start, _STEP)
