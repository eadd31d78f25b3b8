"""The change feed of one class: the changes of its entities by each epoch of a range.

A row has the epoch, its time, the key, the kind (`create`, `update`, `delete`), and the entity before
and after the epoch as structs of the class's columns, or NULL if the entity did not exist. Rows are
ordered by epoch, then by the bytes of the key. An entity that an epoch creates and deletes has no row.
The state before the range and the feed give the state after the range.
The columns are those that the class has after the last epoch of the range.

A range with too many changes is rejected, so that memory is bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, epochs_text
from penstock.errors import QueryError
from penstock.journal.api import Journal, PartKind
from penstock.model.application import App
from penstock.snapshots.column import quoted
from penstock.snapshots.state_as_of import TypedStates, typed_states
from penstock.snapshots.table import EntityTable, tables_of
from penstock.sql.connection import registered
from penstock.sql.system_tables import select_list, widening_select_list

_COLUMNS: Final = ("epoch", "entity", "key", "state")
_KEPT: Final = ("epoch", "key", "state")
_ORDER: Final = [("epoch", "ascending"), ("key", "ascending")]
_INSTANT: Final = pa.timestamp("us", "UTC")

# Temporary tables, and a column of theirs; no class can have these names.
_STEPS: Final = '"feed steps"'
_STATES: Final = '"feed states"'
_BEFORE: Final = '"feed before"'
_PLACE: Final = '"feed place"'


@dataclass(frozen=True, slots=True)
class EpochRange:
    """The epochs from `first` to `last`, both included."""

    first: Epoch
    last: Epoch


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The changes of a class.

    Attributes:
        table: The class's columns, wide if a value needs it.
        steps: The changes: index, epoch, time and key.
        places: The indexes of the changes after which the entity exists.
        after: The entities after these changes.
        before: The class before the first epoch; None if it is not needed.
    """

    table: EntityTable
    steps: pa.Table
    places: pa.Array
    after: TypedStates | None
    before: TypedStates | None


def read_feed(
    app: App,
    journal: Journal,
    entity: str,
    span: EpochRange,
    before: Callable[[], TypedStates],
    bytes_max: int,
) -> ChangeFeed:
    """Read the changes of a class in a range of epochs.

    Args:
        before: Returns the class before the range, with the columns of the last epoch; called only if the range has
            changes.
    """
    changes = _changes(journal, entity, span, bytes_max)
    places = pa.array(np.arange(changes.num_rows))
    present = pc.is_valid(changes["state"]).combine_chunks()
    states = changes.filter(present)
    after = typed_states(app, entity, states, span.last) if states.num_rows else None
    former = before() if changes.num_rows and span.first > 0 else None
    wide = any(states is not None and states.table.wide for states in (after, former))
    table = tables_of(app, [entity] if wide else [], span.last)[entity]
    commits = journal.commits(Epoch(span.first - 1), span.last)
    times = {commit.epoch: commit.time_us for commit in commits}
    times_us = [times[epoch] for epoch in changes["epoch"].to_pylist()]
    steps = {
        "place": places,
        "epoch": changes["epoch"],
        "time": pa.array(times_us, pa.int64()).cast(_INSTANT),
        "key": table.keys(changes["key"].to_pylist())[table.key],
    }
    return ChangeFeed(table, pa.table(steps), places.filter(present), after, former)


def _changes(journal: Journal, entity: str, span: EpochRange, bytes_max: int) -> pa.Table:
    """Return epoch, key and state of the changes, in order."""
    tables: list[pa.Table] = []
    size = 0
    for _, rows in journal.rows(PartKind.CHANGES, Epoch(span.first - 1), span.last, _COLUMNS):
        own = rows.filter(pc.equal(rows["entity"], entity)).select(_KEPT)
        size += own.nbytes
        if size > bytes_max:
            raise QueryError(
                f"the changes of {entity} in {epochs_text(span.first, span.last)} take more than "
                f"{bytes_max >> 20} MB (a part of view.memory_mb); ask for fewer epochs at a time"
            )
        tables.append(own)
    return pa.concat_tables(tables).sort_by(_ORDER)


def create_feed_table(connection: duckdb.DuckDBPyConnection, feed: ChangeFeed, target: str) -> None:
    """Create the table of a feed; `target` is its quoted name."""
    table, key = feed.table, quoted(feed.table.key)
    run = connection.execute
    row_type = f"STRUCT({table.definition})"
    key_type = table.columns[0][1].sql
    run(
        f"CREATE TABLE {target}(epoch BIGINT, time TIMESTAMP WITH TIME ZONE, key {key_type}, "
        f"kind VARCHAR, before {row_type}, after {row_type})"
    )
    run(f"CREATE TABLE {_STEPS}(place BIGINT, epoch BIGINT, time TIMESTAMPTZ, key {key_type})")
    run(f"CREATE TABLE {_STATES}({_PLACE} BIGINT, {table.definition})")
    run(f"CREATE TABLE {_BEFORE}({table.definition})")
    with registered(connection, feed.steps) as source:
        run(f"INSERT INTO {_STEPS} SELECT * FROM {source}")
    if feed.after is not None:
        rows = feed.after.rows.append_column(_PLACE.strip('"'), feed.places)
        with registered(connection, rows) as source:
            chosen = _select_list(feed.after.table, table)
            run(f"INSERT INTO {_STATES} SELECT {_PLACE}, {chosen} FROM {source}")
    if feed.before is not None:
        with registered(connection, feed.before.rows) as source:
            typed_rows = f"(SELECT {_select_list(feed.before.table, table)} FROM {source})"
            run(
                f"INSERT INTO {_BEFORE} SELECT * FROM {typed_rows} "
                f"WHERE {key} IN (SELECT key FROM {_STEPS})"
            )
    run(f"INSERT INTO {target} {_joined(table)}")
    for name in (_STEPS, _STATES, _BEFORE):
        run(f"DROP TABLE {name}")


def _select_list(source: EntityTable, table: EntityTable) -> str:
    is_same = source.wide == table.wide
    return select_list(source) if is_same else widening_select_list(source, table)


def _joined(table: EntityTable) -> str:
    """Return the SELECT that joins each change with the states before and after it."""
    key = quoted(table.key)

    def struct(source: str) -> str:
        fields = ", ".join(
            f"{quoted(name)} := {source}.{quoted(name)}" for name, _ in table.columns
        )
        return f"CASE WHEN {source}.{key} IS NULL THEN NULL ELSE struct_pack({fields}) END"

    return f"""
        WITH steps AS (
            SELECT *, lag(place) OVER (PARTITION BY key ORDER BY place) AS former FROM {_STEPS}
        ), entities AS (
            SELECT step.place, step.epoch, step.time, step.key,
                CASE WHEN former IS NULL THEN {struct("old")} ELSE {struct("past")} END AS before,
                {struct("new")} AS after
            FROM steps AS step
            LEFT JOIN {_STATES} AS new ON new.{_PLACE} = step.place
            LEFT JOIN {_STATES} AS past ON past.{_PLACE} = step.former
            LEFT JOIN {_BEFORE} AS old ON old.{key} = step.key
        )
        SELECT epoch, time, key,
            CASE WHEN before IS NULL THEN 'create' WHEN after IS NULL THEN 'delete' ELSE 'update' END,
            before, after
        FROM entities WHERE before IS NOT NULL OR after IS NOT NULL ORDER BY place"""
