"""Feeds for analysts: the events of a stream, or the changes of a class, as Arrow tables by epoch.

The path of the data: `first_epoch` turns a start into an epoch; `spans_of` divides a range of epochs into spans of
about the same size, by the commits alone; `rows_of` reads the rows of one span from the journal. A span names epochs
and no files, so it can be read after its files were merged into a segment. An epoch that retention has removed
is an error, never a gap.

A row of a class is one change: epoch, time, key, kind (`upsert` or `delete`), and the entity after the epoch as the
struct `after`, or NULL. `snapshots.event_table` describes the rows of a stream. This module does not know Spark;
`data_source` does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, epochs_text
from penstock.errors import Diverged, Gone, QueryError, RequestError
from penstock.journal.api import Journal, PartKind, newest_epoch
from penstock.journal.atoms import AtomReader
from penstock.model.application import App, unknown
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.event_table import STORED, EventTable
from penstock.snapshots.table import EntityTable, tables_of

SPAN_BYTES: Final = 2 << 20
"""A span ends with the epoch in which its files reach this size."""

PIECE_ROWS: Final = 20_000
"""A table has at most so many rows and the rows of one atom more."""

_CHANGED: Final = ("epoch", "entity", "key", "state")
_INSTANT: Final = pa.timestamp("us", "UTC")
_UPSERT, _DELETE = "upsert", "delete"


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of a feed; without a number, the oldest epoch that the journal holds.

    Attributes:
        latest: Whether the feed begins after the newest epoch.
    """

    epoch: int | None = None
    atom: int | None = None
    latest: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """The epochs of a single task of Spark.

    Attributes:
        atom: Atoms with a lower number are left out.
    """

    first: Epoch
    last: Epoch
    atom: int = 0


class Feed(Protocol):
    """The rows of one stream or one class."""

    part_kind: PartKind
    stored: tuple[str, ...]
    """The columns of the journal that it needs."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    def tables(self, rows: pa.Table, journal: Journal, atom: int) -> Iterator[pa.Table]:
        """Yield its rows.

        Args:
            atom: Atoms with a lower number are left out.

        Raises:
            Diverged: A value does not fit the code.
        """


class StreamFeed:
    """The events of a stream."""

    part_kind: PartKind = PartKind.EVENTS
    stored: tuple[str, ...] = ("stream", *STORED)

    def __init__(self, app: App, stream: str, *, wide: bool) -> None:
        streams = app.topology.streams
        if stream not in streams:
            raise RequestError(unknown("stream", stream, list(streams)))
        self._name = stream
        self._table = EventTable(streams[stream], wide=wide)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        return pa.schema([pa.field(name, column.arrow) for name, column in self._table.columns])

    def tables(self, rows: pa.Table, journal: Journal, atom: int) -> Iterator[pa.Table]:
        """Yield the events, in the order of atoms."""
        wanted = pc.and_(pc.equal(rows["stream"], self._name), pc.greater_equal(rows["atom"], atom))
        atoms = rows.filter(wanted).sort_by("atom")
        ends = np.cumsum(atoms["count"].to_numpy())
        for piece in _pieces(atoms, ends):
            yield _shown(partial(self._table.rows, piece))


class ClassFeed:
    """The changes of a class."""

    part_kind: PartKind = PartKind.CHANGES
    stored: tuple[str, ...] = _CHANGED

    def __init__(self, app: App, entity: str, *, wide: bool) -> None:
        entity = app.stored_name(entity)
        tables = tables_of(app, [entity] if wide else [])
        if entity not in tables:
            raise RequestError(unknown("class", entity, list(tables)))
        self._name = entity
        self._table: EntityTable = tables[entity]

    @property
    def schema(self) -> pa.Schema:
        """Epoch, time, key, kind, and the entity after the epoch."""
        columns = self._table.columns
        return pa.schema(
            [
                pa.field("epoch", pa.int64()),
                pa.field("time", _INSTANT),
                pa.field("key", columns[0][1].arrow),
                pa.field("kind", pa.string()),
                pa.field("after", pa.struct([(name, column.arrow) for name, column in columns])),
            ]
        )

    def tables(self, rows: pa.Table, journal: Journal, atom: int) -> Iterator[pa.Table]:
        """Yield the changes, in the order of epochs and keys."""
        own = rows.filter(pc.equal(rows["entity"], self._name))
        own = own.sort_by([("epoch", "ascending"), ("key", "ascending")])
        for piece in _pieces(own, np.arange(1, own.num_rows + 1)):
            yield _shown(partial(self._changes, piece, journal))

    def _changes(self, changes: pa.Table, journal: Journal) -> pa.Table:
        exists = pc.is_valid(changes["state"])
        present = changes.filter(exists)
        entities = self._table.rows(present["key"].to_pylist(), present["state"].to_pylist())
        flags = exists.to_numpy()
        places = pa.array(np.cumsum(flags) - 1, mask=~flags)
        epochs = changes["epoch"].to_pylist()
        commits = journal.commits(Epoch(epochs[0] - 1), Epoch(epochs[-1]))
        times = {commit.epoch: commit.time_us for commit in commits}
        return pa.table(
            [
                changes["epoch"],
                pa.array([times[epoch] for epoch in epochs], pa.int64()).cast(_INSTANT),
                self._table.keys(changes["key"].to_pylist())[self._table.key],
                pc.if_else(exists, _UPSERT, _DELETE),
                pc.take(entities.to_struct_array(), places),
            ],
            schema=self.schema,
        )


def first_epoch(journal: Journal, stream: str | None, start: Start) -> Span:
    """Return where a feed begins, as a span without an end: its first epoch and its first atom.

    Args:
        stream: The name of the stream; None for a class.
    """
    last = newest_epoch(journal)
    if start.atom is not None and stream is not None:
        atom = next(AtomReader(journal).atoms(stream, start.atom), None)
        epoch = Epoch(last + 1) if atom is None else atom.epoch
        return Span(epoch, epoch, start.atom)
    epoch = Epoch(last + 1) if start.latest else journal.first()
    if start.epoch is not None:
        epoch = Epoch(start.epoch)
        check_held(journal, epoch)
    if epoch > last + 1:
        held = "no epoch yet" if last < 0 else epochs_text(journal.first(), last)
        raise QueryError(f"a feed cannot begin at epoch {epoch}: the journal holds {held}")
    return Span(epoch, epoch)


def check_held(journal: Journal, epoch: Epoch) -> None:
    """Refuse an epoch that retention has removed."""
    first = journal.first()
    if epoch < first:
        raise Gone(
            f"epoch {epoch} is gone: retention has removed it, and the oldest epoch is {first}; read from there with "
            f'option("start", "{first}") and a new checkpoint, or read older epochs from a backup'
        )


def spans_of(journal: Journal, feed: Feed, span: Span) -> list[Span]:
    """Divide a span into spans for tasks; epochs without rows are left out where no task needs them."""
    spans: list[Span] = []
    begin, size = span.first, 0
    check_held(journal, span.first)
    for commit in journal.commits(Epoch(span.first - 1), span.last):
        size += sum(part.size for part in commit.parts_of(feed.part_kind) if part.rows)
        if size == 0:
            begin = Epoch(commit.epoch + 1)
        elif size >= SPAN_BYTES or commit.epoch == span.last:
            spans.append(Span(begin, commit.epoch, span.atom))
            begin, size = Epoch(commit.epoch + 1), 0
    check_held(journal, span.first)  # the commits of removed epochs are missing without an error
    return spans


def rows_of(journal: Journal, feed: Feed, span: Span) -> Iterator[pa.Table]:
    """Yield the rows of a span; the rows of one epoch or one segment are in memory at a time.

    Raises:
        Diverged: A value does not fit the code.
    """
    try:
        for _, rows in journal.rows(
            feed.part_kind, Epoch(span.first - 1), span.last, list(feed.stored)
        ):
            yield from feed.tables(rows, journal, span.atom)
    except (Diverged, KeyError):
        check_held(journal, span.first)
        raise


def _pieces(rows: pa.Table, ends: np.ndarray) -> Iterator[pa.Table]:
    """Divide rows into tables of about `PIECE_ROWS`.

    Args:
        ends: For each of them, the number of rows that it and all before it will have; int64 of shape (rows,).
    """
    cuts = np.flatnonzero(np.diff(ends // PIECE_ROWS)) + 1
    for begin, end in zip([0, *cuts], [*cuts, rows.num_rows], strict=True):
        if end > begin:
            yield rows.slice(begin, end - begin)


def _shown(build: Callable[[], pa.Table]) -> pa.Table:
    try:
        return build()
    except TooNarrow as error:
        raise QueryError(
            f'a value needs wider columns: {error}; read with option("wide", "true") and a new checkpoint'
        ) from error
