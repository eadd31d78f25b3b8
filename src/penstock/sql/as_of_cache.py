"""Rewinds: classes at epochs, as they were asked for of late.

Promises one layout of the rows for one epoch, however they came about: what is computed from them by
a single thread, in their order, is the same for ever. Bounded by bytes; the oldest question goes
first. A child that has rewound a class tells its parent, which keeps the rows for later children.
"""

from collections import OrderedDict

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import TypedStates, oldest_state, state_as_of
from penstock.snapshots.table import tables_of
from penstock.sql.query import QueryLimits


class _Told(msgspec.Struct, array_like=True):
    """A class at an epoch, as a child tells it."""

    entity: str
    epoch: int
    wide: bool
    rows: bytes


class AsOfCache:
    """The last few classes at epochs of one journal. One thread at a time uses them."""

    def __init__(
        self, app: App, journal: Journal, snapshots: Snapshots | None, bytes_max: int
    ) -> None:
        self._app = app
        self._journal = journal
        self._snapshots = snapshots
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[str, Epoch], TypedStates] = OrderedDict()
        self._used: dict[tuple[str, Epoch], bool] = {}  # whether it was rewound for that

    def at(self, entity: str, epoch: Epoch, limits: QueryLimits) -> TypedStates:
        """Return the entities of a class after an epoch, in the order of keys.

        Raises:
            QueryError: No snapshot and no journal lead there any more, or the time is over.
            Diverged: The journal holds what does not fit the class.
            Corrupt: The journal is damaged.
        """
        name = entity, epoch
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = self._rewound(entity, epoch)
            self._used[name] = True
        self._used.setdefault(name, False)
        limits.check()
        return found

    def told(self) -> bytes:
        """Return the classes that were used or rewound here, for `keep` of the parent."""
        told, size = [], 0
        for (entity, epoch), is_new in self._used.items():
            table, rows = self._kept[entity, epoch]
            size += rows.nbytes
            if size <= self._bytes_max:
                told.append(_Told(entity, epoch, table.wide, _stream(rows) if is_new else b""))
        return msgspec.msgpack.encode(told) if told else b""

    def keep(self, told: bytes) -> None:
        """Keep the classes that a child has rewound, and forget the least recently used ones."""
        for one in msgspec.msgpack.decode(told, type=list[_Told]):
            name = one.entity, Epoch(one.epoch)
            if one.rows:
                table = tables_of(self._app, [one.entity] if one.wide else [])[one.entity]
                self._kept[name] = TypedStates(table, pa.ipc.open_stream(one.rows).read_all())
            elif name in self._kept:
                self._kept.move_to_end(name)
        size = sum(one.rows.nbytes for one in self._kept.values())
        while size > self._bytes_max:
            _, gone = self._kept.popitem(last=False)
            size -= gone.rows.nbytes

    def _rewound(self, entity: str, epoch: Epoch) -> TypedStates:
        oldest = oldest_state(self._journal, self._snapshots)
        if oldest is None or epoch < oldest:
            held = "none" if oldest is None else f"that after epoch {oldest}"
            raise QueryError(
                f"the state after epoch {epoch} is not held any more; the oldest is {held}"
            )
        table, rows = state_as_of(self._app, self._journal, entity, epoch, self._snapshots)
        return TypedStates(table, rows.combine_chunks())


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
