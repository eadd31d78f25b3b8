"""The rows that a run of transactions produces, and their way into part files.

A round output is a set of Arrow IPC files on local disk, one for each kind of rows: cheap to write, never synced,
deleted after the epoch. Each row carries a position, so that rows of superseded runs can be dropped: a change has
the position of the record that wrote last, and each other row has the position of its record.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey, Epoch, LogPartition, split_entity_key
from penstock.engine.access import Positions
from penstock.engine.execute import Outcome
from penstock.journal.api import SCHEMAS, PartKind
from penstock.log.api import Record
from penstock.process.held_lines import LineHolder
from penstock.runtime.spark.cascade_columns import NO_ATOMS, POSITION, CascadeRows
from penstock.runtime.spark.step_relay import RelayWriter

_ROOT: Final = pa.field("root", pa.string())  # the method that the request called
_LINES: Final = pa.field("lines", pa.binary())  # that its handlers have written with `logging`
_TRANSACTIONS: Final = SCHEMAS[PartKind.TRANSACTIONS].append(POSITION).append(_ROOT).append(_LINES)
_CHANGES: Final = SCHEMAS[PartKind.CHANGES].append(POSITION)
_FEW: Final = 512
"""The most rows for which Python's code splits keys and repeats the epoch."""

Tables = dict[PartKind, pa.Table]
"""Rows by kind, for kinds that have rows: `SCHEMAS` and a column `position` (uint32); transactions also have `root`
(string) and `lines` (binary)."""


class RoundRows:
    """Collects the rows of one run.

    Attributes:
        relay: Takes the records that may have workflow steps, where another task runs the steps at the same time.
        steps_s: The seconds of the workflow steps.
        lines: The encoded lines of handlers, by the position of their record, for records that have some.
    """

    def __init__(self, epoch: Epoch, relay: RelayWriter | None = None) -> None:
        self._epoch = epoch
        self.relay = relay
        self.steps_s = 0.0
        self.lines: dict[int, bytes] = {}
        self._rows: list[tuple[int, LogPartition, Record, Outcome, str | None]] = []
        self.cascades = CascadeRows()
        self._writers: dict[EntityKey, int] = {}  # the position of the last writer

    def add(
        self,
        position: int,
        partition: LogPartition,
        record: Record,
        outcome: Outcome,
        root: str | None,
    ) -> None:
        """Add a transaction, without its writes.

        Args:
            root: The method that the request called; None if the method does not exist.
        """
        self._rows.append((position, partition, record, outcome, root))

    def wrote(self, position: int, keys: Iterable[EntityKey]) -> None:
        """Note that a record has written some keys, later than all records before it."""
        writers = self._writers
        for key in keys:  # most records write a few keys
            writers[key] = position

    def take_lines(self, position: int, holder: LineHolder, failures: Mapping[str, str]) -> None:
        """Add the lines of the handlers of a record; `failures` has the codes of its failures by request id."""
        if lines := holder.take(failures):
            self.lines[position] = lines

    def tables(
        self, written: dict[EntityKey, bytes | None], atoms: Mapping[str, int] = NO_ATOMS
    ) -> Tables:
        """Return the rows.

        Args:
            written: The newest state of every entity that was written.
            atoms: The number of atoms of each stream before the epoch; the atoms of this run are numbered from there.
        """
        tables = {
            PartKind.TRANSACTIONS: self._transactions(),
            PartKind.CHANGES: self._changes(written),
        }
        tables |= self.cascades.tables(self._epoch, atoms)
        return {part_kind: table for part_kind, table in tables.items() if table.num_rows}

    # Each function of Arrow and numpy that an epoch of one request calls takes 20 to 100 µs, because the caches of the processor
    # have lost its code by then. So few different ones are called.

    def _transactions(self) -> pa.Table:
        count = len(self._rows)
        columns = zip(*self._rows, strict=True) if count else ((), (), (), (), ())
        positions, partitions, records, outcomes, roots = columns
        return _table(
            _TRANSACTIONS,
            [
                self._epochs(count),
                partitions,
                [record.lsn for record in records],
                [record.request_id for record in records],
                [record.time_us for record in records],
                [record.body for record in records],
                [outcome.error for outcome in outcomes],
                [outcome.reply for outcome in outcomes],
                positions,
                roots,
                list(map(self.lines.get, positions))
                if self.lines
                else pa.nulls(count, pa.binary()),
            ],
        )

    def _changes(self, written: dict[EntityKey, bytes | None]) -> pa.Table:
        writers = self._writers
        names, keys = _split(list(writers))
        states = list(map(written.__getitem__, writers))
        positions = list(writers.values())
        return _table(_CHANGES, [self._epochs(len(writers)), names, keys, states, positions])

    def _epochs(self, count: int) -> pa.Array:
        if count <= _FEW:
            return pa.array([self._epoch] * count, pa.int64())
        return pa.repeat(pa.scalar(self._epoch, pa.int64()), count)


def _table(schema: pa.Schema, columns: Sequence[Sequence[object] | pa.Array]) -> pa.Table:
    """Return rows from their columns, which are arrays of Arrow or of Python."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _split(entity_keys: Sequence[EntityKey]) -> tuple[Sequence[str] | pa.Array, ...]:
    """Return the class names and the key texts of entity keys."""
    if len(entity_keys) <= _FEW:
        split = list(map(split_entity_key, entity_keys))
        return [name for name, _ in split], [text for _, text in split]
    # For many keys, Arrow takes half of the time: class name, key, class name, key …
    texts = pc.split_pattern(pa.array(entity_keys, pa.string()), "/", max_splits=1).flatten()
    first = np.arange(0, len(texts), 2)
    return texts.take(pa.array(first)), texts.take(pa.array(first + 1))


def write_output(tables: Tables, path: Path) -> None:
    """Write a round output: for each kind the file `path` with the kind as suffix."""
    for part_kind, table in tables.items():
        target = str(path.with_suffix(f".{part_kind}"))
        with pa.OSFile(target, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def read_output(path: Path, superseded: Positions) -> Tables:
    """Read the rows of a round output, without those at superseded positions."""
    tables = {}
    for part_kind in PartKind:
        source = path.with_suffix(f".{part_kind}")
        if not source.exists():
            continue
        with pa.memory_map(str(source)) as file:
            tables[part_kind] = pa.ipc.open_file(file).read_all()
    return valid_rows(tables, superseded)


def valid_rows(tables: Tables, superseded: Positions) -> Tables:
    """Return rows without those at superseded positions."""
    if not superseded.size:
        return tables
    void = pa.array(superseded)
    return {
        part_kind: table.filter(pc.invert(pc.is_in(table["position"], value_set=void)))
        for part_kind, table in tables.items()
    }


def merge(outputs: Sequence[Tables]) -> Tables:
    """Return the rows of several outputs in log order, with the columns of parts only."""
    merged = {}
    for part_kind in PartKind:
        tables = [output[part_kind] for output in outputs if part_kind in output]
        if tables:
            merged[part_kind] = _part(tables, part_kind)
    return merged


def _part(tables: list[pa.Table], part_kind: PartKind) -> pa.Table:
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    if part_kind is not PartKind.CHANGES and len(tables) > 1:
        # A stable sort: the rows of one record keep their order.
        table = table.take(np.argsort(table["position"].to_numpy(), kind="stable"))
    return table.select(SCHEMAS[part_kind].names)


def roots_of(outputs: Sequence[Tables]) -> dict[str, int]:
    """Return how often the transactions of all outputs called each method."""
    counts: Counter[str | None] = Counter()
    for tables in outputs:
        if PartKind.TRANSACTIONS in tables:
            counts.update(tables[PartKind.TRANSACTIONS]["root"].to_pylist())
    return {root: count for root, count in counts.items() if root is not None}


def lines_of(outputs: Sequence[Tables]) -> list[bytes]:
    """Return the lines of the handlers of all outputs, in the order of their records."""
    placed: list[tuple[int, bytes | None]] = []
    for tables in outputs:
        if PartKind.TRANSACTIONS in tables:
            rows = tables[PartKind.TRANSACTIONS].select(["position", "lines"])
            if rows["lines"].null_count < len(rows):
                placed += zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return [lines for _, lines in sorted(placed, key=itemgetter(0)) if lines is not None]
