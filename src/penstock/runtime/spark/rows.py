"""The rows that a run of transactions produces, and their way into part files.

A round output is a pair of Arrow IPC files on local disk: cheap to write, never synced, deleted after
the epoch. Each row carries a position, so that rows of superseded runs can be dropped: the row of a
transaction has its own position, and a change has the position of the transaction that wrote last.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey, Epoch, LogPartition
from penstock.engine.access import Positions
from penstock.engine.execute import Outcome
from penstock.journal.api import SCHEMAS, PartKind
from penstock.log.api import Record

_POSITION: Final = pa.field("position", pa.uint32())
_KINDS: Final = PartKind.TRANSACTIONS, PartKind.CHANGES  # the kinds of an epoch without streams
_ROOT: Final = pa.field("root", pa.string())  # the method that the request called

Tables = dict[PartKind, pa.Table]
"""Rows by kind: `SCHEMAS` and a column `position` (uint32); transactions also have `root` (string)."""


class RoundRows:
    """Collects the rows of one run."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._rows: list[tuple[int, LogPartition, Record, Outcome, str | None]] = []
        self._writers: dict[EntityKey, int] = {}  # the position of the last writer

    def add(
        self,
        position: int,
        partition: LogPartition,
        record: Record,
        outcome: Outcome,
        root: str | None,
    ) -> None:
        """Add a transaction.

        Args:
            position: Its position in the epoch.
            partition: The partition of the log that holds its request.
            record: Its request.
            outcome: How it ended.
            root: The method that the request called; None if there is no such method.
        """
        self._rows.append((position, partition, record, outcome, root))
        self._writers.update(dict.fromkeys(outcome.writes, position))

    def tables(self, written: dict[EntityKey, bytes | None]) -> Tables:
        """Return the rows; `written` has the newest state of every entity that was written."""
        return {
            PartKind.TRANSACTIONS: self._transactions(),
            PartKind.CHANGES: self._changes(written),
        }

    def _transactions(self) -> pa.Table:
        count = len(self._rows)
        columns = zip(*self._rows, strict=True) if count else ((), (), (), (), ())
        positions, partitions, records, outcomes, roots = columns
        return pa.table(
            [
                pa.array(np.full(count, self._epoch, np.int64)),
                pa.array(np.array(partitions, np.int32)),
                pa.array(np.array([record.lsn for record in records], np.int64)),
                pa.array([record.request_id for record in records], pa.string()),
                pa.array(np.array([record.time_us for record in records], np.int64)),
                pa.array([record.body for record in records], pa.binary()),
                pa.array([outcome.error for outcome in outcomes], pa.string()),
                pa.array([outcome.reply for outcome in outcomes], pa.binary()),
                pa.array(np.array(positions, np.uint32)),
                pa.array(roots, pa.string()),
            ],
            schema=SCHEMAS[PartKind.TRANSACTIONS].append(_POSITION).append(_ROOT),
        )

    def _changes(self, written: dict[EntityKey, bytes | None]) -> pa.Table:
        writers, changed = self._writers, len(self._writers)
        # The vectorised `split_entity_key`: class name, key, class name, key …
        keys = pa.array(list(writers), pa.string())
        names = pc.split_pattern(keys, "/", max_splits=1).flatten()
        first = np.arange(0, 2 * changed, 2)
        return pa.table(
            [
                pa.array(np.full(changed, self._epoch, np.int64)),
                names.take(pa.array(first)),
                names.take(pa.array(first + 1)),
                pa.array(list(map(written.__getitem__, writers)), pa.binary()),
                pa.array(np.fromiter(writers.values(), np.uint32, changed)),
            ],
            schema=SCHEMAS[PartKind.CHANGES].append(_POSITION),
        )


def write_output(tables: Tables, path: Path) -> None:
    """Write a round output: for each kind the file `path` with the kind as suffix."""
    for part_kind, table in tables.items():
        target = str(path.with_suffix(f".{part_kind}"))
        with pa.OSFile(target, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def read_output(path: Path, superseded: Positions) -> Tables:
    """Read the rows of a round output, without those at superseded positions."""
    tables = {}
    for part_kind in _KINDS:
        with pa.memory_map(str(path.with_suffix(f".{part_kind}"))) as file:
            table = pa.ipc.open_file(file).read_all()
        if superseded.size:
            void = pc.is_in(table["position"], value_set=pa.array(superseded))
            table = table.filter(pc.invert(void))
        tables[part_kind] = table
    return tables


def merge(outputs: Sequence[Tables]) -> Tables:
    """Return the rows of several outputs in log order, with the columns of parts only."""
    return {
        part_kind: _part([tables[part_kind] for tables in outputs], part_kind)
        for part_kind in _KINDS
    }


def _part(tables: list[pa.Table], part_kind: PartKind) -> pa.Table:
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    if part_kind is PartKind.TRANSACTIONS and len(tables) > 1:
        table = table.sort_by("position")
    return table.select(SCHEMAS[part_kind].names)


def roots_of(outputs: Sequence[Tables]) -> dict[str, int]:
    """Return how often the transactions of all outputs called each method."""
    roots = pa.chunked_array(
        [chunk for tables in outputs for chunk in tables[PartKind.TRANSACTIONS]["root"].chunks],
        pa.string(),
    )
    counts = pc.value_counts(roots.drop_null())
    return {str(entry["values"]): int(entry["counts"].as_py()) for entry in counts}
