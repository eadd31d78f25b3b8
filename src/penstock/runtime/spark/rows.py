"""The rows that a run of transactions produces: collected, drafted, filtered, made into parts.

A draft is an Arrow IPC file on local disk: cheap to write, never synced, forgotten after the
epoch. Its rows carry their position, so that those of superseded runs can be dropped: a
transaction's row by its own position, a change by that of the transaction that made it last.
"""

from collections.abc import Iterable
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
_ROOT: Final = pa.field("root", pa.string())  # what the transaction called, for the report

Tables = dict[PartKind, pa.Table]
"""Rows by kind, with a column `position`; those of transactions with a column `root`."""


class Rows:
    """Collects the rows of one run."""

    def __init__(self, epoch: Epoch) -> None:
        """Begin with none."""
        self._epoch = epoch
        self._rows: list[tuple[int, LogPartition, Record, Outcome, str | None]] = []
        self._writers: dict[EntityKey, int] = {}

    def add(
        self,
        position: int,
        partition: LogPartition,
        record: Record,
        outcome: Outcome,
        root: str | None,
    ) -> None:
        """Add a transaction's row, and note what it changed."""
        self._rows.append((position, partition, record, outcome, root))
        self._writers.update(dict.fromkeys(outcome.writes, position))

    def tables(self, written: dict[EntityKey, bytes | None]) -> Tables:
        """Return the rows; `written` has the last state of every entity that was changed."""
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
                pa.array(np.array([one.lsn for one in records], np.int64)),
                pa.array([one.request_id for one in records], pa.string()),
                pa.array(np.array([one.time_us for one in records], np.int64)),
                pa.array([one.body for one in records], pa.binary()),
                pa.array([one.error for one in outcomes], pa.string()),
                pa.array([one.reply for one in outcomes], pa.binary()),
                pa.array(np.array(positions, np.uint32)),
                pa.array(roots, pa.string()),
            ],
            schema=SCHEMAS[PartKind.TRANSACTIONS].append(_POSITION).append(_ROOT),
        )

    def _changes(self, written: dict[EntityKey, bytes | None]) -> pa.Table:
        writers, changed = self._writers, len(self._writers)
        # As `split_entity_key`, for all at once: class name, key, class name, key …
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


def write_draft(tables: Tables, path: Path) -> None:
    """Write a draft: one file for each kind, named after `path`."""
    for kind, table in tables.items():
        target = str(path.with_suffix(f".{kind}"))
        with pa.OSFile(target, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def read_draft(path: Path, superseded: Positions) -> Tables:
    """Read the rows of a draft that stand."""
    tables = {}
    for kind in PartKind:
        with pa.memory_map(str(path.with_suffix(f".{kind}"))) as file:
            table = pa.ipc.open_file(file).read_all()
        if superseded.size:
            void = pc.is_in(table["position"], value_set=pa.array(superseded))
            table = table.filter(pc.invert(void))
        tables[kind] = table
    return tables


def merge(several: Iterable[Tables]) -> Tables:
    """Return the rows of a part: of all given tables, in log order, without the rest."""
    every = list(several)
    return {kind: _part(kind, [tables[kind] for tables in every]) for kind in PartKind}


def _part(kind: PartKind, tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    if kind is PartKind.TRANSACTIONS and len(tables) > 1:
        table = table.sort_by("position")
    return table.select(SCHEMAS[kind].names)


def roots_of(several: Iterable[Tables]) -> dict[str, int]:
    """Return how often each root was called by the transactions of all given tables."""
    roots = pa.chunked_array(
        [chunk for one in several for chunk in one[PartKind.TRANSACTIONS]["root"].chunks],
        pa.string(),
    )
    counts = pc.value_counts(roots.drop_null())
    return {str(one["values"]): int(one["counts"].as_py()) for one in counts}
