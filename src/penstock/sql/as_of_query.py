"""History: queries at epochs of the past, answered from the journal.

Each runs in a child, in a database of its own, in memory, closed off and read-only, which holds what the query names, as it was at the epochs that it names. One thread runs it over rows that are
always in the same order, so that the same query at the same epochs gives the same bytes for ever:
after a restart, after the view was made anew, and whatever became of the journal's files. Only what a
query itself takes from elsewhere (the time, chance) differs, and how far back `requests`, `replies`
and `epochs` are held.
"""

import difflib
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import duckdb

from penstock.base.ids import Epoch
from penstock.errors import QueryError, ViewUnavailable
from penstock.journal.api import Journal
from penstock.journal.as_of import epoch_as_of, held_epochs
from penstock.model.application import App
from penstock.process.config import ViewConfig
from penstock.snapshots.snapshot import FOLDER, Snapshots
from penstock.snapshots.table import tables_of
from penstock.sql import query_guard as seal
from penstock.sql.as_of_cache import AsOfCache
from penstock.sql.as_of_clause import FEED, AsOfStatement, TableAsOf
from penstock.sql.connection import close_to_outside, fix_settings, open_isolated
from penstock.sql.damage import ViewDamaged
from penstock.sql.query import Query, QueryLimits, QueryResult, limited, limits_of, read
from penstock.sql.query_pool import Asked, EncodedResult, QueryJob, QueryPool
from penstock.sql.system_tables import SYSTEM, SYSTEM_TABLES
from penstock.sql.table_loader import TableLoader
from penstock.sql.view_store import names_of


class AsOfQueries:
    """Answers what is asked of the past of one journal. Many threads may ask at once."""

    def __init__(
        self,
        app: App,
        journal: Journal,
        settings: ViewConfig,
        snapshots: Snapshots | None = None,
        pool: QueryPool | None = None,
    ) -> None:
        """Answer from a journal, and snapshots where there are some.

        Args:
            app: The application.
            journal: Its journal.
            settings: Limits; a quarter of the memory keeps what was asked for of late.
            snapshots: Those of the journal.
            pool: The places for questions, if others use them, too.
        """
        self._pool = pool or QueryPool()
        self._app = app
        self._journal = journal
        self._settings = settings
        self._rewinds = AsOfCache(app, journal, snapshots, settings.memory_mb << 18)
        self._tables = tables_of(app)

    def held_epochs(self) -> tuple[Epoch, Epoch]:
        """Return the oldest and the newest epoch that the journal holds.

        Raises:
            QueryError: It has none yet.
        """
        return held_epochs(self._journal)

    def ask(self, statement: AsOfStatement, question: Query, deadline: float) -> QueryResult:
        """Answer a question, as `answer` does; the rows come into this process."""
        return self.answer(statement, question, deadline, Asked()).answer()

    def answer(
        self, statement: AsOfStatement, question: Query, deadline: float, asked: Asked
    ) -> EncodedResult:
        """Answer a question.

        Args:
            statement: What it asks of the past.
            question: Its limits.
            deadline: When the answer must be there, as `time.monotonic` counts.
            asked: On whose behalf, and in which format.

        Raises:
            QueryError: The query may not be run, is wrong, asks for an epoch that is not held, or
                exceeds a limit.
            ViewUnavailable: The epoch that the answer must have seen did not come in time.
            IntegrityError: The journal is damaged.
        """
        limits = limits_of(question, self._settings, deadline)
        if statement.moment is None:
            self._await(question.min_epoch or 0, deadline)
        ask = partial(self._asked, statement, question, limits)
        rewinds = self._rewinds
        job = QueryJob(ask, asked, limits, self._still, rewinds.told, self._keep)
        try:
            return self._pool.run(job)
        except ViewDamaged as error:
            raise ViewUnavailable(f"DuckDB broke down: {error}") from error

    def _await(self, epoch: int, deadline: float) -> None:
        left_ms = max(0, int((deadline - time.monotonic()) * 1_000))
        if epoch > 0 and self._journal.wait(Epoch(epoch - 1), left_ms) is None:
            raise ViewUnavailable(f"epoch {epoch} is asked for, and is not committed yet")

    @contextmanager
    def _still(self) -> Iterator[None]:
        with self._pool.still, self._journal.still():
            yield

    def _keep(self, told: bytes) -> None:
        with self._pool.still:
            self._rewinds.keep(told)

    def _asked(self, statement: AsOfStatement, question: Query, limits: QueryLimits) -> QueryResult:
        """Answer in this process, which is a child."""
        names = [*names_of(self._tables.values()), FEED]
        with limited(limits), closing(open_isolated(self._settings.memory_mb)) as connection:
            named = seal.check_query(statement.query, names, connection, statement.schemas)
            epoch = self._epoch_of(statement, named)
            self._fill(connection, statement, named, epoch, limits)
            close_to_outside(connection)
            fix_settings(connection)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            return read(connection, statement.query, statement.parameters, limits, epoch)

    def _epoch_of(self, statement: AsOfStatement, named: Collection[seal.TableName]) -> Epoch:
        """Return the epoch of an answer: the newest that it is made from."""
        if statement.moment is not None:
            return epoch_as_of(self._journal, statement.moment)
        names = {one.casefold() for one in names_of(self._tables.values())}
        if any(one.name in names and one.schema not in statement.schemas for one in named):
            return held_epochs(self._journal)[1]
        moments = [one.moment for one in statement.references]
        moments += [one.last for one in statement.feeds]
        return max(epoch_as_of(self._journal, one) for one in moments)

    def _fill(
        self,
        connection: duckdb.DuckDBPyConnection,
        statement: AsOfStatement,
        named: Collection[seal.TableName],
        epoch: Epoch,
        limits: QueryLimits,
    ) -> None:
        """Make all tables, and put rows into those that the query names."""
        filling = TableLoader(self._app, self._journal, self._rewinds, connection, limits)
        taken = {one.name.casefold() for one in self._tables.values()}
        for table in self._tables.values():
            name = table.name.casefold()
            is_named = not {("", name), ("main", name)}.isdisjoint(named)
            filling.entities("main", table, epoch if is_named else None)
        filling.schema(SYSTEM)
        for name in SYSTEM_TABLES:
            is_named = not {("", name), ("main", name), (SYSTEM, name)}.isdisjoint(named)
            filling.system(SYSTEM, name, epoch if is_named else None)
            if name not in taken:
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {SYSTEM}.{name}")
        for reference in statement.references:
            self._refer(filling, reference, epoch_as_of(self._journal, reference.moment))
        for call in statement.feeds:
            filling.schema(call.schema)
            filling.feed(call, self._class_of(call.entity))

    def _refer(self, filling: TableLoader, reference: TableAsOf, epoch: Epoch) -> None:
        """Make the table that has a clause of its own."""
        filling.schema(reference.schema)
        given_, name = reference.given.casefold(), reference.name.casefold()
        own = {one.name.casefold(): one for one in self._tables.values()}
        if name in own and given_ in ("", "main"):
            filling.entities(reference.schema, own[name], epoch)
        elif name in SYSTEM_TABLES and given_ in ("", "main", SYSTEM):
            filling.system(reference.schema, name, epoch)
        else:
            raise self._unknown(reference.name)

    def _class_of(self, name: str) -> str:
        """Return the class that is called so, or whose table is."""
        if name in self._tables:
            return name
        for entity, table in self._tables.items():
            if table.name.casefold() == name.casefold():
                return entity
        raise self._unknown(name)

    def _unknown(self, name: str) -> QueryError:
        near = difflib.get_close_matches(name, names_of(self._tables.values()), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return QueryError(f"there is no table {name}{hint}")


def as_of_queries(data: Path, app: App, journal: Journal, settings: ViewConfig) -> AsOfQueries:
    """Return the history of a data directory."""
    return AsOfQueries(app, journal, settings, Snapshots(data / FOLDER, journal.identity))
