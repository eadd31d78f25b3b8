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

from penstock.base.ids import EntityKey, Epoch, LogPartition, split_entity_key
from penstock.engine.conflicts import Positions
from penstock.engine.execute import Outcome
from penstock.journal.api import SCHEMAS, PartKind
from penstock.log.api import Record

_POSITION: Final = pa.field("position", pa.uint32())

Tables = dict[PartKind, pa.Table]
"""Rows by kind, with a column `position`."""


class Rows:
    """Collects the rows of one run."""

    def __init__(self, epoch: Epoch) -> None:
        """Begin with none."""
        self._epoch = epoch
        self._positions: list[int] = []
        self._partitions: list[LogPartition] = []
        self._records: list[Record] = []
        self._errors: list[str | None] = []
        self._replies: list[bytes] = []
        self._writers: dict[EntityKey, int] = {}

    def add(self, position: int, partition: LogPartition, record: Record, outcome: Outcome) -> None:
        """Add a transaction's row, and note what it changed."""
        self._positions.append(position)
        self._partitions.append(partition)
        self._records.append(record)
        self._errors.append(outcome.error)
        self._replies.append(outcome.reply)
        for key in outcome.writes:
            self._writers[key] = position

    def tables(self, written: dict[EntityKey, bytes | None]) -> Tables:
        """Return the rows; `written` has the last state of every entity that was changed."""
        records, count = self._records, len(self._records)
        transactions = pa.table(
            [
                pa.array(np.full(count, self._epoch, np.int64)),
                pa.array(np.fromiter(self._partitions, np.int32, count)),
                pa.array(np.fromiter((one.lsn for one in records), np.int64, count)),
                pa.array([one.request_id for one in records], pa.string()),
                pa.array(np.fromiter((one.time_us for one in records), np.int64, count)),
                pa.array([one.body for one in records], pa.binary()),
                pa.array(self._errors, pa.string()),
                pa.array(self._replies, pa.binary()),
                pa.array(np.fromiter(self._positions, np.uint32, count)),
            ],
            schema=SCHEMAS[PartKind.TRANSACTIONS].append(_POSITION),
        )
        writers, changed = self._writers, len(self._writers)
        named = [split_entity_key(key) for key in writers]
        changes = pa.table(
            [
                pa.array(np.full(changed, self._epoch, np.int64)),
                pa.array([one[0] for one in named], pa.string()),
                pa.array([one[1] for one in named], pa.string()),
                pa.array([written[key] for key in writers], pa.binary()),
                pa.array(np.fromiter(writers.values(), np.uint32, changed)),
            ],
            schema=SCHEMAS[PartKind.CHANGES].append(_POSITION),
        )
        return {PartKind.TRANSACTIONS: transactions, PartKind.CHANGES: changes}


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
    """Return the rows of a part: of all given tables, in log order, without positions."""
    every = list(several)
    return {kind: _part(kind, [tables[kind] for tables in every]) for kind in PartKind}


def _part(kind: PartKind, tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    if kind is PartKind.TRANSACTIONS and len(tables) > 1:
        table = table.sort_by("position")
    return table.drop_columns(["position"])
