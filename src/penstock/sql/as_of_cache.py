"""A cache of classes as of recently queried epochs.

The rows of a class at an epoch always have the same order, so that a single-threaded query over them
always has the same result. The cache is bounded in bytes, and drops the least recently used classes.
A child sends the classes that it has computed to its parent, which keeps them for later children.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.model.versions.former_class import type_at
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import TypedStates, oldest_state, state_as_of
from penstock.snapshots.table import tables_of
from penstock.sql.query import QueryLimits


class _CacheKey(NamedTuple):
    """A class after an epoch, with the columns of the epoch `seen_at`."""

    entity: str
    epoch: Epoch
    seen_at: Epoch


class _CachedClass(msgspec.Struct, array_like=True):
    """A class at an epoch, as a child sends it; `rows` is empty if the parent has the class."""

    entity: str
    epoch: int
    seen_at: int
    wide: bool
    rows: bytes


class AsOfCache:
    """The cached classes of one journal. One thread at a time uses the cache."""

    def __init__(
        self, app: App, journal: Journal, snapshots: Snapshots | None, bytes_max: int
    ) -> None:
        self._app = app
        self._journal = journal
        self._snapshots = snapshots
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_CacheKey, TypedStates] = OrderedDict()
        self._used: dict[_CacheKey, bool] = {}  # the value is whether it was computed here

    def at(
        self, entity: str, epoch: Epoch, limits: QueryLimits, seen_at: Epoch | None = None
    ) -> TypedStates:
        """Return the entities of a class after an epoch, in the order of keys.

        Args:
            seen_at: The epoch whose columns the rows have; None: the epoch itself.

        Raises:
            QueryError: The state after the epoch is not held, or the deadline has passed.
            Diverged: The journal holds values that do not fit the class.
            Corrupt: The journal is damaged.
        """
        key = self._key(entity, epoch, epoch if seen_at is None else seen_at)
        states = self._kept.get(key)
        if states is None:
            states = self._kept[key] = self._compute(key)
            self._used[key] = True
        self._used.setdefault(key, False)
        limits.check()
        return states

    def forget(self) -> None:
        """Drop all classes."""
        self._kept.clear()

    def used(self) -> bytes:
        """Return the classes that were used here, for `keep` of the parent."""
        classes, size = [], 0
        for key, is_new in self._used.items():
            table, rows = self._kept[key]
            size += rows.nbytes
            if size <= self._bytes_max:
                sent = _stream(rows) if is_new else b""
                classes.append(_CachedClass(*key, table.wide, sent))
        return msgspec.msgpack.encode(classes) if classes else b""

    def keep(self, used: bytes) -> None:
        """Keep the classes that a child has used, and drop the least recently used ones."""
        for cached in msgspec.msgpack.decode(used, type=list[_CachedClass]):
            key = _CacheKey(cached.entity, Epoch(cached.epoch), Epoch(cached.seen_at))
            if cached.rows:
                wide = [cached.entity] if cached.wide else []
                table = tables_of(self._app, wide, cached.seen_at)[cached.entity]
                self._kept[key] = TypedStates(table, pa.ipc.open_stream(cached.rows).read_all())
            elif key in self._kept:
                self._kept.move_to_end(key)
        size = sum(states.rows.nbytes for states in self._kept.values())
        while size > self._bytes_max:
            _, dropped = self._kept.popitem(last=False)
            size -= dropped.rows.nbytes

    def _key(self, entity: str, epoch: Epoch, seen_at: Epoch) -> _CacheKey:
        """Return a key that is the same for all epochs with the same columns."""
        declared = self._app.readable[entity]
        is_same = type_at(declared, seen_at) is type_at(declared, epoch)
        return _CacheKey(entity, epoch, epoch if is_same else seen_at)

    def _compute(self, key: _CacheKey) -> TypedStates:
        entity, epoch, seen_at = key
        oldest = oldest_state(self._journal, self._snapshots)
        if oldest is None or epoch < oldest:
            held = "no state is held" if oldest is None else f"the oldest is after epoch {oldest}"
            raise QueryError(f"the state after epoch {epoch} is not held any more; {held}")
        table, rows = state_as_of(self._app, self._journal, entity, epoch, self._snapshots, seen_at)
        return TypedStates(table, rows.combine_chunks())


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
