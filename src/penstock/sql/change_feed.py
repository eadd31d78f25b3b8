"""The feed of changes of one class: what each epoch of a range made of each entity.

A row has the epoch, its time, the key, the kind (`create`, `update`, `delete`), and the entity before
and after the epoch as structs of the class's columns; NULL where it was not there. Rows are in the
order of epochs, and of keys (by their bytes) inside of one. What an epoch created and deleted is no
row. Applied to the state before the range, the feed gives the state after it.

Promises bounded memory: a range with too many changes is refused, to be asked for in pieces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch
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

# Tables and a column that are gone when the query runs; no class can have their names.
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
        table: The class's columns, wide where a value of them wants it.
        steps: Of each change its place, epoch, time and key.
        places: Of those changes after which the entity was there.
        after: What it was then.
        before: The class before the first epoch; None: it had no entity that matters.
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
    """Read the changes of a class in a span of epochs.

    `before` gives the class as it was before the span; it is asked only where something changed.

    Raises:
        QueryError: They take more than `bytes_max`.
        Diverged: The journal holds what does not fit the class.
        Corrupt: The journal is damaged.
    """
    changes = _changes(journal, entity, span, bytes_max)
    places = pa.array(np.arange(changes.num_rows))
    present = pc.is_valid(changes["state"]).combine_chunks()
    states = changes.filter(present)
    after = typed_states(app, entity, states) if states.num_rows else None
    found = before() if changes.num_rows and span.first > 0 else None
    wide = any(one is not None and one.table.wide for one in (after, found))
    table = tables_of(app, [entity] if wide else [])[entity]
    times = {one.epoch: one.time_us for one in journal.commits(Epoch(span.first - 1), span.last)}
    moments = [times[one] for one in changes["epoch"].to_pylist()]
    steps = {
        "place": places,
        "epoch": changes["epoch"],
        "time": pa.array(moments, pa.int64()).cast(_INSTANT),
        "key": table.keys(changes["key"].to_pylist())[table.key],
    }
    return ChangeFeed(table, pa.table(steps), places.filter(present), after, found)


def _changes(journal: Journal, entity: str, span: EpochRange, bytes_max: int) -> pa.Table:
    """Return epoch, key and state of the changes, in order."""
    found: list[pa.Table] = []
    size = 0
    for _, rows in journal.rows(PartKind.CHANGES, Epoch(span.first - 1), span.last, _COLUMNS):
        chosen = rows.filter(pc.equal(rows["entity"], entity)).select(_KEPT)
        size += chosen.nbytes
        if size > bytes_max:
            raise QueryError(
                f"the changes of {entity} in the epochs {span.first} to {span.last} take more than "
                f"{bytes_max >> 20} MB (a part of view.memory_mb); ask for fewer epochs at a time"
            )
        found.append(chosen)
    return pa.concat_tables(found).sort_by(_ORDER)


def create_feed_table(connection: duckdb.DuckDBPyConnection, feed: ChangeFeed, target: str) -> None:
    """Make the table of a feed, under a name that is quoted already."""
    table, key = feed.table, quoted(feed.table.key)
    run = connection.execute
    kind = f"STRUCT({table.definition})"
    key_type = table.columns[0][1].sql
    run(
        f"CREATE TABLE {target}(epoch BIGINT, time TIMESTAMP WITH TIME ZONE, key {key_type}, "
        f"kind VARCHAR, before {kind}, after {kind})"
    )
    run(f"CREATE TABLE {_STEPS}(place BIGINT, epoch BIGINT, time TIMESTAMPTZ, key {key_type})")
    run(f"CREATE TABLE {_STATES}({_PLACE} BIGINT, {table.definition})")
    run(f"CREATE TABLE {_BEFORE}({table.definition})")
    with registered(connection, feed.steps) as source:
        run(f"INSERT INTO {_STEPS} SELECT * FROM {source}")
    if feed.after is not None:
        rows = feed.after.rows.append_column(_PLACE.strip('"'), feed.places)
        with registered(connection, rows) as source:
            chosen = _chosen(feed.after.table, table)
            run(f"INSERT INTO {_STATES} SELECT {_PLACE}, {chosen} FROM {source}")
    if feed.before is not None:
        with registered(connection, feed.before.rows) as source:
            typed_rows = f"(SELECT {_chosen(feed.before.table, table)} FROM {source})"
            run(
                f"INSERT INTO {_BEFORE} SELECT * FROM {typed_rows} "
                f"WHERE {key} IN (SELECT key FROM {_STEPS})"
            )
    run(f"INSERT INTO {target} {_joined(table)}")
    for name in (_STEPS, _STATES, _BEFORE):
        run(f"DROP TABLE {name}")


def _chosen(given_: EntityTable, table: EntityTable) -> str:
    return select_list(given_) if given_.wide == table.wide else widening_select_list(given_, table)


def _joined(table: EntityTable) -> str:
    """Return what puts every step beside the states before and after it."""
    key = quoted(table.key)

    def struct(source: str) -> str:
        fields = ", ".join(f"{quoted(one)} := {source}.{quoted(one)}" for one, _ in table.columns)
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
