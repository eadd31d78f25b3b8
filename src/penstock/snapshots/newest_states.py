"""Changes of many epochs as one: for every entity what it was last, column by column.

Promises the fold of the journal, without Python per row. Leaves to the caller from which state the
fold goes on, and what an entity without a state (it was deleted) means there.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.ids import BUCKETS, EntityKey, Epoch
from penstock.journal.api import Journal, PartKind

COLUMNS: Final = ("entity", "key", "state")
MERGED_ROWS: Final = 1_000_000
"""Rows that are collected before they are folded; bounds the memory of a long fold."""

CLASS_STATES: Final = pa.schema({"key": pa.string(), "state": pa.binary()})
"""What a fold gives for one class: in order of keys (bytes), null where the entity was deleted."""


ALL_STATES: Final = pa.schema({"entity": pa.string(), "key": pa.string(), "state": pa.binary()})
"""The same for all classes."""


def class_states(journal: Journal, entity: str, after: Epoch, upto: Epoch) -> pa.Table:
    """Return what the epochs of (after, upto] made of the entities of a class, as `CLASS_STATES`.

    Raises:
        Diverged: The journal lacks an epoch of the range.
        Corrupt: A part of it is damaged.
    """
    found = newest_rows(
        rows.filter(pc.equal(rows["entity"], entity)).select(CLASS_STATES.names)
        for _, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS)
    )
    return CLASS_STATES.empty_table() if found is None else sorted_by_key(found)


def all_states(journal: Journal, after: Epoch, upto: Epoch) -> pa.Table:
    """Return what the epochs of (after, upto] made of all entities, as `ALL_STATES`, unordered.

    Raises:
        Diverged: The journal lacks an epoch of the range.
        Corrupt: A part of it is damaged.
    """
    found = newest_rows(rows for _, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS))
    return ALL_STATES.empty_table() if found is None else found.cast(ALL_STATES)


def newest_rows(tables: Iterable[pa.Table]) -> pa.Table | None:
    """Return the last row of every entity, of tables that come in order of time."""
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


def buckets_of(keys: Sequence[EntityKey]) -> npt.NDArray[np.int32]:
    """Return the bucket of each entity: `bucket_of` for many keys at once, int32, shape (keys,)."""
    fingerprints = np.fromiter(
        map(xxhash.xxh3_64_intdigest, map(str.encode, keys)), dtype=np.uint64, count=len(keys)
    )
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
    """Number the entities: equal ones have equal numbers."""
    keys = _numbered(rows["key"])
    if "entity" not in rows.column_names:
        return keys
    entities = _numbered(rows["entity"])
    return keys * (int(entities.max()) + 1) + entities


def _numbered(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    encoded = column.combine_chunks().dictionary_encode()
    numbers: npt.NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return numbers
