"""Queries at past epochs, answered from the journal and the snapshots.

Each query runs in a child, in an isolated, read-only database in memory that holds the named tables at
the named epochs. One thread executes it over rows in a fixed order. So the same query at the same
epochs always has the same bytes, after restarts and rebuilds of the view, and after any compaction.
The exceptions are functions of time and chance, and that old `requests`, `replies` and `epochs` are
removed.
"""

import difflib
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from penstock.base.ids import Epoch
from penstock.errors import QueryError, ViewUnavailable
from penstock.files.layout import SNAPSHOTS
from penstock.journal.api import Journal
from penstock.journal.as_of import epoch_as_of, held_epochs
from penstock.model.application import App
from penstock.process.config import ViewConfig
from penstock.snapshots.column import quoted
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.table import MAIN, TASKS, tables_of
from penstock.sql import query_guard
from penstock.sql.as_of_cache import AsOfCache
from penstock.sql.as_of_clause import FEED, AsOfStatement, TableAsOf
from penstock.sql.connection import ViewDamaged, close_to_outside, fix_settings, open_isolated
from penstock.sql.error_place import error_place
from penstock.sql.query import Query, QueryLimits, QueryResult, limits_of, read, translating_errors
from penstock.sql.query_pool import EncodedResult, QueryJob, QueryPool, ResultOptions
from penstock.sql.system_tables import SYSTEM, SYSTEM_TABLES
from penstock.sql.table_loader import TableLoader
from penstock.sql.table_names import STREAMS, names_of, stream_names


class AsOfQueries:
    """Executes queries at past epochs of one journal. Many threads may do this at once."""

    def __init__(
        self,
        app: App,
        journal: Journal,
        settings: ViewConfig,
        snapshots: Snapshots | None = None,
        pool: QueryPool | None = None,
    ) -> None:
        """Name the journal.

        Args:
            settings: The limits of queries; a quarter of the memory is for the cache.
            pool: Executes the queries; None creates a pool.
        """
        self._pool = pool or QueryPool()
        self._app = app
        self._journal = journal
        self._settings = settings
        self._cache = AsOfCache(app, journal, snapshots, settings.memory_mb << 18)
        self._tables = tables_of(app)

    def held_epochs(self) -> tuple[Epoch, Epoch]:
        """Return the oldest and the newest epoch that the journal holds.

        Raises:
            QueryError: It has none yet.
        """
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

        Raises:
            QueryError: The query is not allowed, is wrong, names an epoch that is not held, or
                exceeds a limit.
            ViewUnavailable: The requested minimum epoch was not committed in time.
            IntegrityError: The journal is damaged.
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
        with (
            translating_errors(limits),
            closing(open_isolated(self._settings.memory_mb)) as connection,
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
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return QueryError(f"there is no table {name}{hint}")


def _is_named(named: Collection[query_guard.TableName], schema: str, name: str) -> bool:
    """Say whether a query names a table; it may omit the schema `main`."""
    schemas = ("", MAIN) if schema == MAIN else (schema,)
    return any((schema, name.casefold()) in named for schema in schemas)


def as_of_queries(data: Path, app: App, journal: Journal, settings: ViewConfig) -> AsOfQueries:
    """Return the executor for the journal in a data directory."""
    return AsOfQueries(app, journal, settings, Snapshots(data / SNAPSHOTS, journal.identity))
