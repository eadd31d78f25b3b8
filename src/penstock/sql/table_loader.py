"""Loads historical tables into a database for one query.

The tables are defined as in the view. Rows have a fixed order: by key, by log position, by epoch.
"""

from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.journal.api import EVENTS, Journal, PartKind
from penstock.journal.as_of import epoch_as_of
from penstock.model.application import App
from penstock.snapshots.column import TooNarrow, quoted
from penstock.snapshots.table import EntityTable
from penstock.sql.as_of_cache import AsOfCache
from penstock.sql.as_of_clause import FEED, ChangesCall
from penstock.sql.change_feed import EpochRange, create_feed_table, read_feed
from penstock.sql.connection import registered
from penstock.sql.query import QueryLimits
from penstock.sql.recorded_requests import joined, read_requests
from penstock.sql.stream_tables import event_tables
from penstock.sql.system_tables import (
    SYSTEM,
    SYSTEM_TABLES,
    epoch_rows,
    reply_rows,
    request_rows,
    select_list,
)
from penstock.sql.table_change import fits_narrow, retype_table
from penstock.sql.table_names import stream_names

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
        target = f"{quoted(schema)}.{name}"
        self._connection.execute(f"CREATE TABLE {target}({SYSTEM_TABLES[name]})")
        if epoch is None:
            return
        if name == "epochs":
            self._insert(target, "*", epoch_rows(self._epochs(epoch)))
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
        """Return number, commit time in microseconds and request count of the held epochs."""
        epochs: list[tuple[int, int, int]] = []
        for commit in self._journal.commits(Epoch(self._journal.first() - 1), upto):
            self._limits.check()
            requests = sum(part.rows for part in commit.parts_of(PartKind.TRANSACTIONS))
            epochs.append((commit.epoch, commit.time_us, requests))
        return epochs

    def _insert(self, target: str, chosen: str, rows: pa.Table) -> None:
        with registered(self._connection, rows) as source:
            self._connection.execute(f"INSERT INTO {target} SELECT {chosen} FROM {source}")
