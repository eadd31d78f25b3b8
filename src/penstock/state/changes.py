"""Changes of many epochs as one: for every entity what it was last, column by column.

Promises the fold of the journal, without Python per row. Leaves to the caller from which state the
fold goes on, and what an entity without a state (it was deleted) means there.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch
from penstock.journal.api import Journal, PartKind

COLUMNS: Final = ("entity", "key", "state")
FOLDED_ROWS: Final = 1_000_000
"""Rows that are collected before they are folded; bounds the memory of a long fold."""

FOLDED: Final = pa.schema({"key": pa.string(), "state": pa.binary()})
"""What a fold gives for one class: in order of keys (bytes), null where the entity was deleted."""


def folded(journal: Journal, entity: str, after: Epoch, upto: Epoch) -> pa.Table:
    """Return what the epochs of (after, upto] made of the entities of a class, as `FOLDED`.

    Raises:
        Diverged: The journal lacks an epoch of the range.
        Corrupt: A part of it is damaged.
    """
    return newest(
        pa.table([rows["key"], rows["state"]], schema=FOLDED)
        for _, rows in _of_class(journal, entity, after, upto)
    )


def _of_class(
    journal: Journal, entity: str, after: Epoch, upto: Epoch
) -> Iterator[tuple[Epoch, pa.Table]]:
    for epoch, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS):
        yield epoch, rows.filter(pc.equal(rows["entity"], entity))


def newest(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the last row of every key, of tables with a column `key`, in the order of keys."""
    pending: list[pa.Table] = []
    count = 0
    for table in tables:
        pending.append(table)
        count += table.num_rows
        if count >= FOLDED_ROWS:
            pending = [_last_of_each(pa.concat_tables(pending))]
            count = 0
    if not pending:
        return FOLDED.empty_table()
    found = _last_of_each(pa.concat_tables(pending))
    return found.take(pc.sort_indices(found["key"]))


def _last_of_each(rows: pa.Table) -> pa.Table:
    """Return the last row of every key."""
    if rows.num_rows == 0:
        return rows
    codes = rows["key"].combine_chunks().dictionary_encode()
    last = np.empty(len(codes.dictionary), np.int64)
    last[codes.indices.to_numpy()] = np.arange(rows.num_rows)  # of equal indices the last counts
    return rows.take(pa.array(last))
