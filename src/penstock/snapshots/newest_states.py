"""The newest state of every entity in a range of epochs, computed by columns.

It costs no Python code per row. An entity that was deleted has a null state; the caller merges the
result with an earlier state.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
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
    states = newest_rows(
        rows.filter(pc.equal(rows["entity"], entity)).select(CLASS_STATES.names)
        for _, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS)
    )
    return CLASS_STATES.empty_table() if states is None else sorted_by_key(states)


class LastChanges:
    """The last epoch of a range in which each entity of a class has changed, by digests of the keys.

    It takes 24 bytes for each entity, however long keys and states are, so that the newest states of many entities can be
    read one after the other.
    """

    def __init__(self, journal: Journal, entity: str, after: Epoch, upto: Epoch) -> None:
        """Read the keys of all changes in the epochs of (after, upto].

        Raises:
            Corrupt: A part of it is damaged.
        """
        self._journal = journal
        self._entity = entity
        self._range = after, upto
        # Keys are chosen by users, who cannot make two keys with one digest without it.
        self._seed = secrets.randbits(64)
        self._digests = np.empty(0, "S16")
        self._epochs = np.empty(0, np.int64)
        pending: list[tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]] = []
        self._changes = count = 0
        for rows in self._rows(("epoch", "entity", "key")):
            self._changes += rows.num_rows
            pending.append((self._digests_of(rows["key"]), rows["epoch"].to_numpy()))
            count += rows.num_rows
            if count >= MERGED_ROWS:
                self._merge(pending)
                pending, count = [], 0
        self._merge(pending)

    def __len__(self) -> int:
        """Return the number of entities."""
        return len(self._digests)

    def has(self, keys: pa.ChunkedArray) -> pa.Array:
        """Say of each key whether its entity has changed."""
        _, is_held = self._places(self._digests_of(keys))
        return pa.array(is_held)

    def states(self) -> Iterator[pa.Table]:
        """Yield the newest state of each entity, as parts of `CLASS_STATES` without order; raises as the constructor."""
        for rows in self._rows(("epoch", *COLUMNS)):
            if self._changes == len(self):  # no entity has changed twice, as after an import
                yield rows.select(CLASS_STATES.names)
                continue
            places, _ = self._places(self._digests_of(rows["key"]))
            is_last = self._epochs[places] == rows["epoch"].to_numpy()
            yield rows.filter(pa.array(is_last)).select(CLASS_STATES.names)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for _, rows in self._journal.rows(PartKind.CHANGES, *self._range, columns):
            own = rows.filter(pc.equal(rows["entity"], self._entity))
            if own.num_rows:
                yield own

    def _digests_of(self, keys: pa.ChunkedArray) -> npt.NDArray[np.bytes_]:
        digest = partial(xxhash.xxh3_128_digest, seed=self._seed)
        # Of digests with equal lengths, NumPy's texts are equal only if all bytes are.
        return np.frombuffer(b"".join(map(digest, keys.cast(pa.binary()).to_pylist())), "S16")

    def _merge(self, later: Sequence[tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]]) -> None:
        digests = np.concatenate([self._digests, *(each for each, _ in later)])
        epochs = np.concatenate([self._epochs, *(each for _, each in later)])
        order = np.argsort(digests, kind="stable")  # so equal digests keep the order of epochs
        digests, epochs = digests[order], epochs[order]
        is_last = np.append(digests[1:] != digests[:-1], len(digests) > 0)[: len(digests)]
        self._digests, self._epochs = digests[is_last], epochs[is_last]

    def _places(
        self, digests: npt.NDArray[np.bytes_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the place of each digest, and whether it is there at all."""
        if not len(self):
            return np.zeros(len(digests), np.int64), np.zeros(len(digests), np.bool_)
        order = np.argsort(digests)  # searches beside each other touch the same memory
        places = np.empty(len(digests), np.int64)
        places[order] = np.searchsorted(self._digests, digests[order])
        places[places == len(self)] = 0
        return places, self._digests[places] == digests


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
