"""State as of an epoch: entities after an epoch, from the nearest snapshot and the journal.

The rows of an epoch always have the same order (of keys, by their bytes) and the same types, also
after compaction and new snapshots. Nothing is written.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.model.versions.former_class import type_at
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.newest_states import (
    ALL_STATES,
    CLASS_STATES,
    all_states,
    class_states,
    newest_rows,
    sorted_by_key,
)
from penstock.snapshots.snapshot import Manifest, SnapshotColumns, Snapshots
from penstock.snapshots.table import EntityTable, tables_of

_log = logging.getLogger(__name__)


T = TypeVar("T")

_ORDER = "key's text"
"""A temporary column to sort by; no attribute can have this name."""


class TypedStates(NamedTuple):
    """The entities of a class after an epoch.

    Attributes:
        table: The table of the class, with wide columns if a value needs them.
        rows: A row for each entity, in the order of keys.
    """

    table: EntityTable
    rows: pa.Table


class ReplayBase(NamedTuple):
    """A state from which the journal leads to a later one: a snapshot, or the empty state."""

    epoch: Epoch
    manifest: Manifest | None


def state_as_of(
    app: App,
    journal: Journal,
    entity: str,
    epoch: Epoch,
    snapshots: Snapshots | None = None,
    seen_at: Epoch | None = None,
) -> TypedStates:
    """Return the entities of a class after an epoch, typed.

    Args:
        seen_at: The epoch whose columns the rows have, not before `epoch`; None: the epoch itself.

    Raises:
        Corrupt: The journal is damaged, or the only snapshot that leads to the epoch.
    """
    view = _ClassView(app, entity, epoch if seen_at is None else seen_at)
    return _from_bases(
        replay_bases(journal, snapshots, epoch),
        lambda base: _typed_from(view, journal, epoch, snapshots, base),
    )


def all_states_as_of(
    journal: Journal, epoch: Epoch, snapshots: Snapshots | None = None
) -> pa.Table:
    """Return all entities after an epoch: columns `entity`, `key` and `state`, without order.

    Raises:
        Diverged: Neither the journal nor a snapshot has the epoch.
        Corrupt: The journal is damaged, or the only snapshot that leads to the epoch.
    """

    def states_from(base: ReplayBase) -> pa.Table:
        states = newest_rows([*_states_of(snapshots, base), all_states(journal, base.epoch, epoch)])
        assert states is not None, "there are tables"
        return states.filter(pc.is_valid(states["state"]))

    return _from_bases(replay_bases(journal, snapshots, epoch), states_from)


def system_rows_as_of(
    journal: Journal, name: str, epoch: Epoch, snapshots: Snapshots | None = None
) -> pa.Table:
    """Return the system rows of a kind after an epoch, as `CLASS_STATES` without order; raises as `all_states_as_of`."""

    def rows_from(base: ReplayBase) -> pa.Table:
        changes = class_states(journal, name, base.epoch, epoch)
        present = changes.filter(pc.is_valid(changes["state"]))
        class_files = None if base.manifest is None else base.manifest.classes.get(name)
        if class_files is None or snapshots is None:
            return present
        states = [snapshots.states(class_files, file) for file in class_files.files]
        changed = changes["key"].combine_chunks()
        former = [
            _without(rows, "key", changed).select(CLASS_STATES.names).cast(CLASS_STATES)
            for rows in states
        ]
        return pa.concat_tables([*former, present])

    return _from_bases(replay_bases(journal, snapshots, epoch), rows_from)


def oldest_state(journal: Journal, snapshots: Snapshots | None = None) -> Epoch | None:
    """Return the oldest epoch whose state can be built; -1 is the empty state before all epochs.

    None if old epochs were forgotten and no snapshot is left.
    """
    first = journal.first()
    if first == 0:
        return BEFORE_FIRST
    known = [] if snapshots is None else [manifest.epoch for manifest in snapshots.every()]
    return min((epoch for epoch in known if epoch + 1 >= first), default=None)


def replay_bases(
    journal: Journal, snapshots: Snapshots | None, epoch: Epoch
) -> Iterator[ReplayBase]:
    """Yield the states that lead to an epoch, the nearest first; at least one."""
    first, has_snapshot = journal.first(), False
    if snapshots is not None and epoch > BEFORE_FIRST:
        for manifest in snapshots.every(epoch):
            # Retention may have removed the epochs between a snapshot and the wanted epoch.
            if manifest.epoch + 1 >= first or manifest.epoch == epoch:
                yield ReplayBase(manifest.epoch, manifest)
                has_snapshot = True
    if first == 0 or not has_snapshot:  # reading the journal raises the error for a missing epoch
        yield ReplayBase(BEFORE_FIRST, None)


def _from_bases(bases: Iterator[ReplayBase], build: Callable[[ReplayBase], T]) -> T:
    """Return the result of `build` for the first base without damage."""
    damage: Corrupt | None = None
    for base in bases:
        try:
            return build(base)
        except Corrupt as error:
            if base.manifest is None:
                raise
            # An older snapshot and the journal give the same state; it takes longer.
            damage = damage or error
            extra = {"epoch": base.epoch, "cause": str(error)}
            _log.warning("a damaged snapshot is left out", extra=extra)
    assert damage is not None, "there is at least one base"
    raise damage


def _states_of(snapshots: Snapshots | None, base: ReplayBase) -> list[pa.Table]:
    """Return all states of a snapshot, as `ALL_STATES`."""
    tables = [ALL_STATES.empty_table()]
    if base.manifest is None or snapshots is None:
        return tables
    for name, class_files in base.manifest.classes.items():
        for file in class_files.files:
            rows = snapshots.states(class_files, file)
            names = pa.repeat(pa.scalar(name), rows.num_rows)
            arrays = [names, rows["key"], rows["state"]]
            tables.append(pa.Table.from_arrays(arrays, schema=ALL_STATES))
    return tables


class _ClassView(NamedTuple):
    """A class of an application with the columns of an epoch."""

    app: App
    entity: str
    epoch: Epoch

    def table(self, *, wide: bool = False) -> EntityTable:
        """Return its table."""
        return tables_of(self.app, [self.entity] if wide else [], self.epoch)[self.entity]

    def is_as_of(self, epoch: Epoch) -> bool:
        """Say whether the class had the same version after another epoch."""
        declared = self.app.readable[self.entity]
        return type_at(declared, epoch) is type_at(declared, self.epoch)


def _typed_from(
    view: _ClassView,
    journal: Journal,
    epoch: Epoch,
    snapshots: Snapshots | None,
    base: ReplayBase,
) -> TypedStates:
    """Build a class's rows; entities without changes since the snapshot keep its typed columns."""
    entity = view.entity
    changes = class_states(journal, entity, base.epoch, epoch)
    class_files = None if base.manifest is None else base.manifest.classes.get(entity)
    table = view.table()
    if class_files is None or snapshots is None:
        return _typed(view, _readable(table, changes))
    columns = SnapshotColumns(table)
    files = [snapshots.read(file) for file in class_files.files]
    changed = changes["key"].combine_chunks()
    present = changes.filter(pc.is_valid(changes["state"]))
    is_same = view.is_as_of(base.epoch)
    if (
        not columns.is_sealed
        and is_same
        and all(rows.schema.equals(columns.schema) for rows in files)
    ):
        kept = [_without(rows, columns.key, changed) for rows in files]
        try:
            fresh = table.rows(present["key"].to_pylist(), present["state"].to_pylist())
        except TooNarrow:
            pass
        else:
            every = [fresh.append_column(_ORDER, present["key"])]
            every += [columns.typed(rows).append_column(_ORDER, rows[columns.key]) for rows in kept]
            rows = sorted_by_key(pa.concat_tables(every), _ORDER).drop_columns([_ORDER])
            return TypedStates(table, rows)
    # The snapshot's columns are wide, or those of an earlier version of the class. All rows are built from states, so that
    # the types depend on the values alone: the value that needed wide columns may be gone.
    states = [
        _without(snapshots.states(class_files, file), "key", changed) for file in class_files.files
    ]
    former = [rows.select(CLASS_STATES.names).cast(CLASS_STATES) for rows in states]
    every_state = sorted_by_key(pa.concat_tables([*former, present]))
    return _typed(view, _readable(table, every_state))


def _readable(table: EntityTable, states: pa.Table) -> pa.Table:
    """Return states without those of erased subjects."""
    if not table.entity_type.personal:
        return states
    present = states.filter(pc.is_valid(states["state"]))
    pairs = zip(present["key"].to_pylist(), present["state"].to_pylist(), strict=True)
    kept = pa.array(list(table.readable(dict(pairs))), pa.string())
    return present.filter(pc.is_in(present["key"], value_set=kept))


def _without(rows: pa.Table, key: str, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[key], keys)))


def typed_states(app: App, entity: str, states: pa.Table, epoch: Epoch) -> TypedStates:
    """Return the rows of states (as `CLASS_STATES`) with the columns of an epoch; wide if a value needs it."""
    return _typed(_ClassView(app, entity, epoch), states)


def _typed(view: _ClassView, states: pa.Table) -> TypedStates:
    present = states.filter(pc.is_valid(states["state"]))
    keys, values = present["key"].to_pylist(), present["state"].to_pylist()
    table = view.table()
    try:
        return TypedStates(table, table.rows(keys, values))
    except TooNarrow:
        table = view.table(wide=True)
        return TypedStates(table, table.rows(keys, values))
