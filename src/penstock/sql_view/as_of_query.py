"""Queries at past epochs, answered from the journal and the snapshots.

Each query runs in a child, in an isolated, read-only database in memory that holds the named tables at
the named epochs. One thread executes it over rows in a fixed order. So the same query at the same
epochs always has the same bytes, after restarts and rebuilds of the view, and after any compaction.
The exceptions are functions of time and chance, and that old `requests`, `replies` and `epochs` are
removed.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, epochs_text
from penstock.base.near_names import did_you_mean
from penstock.errors import QueryError, ViewUnavailable
from penstock.files.roots import snapshots_root
from penstock.journal.api import EVENTS, Journal, PartKind
from penstock.journal.as_of import epoch_as_of, held_epochs
from penstock.model.application import App
from penstock.model.versions.former_class import type_at
from penstock.model.waiting_effect import EFFECT
from penstock.process.config import ViewConfig
from penstock.snapshots.column import TooNarrow, quoted
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import (
    TypedStates,
    oldest_state,
    state_as_of,
    system_rows_as_of,
    typed_states,
)
from penstock.snapshots.table import MAIN, TASKS, EntityTable, tables_of
from penstock.sql_view import query_guard
from penstock.sql_view.as_of_clause import FEED, AsOfStatement, ChangesCall, TableAsOf
from penstock.sql_view.change_batch import joined, read_requests
from penstock.sql_view.connection import (
    ViewDamaged,
    close_to_outside,
    fix_settings,
    open_isolated,
    registered,
)
from penstock.sql_view.error_place import error_place
from penstock.sql_view.query import (
    Query,
    QueryLimits,
    QueryResult,
    limits_of,
    read,
    translating_errors,
)
from penstock.sql_view.query_pool import EncodedResult, QueryJob, QueryPool, ResultOptions
from penstock.sql_view.stream_tables import event_tables
from penstock.sql_view.system_tables import (
    STREAMS,
    SYSTEM,
    SYSTEM_TABLES,
    create_system_table,
    effect_rows,
    epoch_rows,
    names_of,
    reply_rows,
    request_rows,
    select_list,
    stream_names,
    widening_select_list,
)
from penstock.sql_view.table_change import fits_narrow, retype_table

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
    """The changes of a class, ordered by epoch, then by the bytes of the key.

    The state before the range and the feed give the state after the range. The columns are those that the
    class has after the last epoch of the range.

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
        if size > bytes_max:  # so that memory is bounded
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


# The rows of a class at an epoch always have the same order, so that a single-threaded query over them
# always has the same result. The cache is bounded in bytes, and drops the least recently used classes.
# A child sends the classes that it has computed to its parent, which keeps them for later children.


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
        """
        key = self._key(entity, epoch, epoch if seen_at is None else seen_at)
        states = self._kept.get(key)
        if states is None:
            states = self._kept[key] = self._compute(key)
            self._used[key] = True
        self._used.setdefault(key, False)
        limits.check()
        return states

    def system_states(self, name: str, epoch: Epoch) -> dict[str, bytes]:
        """Return the system rows of a kind after an epoch, by their keys; raises as `at`. They are not kept."""
        self._check_held(epoch)
        rows = system_rows_as_of(self._journal, name, epoch, self._snapshots)
        return dict(zip(rows["key"].to_pylist(), rows["state"].to_pylist(), strict=True))

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

    def _check_held(self, epoch: Epoch) -> None:
        oldest = oldest_state(self._journal, self._snapshots)
        if oldest is None or epoch < oldest:
            held = "no state is held" if oldest is None else f"the oldest is after epoch {oldest}"
            raise QueryError(f"the state after epoch {epoch} is not held any more; {held}")

    def _compute(self, key: _CacheKey) -> TypedStates:
        entity, epoch, seen_at = key
        self._check_held(epoch)
        table, rows = state_as_of(self._app, self._journal, entity, epoch, self._snapshots, seen_at)
        return TypedStates(table, rows.combine_chunks())


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


# The tables are defined as in the view. Rows have a fixed order: by key, by log position, by epoch.


_FEED_SHIFT: Final = 17
"""Input of a change feed, in bytes per megabyte of the view's memory as a shift: one eighth. Building the
feed takes several times its input."""

_SLICE: Final = 100_000
"""How many transactions are decoded at once."""

_EPOCHS: Final = 64
"""How many epochs are read first, backwards from the last; the number doubles each time."""


class TableLoader:
    """Creates the tables of one query."""

    def __init__(
        self,
        app: App,
        journal: Journal,
        cache: AsOfCache,
        connection: duckdb.DuckDBPyConnection,
        limits: QueryLimits,
    ) -> None:
        self._app = app
        self._journal = journal
        self._cache = cache
        self._connection = connection
        self._limits = limits
        self._filled: set[tuple[str, str]] = set()  # schemas and names of system tables

    def schema(self, name: str) -> None:
        """Create a schema."""
        self._connection.execute(f"CREATE SCHEMA {quoted(name)}")

    def entities(self, schema: str, table: EntityTable, epoch: Epoch | None) -> None:
        """Create the table of a class as of an epoch; None leaves it empty."""
        rows: pa.Table | None = None
        if epoch is not None:
            table, rows = self._cache.at(table.entity_type.stored_name, epoch, self._limits)
        target = f"{quoted(schema)}.{quoted(table.name)}"
        self._connection.execute(f"CREATE TABLE {target}({table.definition})")
        if rows is not None:
            self._insert(target, select_list(table), rows)

    def stream(self, schema: str, stream: str, epoch: Epoch | None) -> None:
        """Create the table of a stream with its newest events up to an epoch; None leaves it empty."""
        atoms = EVENTS.empty_table() if epoch is None else self._recent_atoms(stream, epoch)
        table = event_tables(self._app)[stream]
        try:
            rows = table.rows(atoms)
        except TooNarrow:
            table = event_tables(self._app, [stream])[stream]
            rows = table.rows(atoms)
        most = self._limits.settings.requests_max
        name = stream_names(self._app)[stream]
        target = f"{quoted(schema)}.{quoted(name)}"
        self._connection.execute(f"CREATE TABLE {target}({table.definition})")
        self._insert(target, select_list(table), rows.slice(max(0, rows.num_rows - most)))
        narrow = event_tables(self._app)[stream]
        if table.wide and fits_narrow(self._connection, target, table, narrow):
            retype_table(self._connection, (schema, name), table, narrow)

    def system(self, schema: str, name: str, epoch: Epoch | None) -> None:
        """Create a system table as of an epoch; None leaves it empty."""
        needed = create_system_table(self._connection, schema, name)
        if epoch is None:
            return
        for table in needed:
            if (schema, table) not in self._filled:
                self._filled.add((schema, table))
                self._fill(f"{quoted(schema)}.{table}", table, epoch)

    def _fill(self, target: str, name: str, epoch: Epoch) -> None:
        """Put the rows of a system table into it."""
        if name == "epochs":
            self._insert(target, "*", epoch_rows(self._epochs(epoch)))
            return
        if name == "effect_rows":
            states = self._cache.system_states(EFFECT, epoch)
            self._insert(target, "*", effect_rows(states))
            return
        rows_of = request_rows if name == "requests" else reply_rows
        transactions = self._recent_requests(epoch)
        for start in range(0, transactions.num_rows, _SLICE):
            self._limits.check()
            self._insert(target, "*", rows_of(transactions.slice(start, _SLICE)))

    def alias(self, name: str) -> None:
        """Make a system table readable without its schema."""
        self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {SYSTEM}.{name}")

    def feed(self, call: ChangesCall, entity: str) -> None:
        """Create the table of a call of `changes`."""
        span = EpochRange(
            epoch_as_of(self._journal, call.first), epoch_as_of(self._journal, call.last)
        )
        if span.first > span.last:
            raise QueryError(f"the epochs of changes are backwards: {span.first} to {span.last}")
        before = Epoch(span.first - 1)
        feed = read_feed(
            self._app,
            self._journal,
            entity,
            span,
            lambda: self._cache.at(entity, before, self._limits, span.last),
            self._limits.settings.memory_mb << _FEED_SHIFT,
        )
        self._limits.check()
        create_feed_table(self._connection, feed, f"{quoted(call.schema)}.{FEED}")

    def _recent_requests(self, upto: Epoch) -> pa.Table:
        """Return the newest processed requests up to an epoch, as many as the view keeps."""
        tables: dict[PartKind, list[pa.Table]] = {PartKind.TRANSACTIONS: [], PartKind.SENT: []}
        first, end, epochs, count = self._journal.first(), upto, _EPOCHS, 0
        most = self._limits.settings.requests_max
        while end >= first and count < most:
            after = Epoch(max(first - 1, end - epochs))
            for part_kind, rows in read_requests(self._journal, after, end):
                self._limits.check()
                tables[part_kind].append(rows)
                count += rows.num_rows
            end, epochs = after, 2 * epochs
        table = joined(*tables.values())
        return table.slice(max(0, table.num_rows - most))

    def _recent_atoms(self, stream: str, upto: Epoch) -> pa.Table:
        """Return the newest atoms of a stream up to an epoch: at least as many events as the view keeps."""
        tables: list[pa.Table] = [EVENTS.empty_table()]
        first, end, epochs, count = self._journal.first(), upto, _EPOCHS, 0
        while end >= first and count < self._limits.settings.requests_max:
            after = Epoch(max(first - 1, end - epochs))
            for _, rows in self._journal.rows(PartKind.EVENTS, after, end, EVENTS.names):
                self._limits.check()
                tables.append(rows.filter(pc.equal(rows["stream"], stream)))
                count += pc.sum(tables[-1]["count"]).as_py() or 0
            end, epochs = after, 2 * epochs
        return pa.concat_tables(tables).sort_by("atom")

    def _epochs(self, upto: Epoch) -> list[tuple[int, int, int]]:
        """Return number, commit time in microseconds and request count of the newest held epochs, as many as the view keeps."""
        epochs: list[tuple[int, int, int]] = []
        after = max(self._journal.first() - 1, upto - self._limits.settings.requests_max)
        for commit in self._journal.commits(Epoch(after), upto):
            self._limits.check()
            requests = sum(part.rows for part in commit.parts_of(PartKind.TRANSACTIONS))
            epochs.append((commit.epoch, commit.time_us, requests))
        return epochs

    def _insert(self, target: str, chosen: str, rows: pa.Table) -> None:
        with registered(self._connection, rows) as source:
            self._connection.execute(f"INSERT INTO {target} SELECT {chosen} FROM {source}")


class AsOfQueries:
    """Executes queries at past epochs of one journal. Many threads may do this at once.

    Args:
        settings: The limits of queries; a quarter of the memory is for the cache.
        pool: Executes the queries; None creates a pool.
    """

    def __init__(
        self,
        app: App,
        journal: Journal,
        settings: ViewConfig,
        snapshots: Snapshots | None = None,
        pool: QueryPool | None = None,
    ) -> None:
        self._pool = pool or QueryPool()
        self._app = app
        self._journal = journal
        self._settings = settings
        self._cache = AsOfCache(app, journal, snapshots, settings.memory_mb << 18)
        self._tables = tables_of(app)
        self._empty: duckdb.DuckDBPyConnection | None = None

    def held_epochs(self) -> tuple[Epoch, Epoch]:
        """Return the oldest and the newest epoch that the journal holds."""
        return held_epochs(self._journal)

    def ask(self, statement: AsOfStatement, query: Query, deadline: float) -> QueryResult:
        """Execute a query as `execute` does, and return its rows."""
        return self.execute(statement, query, deadline, ResultOptions()).result()

    def execute(
        self, statement: AsOfStatement, query: Query, deadline: float, options: ResultOptions
    ) -> EncodedResult:
        """Execute a query.

        Args:
            deadline: When the query must have ended, in seconds of `time.monotonic`.
        """
        limits = limits_of(query, self._settings, deadline)
        if statement.moment is None:
            self._await(query.min_epoch or 0, deadline)
        execute = partial(self._execute, statement, limits)
        job = QueryJob(execute, options, limits, self._still, self._cache.used, self._keep)
        try:
            return self._pool.run(job)
        except ViewDamaged as error:
            raise ViewUnavailable(f"DuckDB failed: {error}; try again") from error

    def _await(self, epoch: int, deadline: float) -> None:
        left_ms = max(0, int((deadline - time.monotonic()) * 1_000))
        if epoch > 0 and self._journal.wait(Epoch(epoch - 1), left_ms) is None:
            raise ViewUnavailable(f"epoch {epoch} is requested, and is not committed yet")

    @contextmanager
    def _still(self) -> Iterator[None]:
        with self._pool.still, self._journal.quiesced():
            if self._empty is None:
                # To open a database takes half the time of a short query; each child has its copy of this one.
                self._empty = open_isolated(self._settings.memory_mb)
            yield

    def forget(self) -> None:
        """Drop the cached states; the caller keeps queries from starting."""
        self._cache.forget()

    def _keep(self, used: bytes) -> None:
        with self._pool.still:
            self._cache.keep(used)

    def _execute(self, statement: AsOfStatement, limits: QueryLimits) -> QueryResult:
        """Execute a query in this process, which is a child."""
        names = [*names_of(self._app, self._tables.values()), FEED]
        query, parameters, given = statement.query, statement.parameters, statement.given
        connection = self._empty
        assert connection is not None, "it was opened before the fork"
        with (
            translating_errors(limits),
            translating_errors(limits, lambda: error_place(connection, query, parameters, given)),
        ):
            named = query_guard.check_query(query, names, connection, statement.schemas, given)
            epoch = self._epoch_of(statement, named)
            loader = TableLoader(self._app, self._journal, self._cache, connection, limits)
            self._load(loader, statement, named, epoch)
            close_to_outside(connection)
            fix_settings(connection)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            return read(connection, query, parameters, limits, epoch)

    def _epoch_of(
        self, statement: AsOfStatement, named: Collection[query_guard.TableName]
    ) -> Epoch:
        """Return the epoch of a result: the newest epoch of its tables."""
        if statement.moment is not None:
            return epoch_as_of(self._journal, statement.moment)
        tables = {
            *((STREAMS, name.casefold()) for name in stream_names(self._app).values()),
            *((table.schema, table.name.casefold()) for table in self._tables.values()),
            *((schema, name) for schema in (MAIN, SYSTEM) for name in SYSTEM_TABLES),
        }
        if any((table.schema or MAIN, table.name) in tables for table in named):
            return held_epochs(self._journal)[1]
        moments = [reference.moment for reference in statement.references]
        moments += [feed.last for feed in statement.feeds]
        return max(epoch_as_of(self._journal, moment) for moment in moments)

    def _load(
        self,
        loader: TableLoader,
        statement: AsOfStatement,
        named: Collection[query_guard.TableName],
        epoch: Epoch,
    ) -> None:
        """Create all tables, and load the rows of those that the query names."""
        self._load_state(loader, named, epoch)
        self._load_records(loader, named, epoch)
        for reference in statement.references:
            self._load_reference(loader, reference)
        for call in statement.feeds:
            loader.schema(call.schema)
            loader.feed(call, self._class_of(call.entity))

    def _load_state(
        self, loader: TableLoader, named: Collection[query_guard.TableName], epoch: Epoch
    ) -> None:
        """Create the tables of entities and of tasks."""
        if self._app.topology.rows:
            loader.schema(TASKS)
        for table in tables_of(self._app, epoch=epoch).values():
            is_named = _is_named(named, table.schema, table.name)
            loader.entities(table.schema, table, epoch if is_named else None)

    def _load_records(
        self, loader: TableLoader, named: Collection[query_guard.TableName], epoch: Epoch
    ) -> None:
        """Create the tables of streams and the system tables."""
        if self._app.topology.streams:
            loader.schema(STREAMS)
        for stream, name in stream_names(self._app).items():
            loader.stream(STREAMS, stream, epoch if _is_named(named, STREAMS, name) else None)
        loader.schema(SYSTEM)
        names = {table.written.casefold() for table in self._tables.values()}
        for name in SYSTEM_TABLES:
            is_named = _is_named(named, MAIN, name) or _is_named(named, SYSTEM, name)
            loader.system(SYSTEM, name, epoch if is_named else None)
            if quoted(name) not in names:
                loader.alias(name)

    def _load_reference(self, loader: TableLoader, reference: TableAsOf) -> None:
        """Load a table with its own clause."""
        epoch = epoch_as_of(self._journal, reference.moment)
        loader.schema(reference.schema)
        schema = reference.given_schema.casefold() or MAIN
        name = reference.name.casefold()
        for table in self._tables.values():
            if (table.schema, table.name.casefold()) == (schema, name):
                loader.entities(reference.schema, table, epoch)
                return
        for stream, written in stream_names(self._app).items():
            if (STREAMS, written.casefold()) == (schema, name):
                loader.stream(reference.schema, stream, epoch)
                return
        if name in SYSTEM_TABLES and schema in (MAIN, SYSTEM):
            loader.system(reference.schema, name, epoch)
        else:
            raise self._unknown(reference.name, schema)

    def _class_of(self, name: str) -> str:
        """Return the class of a name, which may also be the name of its table."""
        if name in self._tables:
            return name
        for entity, table in self._tables.items():
            if table.name.casefold() == name.casefold():
                return entity
        raise self._unknown(name)

    def _unknown(self, name: str, schema: str = MAIN) -> QueryError:
        names = names_of(self._app, self._tables.values())
        query_guard.refuse_ambiguous(schema, name, names)
        return QueryError(f"there is no table {name}{did_you_mean(name, names)}")


def _is_named(named: Collection[query_guard.TableName], schema: str, name: str) -> bool:
    """Say whether a query names a table; it may omit the schema `main`."""
    schemas = ("", MAIN) if schema == MAIN else (schema,)
    return any((schema, name.casefold()) in named for schema in schemas)


def as_of_queries(data: Path, app: App, journal: Journal, settings: ViewConfig) -> AsOfQueries:
    """Return the executor for the journal in a data directory."""
    return AsOfQueries(app, journal, settings, Snapshots(snapshots_root(data), journal.identity))
