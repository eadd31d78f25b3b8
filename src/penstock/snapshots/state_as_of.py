"""Rewinding: entities as they were after an epoch, from the nearest snapshot and the journal.

Promises the same rows in the same order (of keys, by their bytes) and with the same types whenever
the same epoch is asked for, whatever was compacted or written as a snapshot meanwhile. Reads, and
writes nothing.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.journal.api import Journal
from penstock.model.application import App
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


class TypedStates(NamedTuple):
    """A class as it was after an epoch.

    Attributes:
        table: Its columns; wide where a value wanted it.
        rows: One for each entity, in the order of keys.
    """

    table: EntityTable
    rows: pa.Table


class ReplayBase(NamedTuple):
    """Where a fold of the journal begins: with a snapshot, or with nothing."""

    epoch: Epoch
    manifest: Manifest | None


def state_as_of(
    app: App, journal: Journal, entity: str, epoch: Epoch, snapshots: Snapshots | None = None
) -> TypedStates:
    """Return the entities of a class after an epoch, typed.

    Raises:
        Diverged: What is held does not reach so far back, or does not fit the class.
        Corrupt: The journal is damaged, or the only snapshot that leads there.
    """
    damage: Corrupt | None = None
    for begin in replay_bases(journal, snapshots, epoch):
        try:
            return _continued(app, journal, entity, epoch, snapshots, begin)
        except Corrupt as error:
            damage = damage or error
            _skipped(begin, error)
    assert damage is not None, "there is at least one beginning"
    raise damage


def all_states_as_of(
    journal: Journal, epoch: Epoch, snapshots: Snapshots | None = None
) -> pa.Table:
    """Return all entities after an epoch: columns `entity`, `key` and `state`, in no order.

    Raises:
        Diverged: What is held does not reach so far back.
        Corrupt: The journal is damaged, or the only snapshot that leads there.
    """
    damage: Corrupt | None = None
    for begin in replay_bases(journal, snapshots, epoch):
        try:
            base = _states_of(snapshots, begin)
            after = all_states(journal, begin.epoch, epoch)
        except Corrupt as error:
            damage = damage or error
            _skipped(begin, error)
            continue
        found = newest_rows([*base, after])
        assert found is not None, "a fold was given"
        return found.filter(pc.is_valid(found["state"]))
    assert damage is not None, "there is at least one beginning"
    raise damage


def oldest_state(journal: Journal, snapshots: Snapshots | None = None) -> Epoch | None:
    """Return the oldest epoch after which the state is known; -1 is the empty state before all.

    None where nothing leads to a state: old epochs were forgotten, and no snapshot is left.
    """
    first = journal.first()
    if first == 0:
        return BEFORE_FIRST
    known = [] if snapshots is None else [one.epoch for one in snapshots.every()]
    return min((epoch for epoch in known if epoch + 1 >= first), default=None)


def replay_bases(
    journal: Journal, snapshots: Snapshots | None, epoch: Epoch
) -> Iterator[ReplayBase]:
    """Yield from where one can come to an epoch, the shortest way first; at least one."""
    first, found = journal.first(), False
    if snapshots is not None and epoch > BEFORE_FIRST:
        for manifest in snapshots.every(epoch):
            if manifest.epoch + 1 >= first or manifest.epoch == epoch:
                yield ReplayBase(manifest.epoch, manifest)
                found = True
    if first == 0 or not found:  # the fold says which epoch is not held
        yield ReplayBase(BEFORE_FIRST, None)


def _skipped(begin: ReplayBase, error: Corrupt) -> None:
    if begin.manifest is None:
        raise error
    extra = {"epoch": begin.epoch, "cause": str(error)}
    _log.warning("a damaged snapshot is left out", extra=extra)


def _states_of(snapshots: Snapshots | None, begin: ReplayBase) -> list[pa.Table]:
    """Return all states of a snapshot."""
    if begin.manifest is None or snapshots is None:
        return [ALL_STATES.empty_table()]
    found = [ALL_STATES.empty_table()]
    for name, its in begin.manifest.classes.items():
        for file in its.files:
            rows = snapshots.states(its, file)
            names = pa.repeat(pa.scalar(name), rows.num_rows)
            arrays = [names, rows["key"], rows["state"]]
            found.append(pa.Table.from_arrays(arrays, schema=ALL_STATES))
    return found


def _continued(
    app: App,
    journal: Journal,
    entity: str,
    epoch: Epoch,
    snapshots: Snapshots | None,
    begin: ReplayBase,
) -> TypedStates:
    """Build a class's rows: what nothing has changed since the snapshot keeps its typed columns.

    A snapshot whose columns are wide says nothing of whether they need be: then all is built from
    states, so that the types depend on the values alone.
    """
    changes = class_states(journal, entity, begin.epoch, epoch)
    its = None if begin.manifest is None else begin.manifest.classes.get(entity)
    if its is None or snapshots is None:
        return typed_states(app, entity, changes)
    columns = SnapshotColumns(tables_of(app)[entity])
    files = [snapshots.read(file) for file in its.files]
    changed = changes["key"].combine_chunks()
    present = changes.filter(pc.is_valid(changes["state"]))
    if all(rows.schema.equals(columns.schema) for rows in files):
        kept = [_but(rows, columns.key, changed) for rows in files]
        try:
            fresh = columns.table.rows(present["key"].to_pylist(), present["state"].to_pylist())
            every = [fresh.append_column(_ORDER, present["key"])]
        except TooNarrow:
            pass
        else:
            every += [columns.typed(rows).append_column(_ORDER, rows[columns.key]) for rows in kept]
            rows = sorted_by_key(pa.concat_tables(every), _ORDER).drop_columns([_ORDER])
            return TypedStates(columns.table, rows)
    states = [_but(snapshots.states(its, file), "key", changed) for file in its.files]
    former = [one.select(CLASS_STATES.names).cast(CLASS_STATES) for one in states]
    return typed_states(app, entity, sorted_by_key(pa.concat_tables([*former, present])))


_ORDER = "key's text"
"""A column for sorting; no attribute can be called so."""


def _but(rows: pa.Table, key: str, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[key], keys)))


def typed_states(app: App, entity: str, states: pa.Table) -> TypedStates:
    """Return states (as `CLASS_STATES`) as rows of their class's table."""
    present = states.filter(pc.is_valid(states["state"]))
    keys, values = present["key"].to_pylist(), present["state"].to_pylist()
    table = tables_of(app)[entity]
    try:
        return TypedStates(table, table.rows(keys, values))
    except TooNarrow:
        table = tables_of(app, [entity])[entity]
        return TypedStates(table, table.rows(keys, values))
