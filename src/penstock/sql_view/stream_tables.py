"""The tables of streams in the view: the newest events of each stream, as many as `view.requests_max`.

`EventTable` makes the rows. The caller runs each method inside the transaction of a batch, and restores `mark` if
that transaction is undone.
"""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.application import App
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.event_table import STORED, EventTable
from penstock.snapshots.table import written_name
from penstock.sql_view.connection import registered
from penstock.sql_view.system_tables import STREAMS, select_list, stream_names
from penstock.sql_view.table_change import fits_narrow, retype_table

_log = logging.getLogger(__name__)

_SLACK: Final = 20
"""Old events are removed when they exceed the limit by this fraction (1/20)."""


class StreamTablesMark(NamedTuple):
    """The tables and the counts of their rows at one moment."""

    tables: dict[str, EventTable]
    kept: dict[str, int]


class StreamTables:
    """The tables of an application's streams in one database.

    Args:
        events_max: The most events of each stream.
    """

    def __init__(self, app: App, events_max: int) -> None:
        self._app = app
        self._events_max = events_max
        self._names = stream_names(app)
        self._tables: dict[str, EventTable] = {}
        self._kept: dict[str, int] = {}

    @property
    def wide(self) -> str:
        """The names of the streams with wide columns, as JSON."""
        names = sorted(name for name, table in self._tables.items() if table.wide)
        return msgspec.json.encode(names).decode()

    def exchange(self, connection: duckdb.DuckDBPyConnection, app: App) -> "StreamTables | None":
        """Create and drop tables for another version of the application; return its tables.

        None if a stream has changed: then the tables cannot be kept, and nothing was done.
        """
        after = StreamTables(app, self._events_max)
        wide = [name for name, table in self._tables.items() if table.wide]
        after._tables = event_tables(app, wide)
        kept = [name for name in after._tables if name in self._tables]
        if any(self._description(name) != after._description(name) for name in kept):
            return None
        if after._tables:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {STREAMS}")
        for name in [name for name in self._tables if name not in after._tables]:
            connection.execute(f"DROP TABLE {self.written(name)}")
        for name in [name for name in after._tables if name not in self._tables]:
            definition = after._tables[name].definition
            connection.execute(f"CREATE TABLE {after.written(name)}({definition})")
        after._kept = {name: self._kept.get(name, 0) for name in after._tables}
        return after

    def _description(self, name: str) -> tuple[str, str]:
        return self.written(name), self._tables[name].definition

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create empty tables."""
        self._tables = event_tables(self._app)
        self._kept = dict.fromkeys(self._tables, 0)
        if self._tables:
            connection.execute(f"CREATE SCHEMA {STREAMS}")
        for name, table in self._tables.items():
            connection.execute(f"CREATE TABLE {self.written(name)}({table.definition})")

    def open(self, connection: duckdb.DuckDBPyConnection, wide: str) -> None:
        """Use tables that exist; `wide` is the attribute of that name."""
        self._tables = event_tables(self._app, msgspec.json.decode(wide, type=list[str]))
        for name in self._tables:
            query = f"SELECT count(*) FROM {self.written(name)}"
            [(self._kept[name],)] = connection.execute(query).fetchall()

    def written(self, stream: str) -> str:
        """Return the name of a stream's table in SQL."""
        return written_name(STREAMS, self._names[stream])

    def mark(self) -> StreamTablesMark:
        """Return the tables as they are, for `restore`."""
        return StreamTablesMark(self._tables.copy(), self._kept.copy())

    def restore(self, mark: StreamTablesMark) -> None:
        """Forget all changes since `mark`, which the database has undone."""
        self._tables, self._kept = mark

    def append(
        self,
        connection: duckdb.DuckDBPyConnection,
        events: Sequence[pa.Table],
        cell_bytes_max: int | None,
    ) -> None:
        """Add atoms, and remove the oldest events beyond the limit.

        Args:
            events: Rows of the journal's kind `events`, in the order of epochs.
            cell_bytes_max: Events with more stored bytes are NULL; None: no limit.
        """
        if not events:
            return
        atoms = pa.concat_tables(events)
        for name in pc.unique(atoms["stream"]).to_pylist():
            if name not in self._tables:
                continue  # the application has no such stream any more
            own = atoms.filter(pc.equal(atoms["stream"], name)).sort_by("atom")
            self._append_to(connection, name, own.select(STORED), cell_bytes_max)

    def _append_to(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        atoms: pa.Table,
        cell_bytes_max: int | None,
    ) -> None:
        try:
            rows = self._tables[name].rows(atoms, cell_bytes_max)
        except TooNarrow:
            self._widen(connection, name)
            rows = self._tables[name].rows(atoms, cell_bytes_max)
        target = self.written(name)
        with registered(connection, rows) as source:
            chosen = select_list(self._tables[name])
            connection.execute(f"INSERT INTO {target} SELECT {chosen} FROM {source}")
        kept = self._kept[name] + rows.num_rows
        excess = kept - self._events_max
        if excess > self._events_max // _SLACK:
            connection.execute(
                f"DELETE FROM {target} WHERE rowid IN "
                f"(SELECT rowid FROM {target} ORDER BY atom, place LIMIT {excess})"
            )
            kept = self._events_max
        self._kept[name] = kept
        if self._tables[name].wide:
            self._narrow(connection, name)

    def _narrow(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Give a stream's table the narrow types again if no event needs the wide ones any more."""
        narrow = event_tables(self._app)[name]
        if fits_narrow(connection, self.written(name), self._tables[name], narrow):
            self._retype(connection, name, narrow)
            _log.info("view.narrowed", extra={"stream": name})

    def _widen(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Give a stream's table the wide types, and copy its rows."""
        self._retype(connection, name, event_tables(self._app, [name])[name])
        _log.info("view.widened", extra={"stream": name})

    def _retype(
        self, connection: duckdb.DuckDBPyConnection, name: str, present: EventTable
    ) -> None:
        retype_table(connection, (STREAMS, self._names[name]), self._tables[name], present)
        self._tables[name] = present


def event_tables(app: App, wide: Sequence[str] = ()) -> dict[str, EventTable]:
    """Return the tables of an application's streams by name; `wide` names the wide ones.

    An event that was published with another type than the stream has now is NULL, with a reason.
    """
    return {
        name: EventTable(stream, wide=name in wide, refuses=False)
        for name, stream in app.topology.streams.items()
    }
