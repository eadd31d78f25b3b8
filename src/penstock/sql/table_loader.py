"""Filling: rows of the past, put into a database for one query.

Promises tables that are made as the view makes them, with rows in one order: of keys, of the log, of
epochs. Leaves to `history` which tables a query needs.
"""

from typing import Final

import duckdb
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.journal.api import Journal
from penstock.journal.as_of import epoch_as_of
from penstock.model.application import App
from penstock.snapshots.column import quoted
from penstock.snapshots.table import EntityTable
from penstock.sql.as_of_cache import AsOfCache
from penstock.sql.as_of_clause import FEED, ChangesCall
from penstock.sql.change_feed import EpochRange, create_feed_table, read_feed
from penstock.sql.connection import registered
from penstock.sql.query import QueryLimits
from penstock.sql.recent_requests import epochs_upto, recent_transactions
from penstock.sql.system_tables import (
    SYSTEM_TABLES,
    epoch_rows,
    reply_rows,
    request_rows,
    select_list,
)

_FEED_SHIFT: Final = 17
"""An eighth of the view's memory is what a feed may begin with; building it takes several times that."""

_SLICE: Final = 100_000
"""Transactions that are decoded at once."""


class TableLoader:
    """Puts rows of the past into a database."""

    def __init__(
        self,
        app: App,
        journal: Journal,
        rewinds: AsOfCache,
        connection: duckdb.DuckDBPyConnection,
        limits: QueryLimits,
    ) -> None:
        self._app = app
        self._journal = journal
        self._rewinds = rewinds
        self._connection = connection
        self._limits = limits

    def schema(self, name: str) -> None:
        """Make a schema."""
        self._connection.execute(f"CREATE SCHEMA {quoted(name)}")

    def entities(self, schema: str, table: EntityTable, epoch: Epoch | None) -> None:
        """Make the table of a class; without an epoch it stays empty."""
        rows: pa.Table | None = None
        if epoch is not None:
            table, rows = self._rewinds.at(table.kind.name, epoch, self._limits)
        target = f"{quoted(schema)}.{quoted(table.name)}"
        self._connection.execute(f"CREATE TABLE {target}({table.definition})")
        if rows is not None:
            self._insert(target, select_list(table), rows)

    def system(self, schema: str, name: str, epoch: Epoch | None) -> None:
        """Make one of Penstock's own tables; without an epoch it stays empty."""
        target = f"{quoted(schema)}.{name}"
        self._connection.execute(f"CREATE TABLE {target}({SYSTEM_TABLES[name]})")
        if epoch is None:
            return
        check = self._limits.check
        if name == "epochs":
            self._insert(target, "*", epoch_rows(epochs_upto(self._journal, epoch, check)))
            return
        rows_of = request_rows if name == "requests" else reply_rows
        most = self._limits.settings.requests_max
        found = recent_transactions(self._journal, epoch, most, check)
        for start in range(0, found.num_rows, _SLICE):
            check()
            self._insert(target, "*", rows_of(found.slice(start, _SLICE)))

    def feed(self, call: ChangesCall, entity: str) -> None:
        """Make the table that a call of `changes` stands for."""
        span = EpochRange(
            epoch_as_of(self._journal, call.first), epoch_as_of(self._journal, call.last)
        )
        if span.first > span.last:
            raise QueryError(f"changes goes from {span.first} to {span.last}, which is backwards")
        before = Epoch(span.first - 1)
        found = read_feed(
            self._app,
            self._journal,
            entity,
            span,
            lambda: self._rewinds.at(entity, before, self._limits),
            self._limits.settings.memory_mb << _FEED_SHIFT,
        )
        self._limits.check()
        create_feed_table(self._connection, found, f"{quoted(call.schema)}.{FEED}")

    def _insert(self, target: str, chosen: str, rows: pa.Table) -> None:
        with registered(self._connection, rows) as source:
            self._connection.execute(f"INSERT INTO {target} SELECT {chosen} FROM {source}")
