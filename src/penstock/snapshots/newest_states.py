"""The newest state of every entity in a range of epochs, computed by columns.

It costs no Python code per row. An entity that was deleted has a null state; the caller merges the
result with an earlier state.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.ids import BUCKETS, Epoch
from penstock.journal.api import Journal, PartKind

COLUMNS: Final = ("entity", "key", "state")
MERGED_ROWS: Final = 1_000_000
"""Rows that are collected before older states are dropped; bounds the memory of a long range."""

CLASS_STATES: Final = pa.schema({"key": pa.string(), "state": pa.binary()})
"""The states of one class in order of keys, by their bytes; null if the entity was deleted."""


ALL_STATES: Final = pa.schema({"entity": pa.string(), "key": pa.string(), "state": pa.binary()})
"""The states of all classes."""


def class_states(journal: Journal, entity: str, after: Epoch, upto: Epoch) -> pa.Table:
    """Return the newest states of a class, as `CLASS_STATES`.

    Raises:
        Corrupt: A part of it is damaged.
    """
    return sorted_by_key(unordered_class_states(journal, entity, after, upto))


def unordered_class_states(journal: Journal, entity: str, after: Epoch, upto: Epoch) -> pa.Table:
    """Return the newest states of a class, as `CLASS_STATES` without order; raises as `class_states`."""
    states = newest_rows(
        rows.filter(pc.equal(rows["entity"], entity)).select(CLASS_STATES.names)
        for _, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS)
    )
    return CLASS_STATES.empty_table() if states is None else states


def all_states(journal: Journal, after: Epoch, upto: Epoch) -> pa.Table:
    """Return the newest states of all classes in the epochs of (after, upto], without order.

    Raises:
        Corrupt: A part of it is damaged.
    """
    states = newest_rows(rows for _, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS))
    return ALL_STATES.empty_table() if states is None else states.cast(ALL_STATES)


def newest_rows(tables: Iterable[pa.Table]) -> pa.Table | None:
    """Return the last row of every entity from tables in order of time; None without tables."""
    pending: list[pa.Table] = []
    count = 0
    for table in tables:
        pending.append(table)
        count += table.num_rows
        if count >= MERGED_ROWS:
            pending, count = [_last_of_each(pa.concat_tables(pending))], 0
    return _last_of_each(pa.concat_tables(pending)) if pending else None


def sorted_by_key(rows: pa.Table, key: str = "key") -> pa.Table:
    """Return rows in the order of their keys, by bytes."""
    return rows.take(pc.sort_indices(rows[key]))


def buckets_of(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """Return the bucket of each entity, by its key as text: `bucket_of` for many keys at once; int32, shape (keys,)."""
    texts = keys.cast(pa.binary()).to_pylist()
    fingerprints = np.fromiter(map(xxhash.xxh3_64_intdigest, texts), np.uint64, len(texts))
    return (fingerprints % np.uint64(BUCKETS)).astype(np.int32)


def _last_of_each(rows: pa.Table) -> pa.Table:
    """Return the last row of every entity."""
    if rows.num_rows == 0:
        return rows
    codes = _codes(rows)
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes] = np.arange(rows.num_rows)  # of equal indices the last one counts
    return rows.take(pa.array(last[last >= 0]))


def _codes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for the entity of each row: int64, shape (rows,), equal for equal entities."""
    keys = _numbered(rows["key"])
    if "entity" not in rows.column_names:
        return keys
    entities = _numbered(rows["entity"])
    return keys * (int(entities.max()) + 1) + entities


def _numbered(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    encoded = column.combine_chunks().dictionary_encode()
    numbers: npt.NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return numbers
