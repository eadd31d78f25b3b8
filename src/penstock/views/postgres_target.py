"""`PostgresTarget`: the tables of a view in one schema of a PostgreSQL database.

Rows go into temporary tables by COPY, and from there into the view's tables by statements over sets. A transaction locks
the row with the position first, so two writers take turns, and the later one sees that it is overtaken. Readers see whole
epochs and wait only while columns are added or dropped.

The messages of problems have names of the schema, but no values of rows and no password.
"""

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from time import monotonic, sleep
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.base.ids import Epoch
from penstock.client.results import SearchAnswer
from penstock.errors import ConfigError, QueryError, RequestError, ViewUnavailable
from penstock.snapshots.column import quoted
from penstock.views.cells import Cells, Hold, Unheld, held_key, held_text
from penstock.views.reading import QueryBounds, TableAnswer, collected
from penstock.views.target import (
    FAILED,
    Kind,
    Overtaken,
    Position,
    Standing,
    TableChange,
    TableShape,
    TargetProblem,
)

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

META: Final = "_penstock_view"
"""The table with the position, in one row, and with the shapes of the tables as JSON."""

OLDEST: Final = 14
"""The oldest server whose `numeric` has infinities."""

LOCK_MS: Final = 5_000
"""How long a statement waits for a lock."""

DDL_MS: Final = 60_000
"""How long a statement that changes the schema may take."""

IDLE_MS: Final = 60_000
"""After this time the server ends a transaction whose writer has been stopped, so that another can go on."""

PROBE_S: Final = 30.0
"""While a statement takes longer, the server is asked so often whether it answers at all."""

PROBE_TIMEOUT_S: Final = 10

READ_S: Final = 5.0
"""How long the beginning of a reading may take, and how much later than its limit a query may end."""

_SESSION: Final = "SET client_min_messages = warning; SET datestyle = ISO; SET intervalstyle = postgres; SET timezone = 'UTC'"

_OPTIONS: Final[Mapping[str, str]] = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""For a server that vanishes without a word; a URL may say otherwise."""

TYPES: Final[Mapping[Kind, str]] = {
    Kind.TEXT: "text",
    Kind.INTEGER: "bigint",
    Kind.FLOAT: "double precision",
    Kind.BOOLEAN: "boolean",
    Kind.DECIMAL: "numeric",
    Kind.BYTES: "bytea",
    Kind.DATE: "date",
    Kind.TIME: "time without time zone",
    Kind.TIMESTAMP: "timestamp with time zone",
    Kind.DURATION: "interval",
    Kind.UUID: "uuid",
    Kind.JSON: "jsonb",
}
"""As the catalog writes them."""

_DIGITS_MAX: Final = 131_072
_PLACES_MAX: Final = 16_383
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        return "NaN" if value.is_nan() else str(value)
    exponent = value.as_tuple().exponent
    if value.adjusted() >= _DIGITS_MAX or (isinstance(exponent, int) and exponent < -_PLACES_MAX):
        raise Unheld(
            f"PostgreSQL has {_DIGITS_MAX} digits before the point and {_PLACES_MAX} behind it"
        )
    return str(value)


def _time(value: time) -> str:
    if value.tzinfo is not None:
        raise Unheld("it has a zone, and a time of PostgreSQL has none")
    return value.isoformat()


def _instant(value: datetime) -> str:
    return value.isoformat(" ")


def _duration(value: timedelta) -> str:
    return f"{value.days} days {value.seconds}.{value.microseconds:06} seconds"


def _json(text: str) -> str:
    if "\\u" in text:
        if _NUL.search(text):
            raise Unheld("a text in it contains a NUL character")
        if _SURROGATE.search(text):
            held_text(json.dumps(json.loads(text), ensure_ascii=False))
    return text


_HOLDS: Final[Mapping[Kind, Hold]] = {
    Kind.TEXT: held_text,
    Kind.DECIMAL: _decimal,
    Kind.DATE: date.isoformat,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _instant,
    Kind.DURATION: _duration,
    Kind.UUID: str,
    Kind.JSON: _json,
}

_COLUMNS_IN: Final = b"""
    SELECT t.relname, t.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_class AS t
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    LEFT JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE n.nspname = %s AND t.relkind IN ('r', 'p', 'v', 'm', 'f')
    ORDER BY t.relname, a.attnum
"""
_INDEXES_IN: Final = b"""
    SELECT t.relname, i.relname, c.conname,
        CASE WHEN x.indisprimary THEN ARRAY(
            SELECT a.attname::text FROM pg_attribute AS a
            WHERE a.attrelid = t.oid AND a.attnum = ANY (x.indkey)
        ) END
    FROM pg_index AS x
    JOIN pg_class AS t ON t.oid = x.indrelid
    JOIN pg_class AS i ON i.oid = x.indexrelid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    LEFT JOIN pg_constraint AS c ON c.conindid = x.indexrelid AND c.contype = 'p'
    WHERE n.nspname = %s AND (x.indisunique OR x.indisexclusion)
    ORDER BY t.relname, i.relname
"""

_HOLDERS: Final = b"""
    SELECT 'the transaction of process ' || pid || ' (' || coalesce(nullif(application_name, ''), backend_type) || ')',
        backend_type LIKE 'autovacuum %%'
    FROM pg_stat_activity
    WHERE age(backend_xmin) >= age(%s::xid) AND pid <> pg_backend_pid()
        AND (datname = current_database() OR datname IS NULL)
    UNION ALL
    SELECT 'the replication slot ' || slot_name, false FROM pg_replication_slots WHERE age(xmin) >= age(%s::xid)
    UNION ALL
    SELECT 'the prepared transaction ' || gid, false FROM pg_prepared_xacts WHERE age(transaction) >= age(%s::xid)
"""
"""The holders of dead rows: snapshots that are older than a transaction; and whether the server itself ends it, soon."""

_LOOK_S: Final = 0.05
"""Between two looks at a holder that ends soon."""

_WAITING_HELPS: Final = ("08", "40", "53", "57")
"""Classes of SQLSTATE: no connection, a lost race, no resources, a server that starts or stops."""


class PostgresTarget:
    """A schema of a PostgreSQL database with the tables of one view."""

    def __init__(self, url: str, schema: str, view: str, *, lock_ms: int = LOCK_MS) -> None:
        """Read the URL; the server is asked at the first use.

        Args:
            url: A connection string of libpq, which may have a password.
            view: The name of the view, for remedies.
            lock_ms: See `LOCK_MS`.

        Raises:
            ConfigError: The URL cannot be read.
        """
        self._setting = f"views.{view}.url"
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # The message of the error repeats parts of the URL.
            raise ConfigError(
                f"{self._setting} cannot be read; write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            ) from None
        self._secret = str(given.get("password") or "")
        self._options: dict[str, Any] = {
            "application_name": f"penstock view {view}",
            **_OPTIONS,
            **{name: value for name, value in given.items() if value is not None},
        }
        self._rebuild = f"penstock view rebuild {view}"
        mend = f"undo the change of the schema, or run {self._rebuild}"
        self._remedies = {  # by SQLSTATE or its class
            "28": f"set the right user and password in {self._setting}",
            "3F000": mend,
            "42703": mend,
            "42P01": mend,
            "42501": f"grant it to the user of {self._setting}",
            "53100": "make room on the disk of the server",
            "55P03": "end the transaction that holds the lock; pg_locks and pg_stat_activity name it",
            "25006": f"write the address of the primary server into {self._setting}",
        }
        self._schema = schema
        self._lock_ms = lock_ms
        self._meta = f"{quoted(schema)}.{META}"
        self._connection: Connection | None = None
        self._staged: dict[TableShape, _Table] = {}
        self._horizon: str | None = None

    def position(self) -> Standing:
        """Return position and failed rows of the schema."""
        with self._opened() as connection:
            catalog = _Catalog(connection, self._schema)
            if META not in catalog.columns:
                return Standing(None)
            position, _ = self._read_meta(connection)
            if position is None or FAILED not in catalog.columns:
                return Standing(position)
            return Standing(
                position,
                _value(connection, f"SELECT count(*) FROM {quoted(self._schema)}.{FAILED}"),
            )

    def reading(self) -> "PostgresReading":
        """Open a repeatable read on a connection of its own, and read the position in it."""
        connection: Connection | None = None
        try:
            connection = psycopg.connect("", **self._options)
            with _cut_after(connection, READ_S):
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                _run(connection, f"SET LOCAL search_path = {quoted(self._schema)}; {_SESSION}")
                exists = _value(connection, "SELECT to_regclass(%s) IS NOT NULL", self._meta)
                position = self._read_meta(connection)[0] if exists else None
            return PostgresReading(connection, position)
        except psycopg.Error as error:
            if connection is not None:
                connection.close()
            raise self._problem(error) from error

    def load(
        self,
        before: Position | None,
        after: Position,
        shapes: Sequence[TableShape],
        rows: Iterable[TableChange],
    ) -> None:
        """Replace all tables of the view, and its position, in one transaction."""
        tables = [
            _Table(shape, self._schema, f"_penstock_load_{at}") for at, shape in enumerate(shapes)
        ]
        with self._opened() as connection:
            self._create_meta(connection)
            self._rehearse(connection, before, tables)
            try:
                self._stage(connection, tables, rows)
                with self._writing(connection, before, after) as former:
                    _Replacement(connection, self._schema, former, tables).run()
                    text = msgspec.json.encode(list(shapes)).decode()
                    connection.execute(
                        f"UPDATE {_escaped(self._meta)} SET shapes = %s".encode(), (text,)
                    )
            finally:
                if not connection.closed:
                    for table in tables:
                        _run(connection, f"DROP TABLE IF EXISTS {table.staging}")

    def _create_meta(self, connection: Connection) -> None:
        if META in _Catalog(connection, self._schema).columns:
            return
        with connection.transaction():
            schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
            if not _value(connection, schemas, self._schema):
                _run(connection, f"CREATE SCHEMA {quoted(self._schema)}")
            _run(
                connection,
                f"CREATE TABLE {self._meta} (only_row boolean PRIMARY KEY CHECK (only_row), "
                "lineage text, journal text, epoch bigint, checksum text, definition text, shapes text)",
            )
            _run(
                connection,
                f"INSERT INTO {self._meta} (only_row) VALUES (true) ON CONFLICT DO NOTHING",
            )

    def _rehearse(
        self, connection: Connection, before: Position | None, tables: Sequence["_Table"]
    ) -> None:
        """Change the schema and take it back: what is refused is refused before all rows are sent."""
        with connection.transaction(force_rollback=True):
            position, former = self._read_meta(connection)
            if position != before:
                raise Overtaken
            _Replacement(connection, self._schema, former, tables).change_schema()

    def _stage(
        self, connection: Connection, tables: Sequence["_Table"], changes: Iterable[TableChange]
    ) -> None:
        staged = {table.shape.name: table for table in tables}
        for table in tables:
            _run(connection, table.create(table.staging))
        for change in changes:
            staged[change.shape.name].copy(connection, change)

    def apply(self, before: Position, after: Position, changes: Sequence[TableChange]) -> None:
        """Change some tables, and the position, in one transaction."""
        with self._opened() as connection:
            for change in changes:
                if change.shape not in self._staged:
                    table = _Table(
                        change.shape, self._schema, f"_penstock_rows_{len(self._staged)}"
                    )
                    _run(connection, f"{table.create(table.staging)} ON COMMIT DELETE ROWS")
                    self._staged[change.shape] = table
            with self._writing(connection, before, after) as former:
                self._verify(connection, former, changes)
                for change in changes:
                    self._staged[change.shape].change(connection, change)

    def _verify(
        self,
        connection: Connection,
        shapes: Sequence[TableShape],
        changes: Sequence[TableChange],
    ) -> None:
        """Check that the tables are as they were created.

        Raises:
            TargetProblem: They are not.
        """
        catalog = _Catalog(connection, self._schema)
        for shape in shapes:
            if reason := catalog.difference(shape):
                raise TargetProblem(reason, f"undo it, or run {self._rebuild}")
            catalog.refuse_unique_indexes(shape.name)
        for change in changes:
            if change.shape not in shapes:
                raise TargetProblem(
                    f"the table {change.shape.name} has another shape than the view wants",
                    self._rebuild,
                )

    def purge(self) -> None:
        """Write the tables again without dead rows; their readers wait meanwhile.

        The write-ahead log of the server, its standbys and its backups are left to its operator.
        """
        with self._opened() as connection:
            if META not in _Catalog(connection, self._schema).tables:
                return  # the files of dropped tables are gone
            # Older snapshots may see the dead rows, so that they would be written again. Those of a later call may not.
            if self._horizon is None:
                self._horizon = _value(connection, "SELECT pg_current_xact_id()::xid::text")
            until = monotonic() + self._lock_ms / 1_000
            while (
                holder := connection.execute(_HOLDERS, [self._horizon] * 3).fetchone()
            ) is not None:
                if not holder[1] or monotonic() > until:
                    raise TargetProblem(
                        f"PostgreSQL: {holder[0]} still sees the removed rows", f"end {holder[0]}"
                    )
                sleep(_LOOK_S)
            _, shapes = self._read_meta(connection)
            for shape in shapes:
                _run(connection, f"VACUUM (FULL) {quoted(self._schema)}.{quoted(shape.name)}")
            self._horizon = None

    def drop(self, before: Position) -> None:
        """Remove all tables of the view, and its position; the schema stays."""
        with self._opened() as connection, connection.transaction():
            _run(connection, f"SET LOCAL statement_timeout = {DDL_MS}")
            present = _Catalog(connection, self._schema).tables
            if META not in present:
                raise Overtaken
            position, shapes = self._read_meta(connection, "FOR UPDATE")
            if position != before:
                raise Overtaken
            names = [shape.name for shape in shapes if shape.name in present]
            tables = [f"{quoted(self._schema)}.{quoted(name)}" for name in (*names, META)]
            _run(connection, f"DROP TABLE {', '.join(tables)}")

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        """Give the connection; errors of the server become problems.

        Raises:
            TargetProblem: The server does not answer, or refuses.
        """
        try:
            connection = self._connected()
            with _watched(connection, self._is_silent):
                yield connection
        except psycopg.Error as error:
            if self._connection is not None and self._connection.broken:
                self.close()
            raise self._problem(error) from error

    def _is_silent(self) -> bool:
        """Say whether the server does not even take a connection: then a statement will never end."""
        try:
            options = {**self._options, "connect_timeout": str(PROBE_TIMEOUT_S)}
            psycopg.connect("", **options).close()
        except psycopg.errors.ConnectionTimeout:
            return True
        except psycopg.Error:  # it refuses, so it answers
            return False
        return False

    def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._staged = {}
        connection: Connection = psycopg.connect("", autocommit=True, **self._options)
        try:
            with _watched(connection, self._is_silent):
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: Connection) -> None:
        version = connection.info.server_version // 10_000
        if version < OLDEST:
            raise TargetProblem(
                f"the server is PostgreSQL {version}", f"a view needs {OLDEST} or newer"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise TargetProblem(
                f"the database has the encoding {encoding}, which lacks characters",
                "create a database with the encoding UTF8",
            )
        _run(
            connection,
            f"SET lock_timeout = {self._lock_ms}; SET statement_timeout = 0; "
            f"SET idle_in_transaction_session_timeout = {IDLE_MS}; "
            f"SET default_transaction_isolation = 'read committed'; {_SESSION}",
        )

    @contextmanager
    def _writing(
        self, connection: Connection, before: Position | None, after: Position
    ) -> Iterator[list[TableShape]]:
        """Begin a transaction and give the tables that the schema has; write the new position at its end.

        Raises:
            Overtaken: The position is another.
        """
        with connection.transaction():
            position, former = self._read_meta(connection, "FOR UPDATE")
            if position != before:
                raise Overtaken
            yield former
            connection.execute(
                f"UPDATE {_escaped(self._meta)} SET lineage = %s, journal = %s, epoch = %s, checksum = %s, "
                "definition = %s".encode(),
                msgspec.structs.astuple(after),
            )

    def _read_meta(
        self, connection: Connection, locking: str = ""
    ) -> tuple[Position | None, list[TableShape]]:
        """Return the position, and the tables of the last load."""
        row = _run(
            connection,
            f"SELECT lineage, journal, epoch, checksum, definition, shapes FROM {self._meta} {locking}",
        ).fetchone()
        if row is None or row[0] is None:
            return None, []
        lineage, journal, epoch, checksum, definition, shapes = row
        position = Position(lineage, journal, Epoch(epoch), checksum, definition)
        return position, msgspec.json.decode(shapes, type=list[TableShape])

    def _problem(self, error: psycopg.Error) -> TargetProblem:
        state = error.sqlstate or ""
        text = self._without_secret(error.diag.message_primary or str(error))
        said = " ".join(text.split())  # libpq writes several lines
        if not state:  # libpq gives none to an error that ends or prevents a connection
            return TargetProblem(f"PostgreSQL: {said}", self._login_remedy(said))
        if state == "2BP01":  # its detail has the names of the objects
            depends = (error.diag.message_detail or "").replace("\n", "; ")
            return TargetProblem(
                f"PostgreSQL: {depends or said}", "change or drop what depends on it"
            )
        if state[:2] in ("22", "23"):  # their messages may have values
            return TargetProblem(
                f"PostgreSQL refuses a row: {_place_of(error)}",
                f"undo the change of the schema, or run {self._rebuild}",
            )
        return TargetProblem(f"PostgreSQL: {said}", self._remedy(state))

    def _remedy(self, state: str) -> str:
        if state[:2] in _WAITING_HELPS and state not in self._remedies:
            return ""
        return self._remedies.get(
            state, self._remedies.get(state[:2], "see the messages of the server")
        )

    def _login_remedy(self, said: str) -> str:
        if any(part in said for part in ("authentication failed", "no password", "pg_hba.conf")):
            return f"set the right user and password in {self._setting}"
        if 'database "' in said and "does not exist" in said:
            return f"create the database, or name another in {self._setting}"
        if "could not translate host name" in said or "resolve" in said:
            return f"set the right host in {self._setting}"
        return ""

    def _without_secret(self, text: str) -> str:
        return text.replace(self._secret, "***") if self._secret else text

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


class PostgresReading:
    """A repeatable read of a PostgreSQL database, which sees one state although another process writes."""

    def __init__(self, connection: Connection, position: Position | None) -> None:
        self.position = position
        self._connection = connection

    def sql(self, query: str, parameters: list[Any], bounds: QueryBounds) -> TableAnswer:
        """Execute a query in the state of the position; parameters are written as `%s`."""
        # The cursor of the server hands the rows out in parts, and takes nothing but a query. A savepoint keeps the
        # transaction, and with it the state, when the query fails.
        limit_s = bounds.left_ms / 1_000 + READ_S
        try:
            # The server ends a query in time, if it lives.
            with _cut_after(self._connection, limit_s), self._connection.transaction():
                _run(self._connection, f"SET LOCAL statement_timeout = {bounds.left_ms}")
                with self._connection.cursor("penstock") as cursor:
                    cursor.execute(query.encode(), parameters or None)
                    columns = tuple(each.name for each in cursor.description or ())
                    return collected(cursor.fetchmany, columns, bounds)
        except psycopg.Error as error:
            if self._connection.broken:
                raise ViewUnavailable("PostgreSQL: the server has not answered") from error
            said = error.diag.message_primary or str(error)
            raise QueryError(f"PostgreSQL: {said.strip()}") from error

    def search(self, question: dict[str, Any]) -> SearchAnswer:
        """Refuse: the view is a database."""
        raise RequestError("this view is a database; ask it with sql")

    def close(self) -> None:
        """End the transaction."""
        with suppress(psycopg.Error):
            self._connection.close()


class _Table:
    """The statements of a table."""

    def __init__(self, shape: TableShape, schema: str, staging: str) -> None:
        self.shape = shape
        self.name = f"{quoted(schema)}.{quoted(shape.name)}"
        self.staging = f"pg_temp.{staging}"
        self._cells = Cells(shape, _HOLDS)
        names = [quoted(name) for name in shape.names]
        columns, others = ", ".join(names), names[shape.key_width :]
        key = names[: shape.key_width]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        # By bytes: `1.0` and `1.00` are equal, but not the same.
        differs = "ROW({})::record OPERATOR(pg_catalog.*<>) ROW({})::record".format(
            ", ".join(f"held.{name}" for name in others),
            ", ".join(f"excluded.{name}" for name in others),
        )
        same_key = " AND ".join(f"held.{name} = staged.{name}" for name in key)
        is_staged = f"EXISTS (SELECT FROM {self.staging} AS staged WHERE {same_key})"
        self.insert = (
            f"INSERT INTO {self.name} AS held ({columns}) SELECT {columns} FROM {self.staging}"
        )
        self.upsert = (
            f"{self.insert} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes} WHERE {differs}"
        )
        self.remove = f"DELETE FROM {self.name} AS held WHERE NOT {is_staged}"
        self.add_key = f"ALTER TABLE {self.name} ADD PRIMARY KEY ({', '.join(key)})"
        owners = f"%s::{TYPES[shape.columns[0].kind]}[]"
        self._forget = f"DELETE FROM {_escaped(self.name)} AS held WHERE held.{_escaped(key[0])} = ANY ({owners})"
        if shape.key_width > 1:
            self._forget += f" AND NOT {_escaped(is_staged)}"

    def create(self, name: str) -> str:
        """Return the statement that creates the table, or its staging; without the primary key."""
        columns = ", ".join(
            f"{quoted(column.name)} {TYPES[column.kind]}" for column in self.shape.columns
        )
        temporary = "TEMPORARY " if name == self.staging else ""
        return f"CREATE {temporary}TABLE {name} ({columns})"

    def copy(self, connection: Connection, change: TableChange) -> list[tuple[Any, ...]]:
        """Send rows to the staging; return them as they are held."""
        rows = self._cells.held(change.rows)
        if rows:
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {self.staging} FROM STDIN".encode()) as copy,
            ):
                for row in rows:
                    copy.write_row(row)
        return rows

    def change(self, connection: Connection, change: TableChange) -> None:
        """Write the rows of a change, and delete the other rows of the touched owners."""
        rows = self.copy(connection, change)
        owners = [*map(held_key, change.touched)]
        if self.shape.key_width == 1:
            kept = {row[0] for row in rows}
            owners = [owner for owner in owners if owner not in kept]
        if owners:
            connection.execute(self._forget.encode(), (owners,))
        if rows:
            _run(connection, self.upsert)


class _Catalog:
    """The tables, columns and unique indexes of a schema.

    Attributes:
        columns: The type of each column, by table; also of views.
        keys: The primary key of each table: the name of its constraint, and its columns.
    """

    def __init__(self, connection: Connection, schema: str) -> None:
        self.columns: dict[str, dict[str, str]] = {}
        self.tables: set[str] = set()
        for name, sort, column, type_name in connection.execute(_COLUMNS_IN, (schema,)):
            columns = self.columns.setdefault(name, {})
            if sort == "r":
                self.tables.add(name)
            if column is not None:
                columns[column] = type_name
        self.keys: dict[str, tuple[str, list[str]]] = {}
        self._unique: dict[str, list[str]] = {}
        for table, index, constraint, key in connection.execute(_INDEXES_IN, (schema,)):
            if key is None:
                self._unique.setdefault(table, []).append(index)
            else:
                self.keys[table] = constraint, key

    def refuse_unique_indexes(self, table: str) -> None:
        """Refuse unique indexes on other columns than the key: an epoch may pass through states that they forbid.

        Raises:
            TargetProblem: There is one.
        """
        for index in self._unique.get(table, ()):
            raise TargetProblem(
                f"the table {table} has the unique index {index}, and the rows of an epoch are not written in the order "
                "of their transactions",
                f"drop {index}, or create it again without UNIQUE",
            )

    def difference(self, shape: TableShape) -> str:
        """Return how a table differs from its shape; empty if it does not. Columns of users are no difference."""
        actual = self.columns.get(shape.name)
        if actual is None or shape.name not in self.tables:
            return f"the table {shape.name} is gone"
        for column in shape.columns:
            if column.name not in actual:
                return f"the column {column.name} of the table {shape.name} is gone"
            if actual[column.name] != TYPES[column.kind]:
                return (
                    f"the column {column.name} of the table {shape.name} has the type {actual[column.name]} and not "
                    f"{TYPES[column.kind]}"
                )
        if not self.has_key(shape):
            return f"the table {shape.name} has another primary key than the view's"
        return ""

    def has_key(self, shape: TableShape) -> bool:
        """Say whether the primary key of a table is the row key of its shape."""
        _, key = self.keys.get(shape.name, ("", []))
        return sorted(key) == sorted(shape.key)


class _Replacement:
    """The replacement of all tables by staged rows, in place: grants, indexes and dependent views stay.

    Raises:
        TargetProblem: Something of a user's own is in the way.
    """

    def __init__(
        self,
        connection: Connection,
        schema: str,
        former: Sequence[TableShape],
        tables: Sequence[_Table],
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._tables = tables
        self._former = {shape.name: shape for shape in former}
        self._catalog = _Catalog(connection, schema)
        for table in tables:
            name = table.shape.name
            is_own = name in self._former and name in self._catalog.tables
            if name in self._catalog.columns and not is_own:
                raise TargetProblem(
                    f"{schema}.{name} exists and is not the view's", "rename or move it"
                )
            self._catalog.refuse_unique_indexes(name)
        self._rekeyed = [
            table
            for table in tables
            if table.shape.name in self._catalog.tables and not self._catalog.has_key(table.shape)
        ]

    def run(self) -> None:
        """Replace the tables; in a transaction."""
        self.change_schema()
        for table in self._tables:
            if table in self._rekeyed or table.shape.name not in self._catalog.tables:
                _run(self._connection, f"DELETE FROM {table.name}")
                _run(self._connection, table.insert)
                _run(self._connection, table.add_key)
            else:
                _run(self._connection, f"ANALYZE {table.staging}")
                _run(self._connection, table.remove)
                _run(self._connection, table.upsert)

    def change_schema(self) -> None:
        """Drop and create tables, keys and columns; in a transaction. The keys of `run` come with the rows."""
        _run(self._connection, f"SET LOCAL statement_timeout = {DDL_MS}")
        wanted = {table.shape.name for table in self._tables}
        for name in self._former:
            if name in self._catalog.tables and name not in wanted:
                _run(self._connection, f"DROP TABLE {quoted(self._schema)}.{quoted(name)}")
        for table in self._tables:
            if table.shape.name in self._catalog.tables:
                self._change_columns(table)
            else:
                _run(self._connection, table.create(table.name))
        _run(self._connection, "SET LOCAL statement_timeout = 0")

    def _change_columns(self, table: _Table) -> None:
        changes: list[str] = []
        if table in self._rekeyed and table.shape.name in self._catalog.keys:
            constraint, key = self._catalog.keys[table.shape.name]
            changes.append(f"DROP CONSTRAINT {quoted(constraint)}")
            changes += [f"ALTER COLUMN {quoted(name)} DROP NOT NULL" for name in key]
        wanted = {column.name: TYPES[column.kind] for column in table.shape.columns}
        actual = self._catalog.columns[table.shape.name]
        former = self._former[table.shape.name].names
        # A column that neither the former nor the new shape has is a user's own.
        changes += [
            f"DROP COLUMN {quoted(name)}"
            for name, type_name in actual.items()
            if (name in former or name in wanted) and wanted.get(name) != type_name
        ]
        changes += [
            f"ADD COLUMN {quoted(name)} {type_name}"
            for name, type_name in wanted.items()
            if actual.get(name) != type_name
        ]
        if changes:
            _run(self._connection, f"ALTER TABLE {table.name} {', '.join(changes)}")


@contextmanager
def _cut_after(connection: Connection, limit_s: float) -> Iterator[None]:
    """Cut a connection if the block takes longer: what waits for the server gets an error."""
    with _line_of(connection) as line:
        timer = threading.Timer(limit_s, _cut, (line,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it may be using the line


@contextmanager
def _watched(connection: Connection, is_silent: Callable[[], bool]) -> Iterator[None]:
    """Cut a connection if the server is silent; a statement that takes long, at a server that lives, goes on."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PROBE_S):
            if is_silent():
                _cut(line)
                return

    with _line_of(connection) as line:
        watching = threading.Thread(target=watch, name="penstock-postgres", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()


@contextmanager
def _line_of(connection: Connection) -> Iterator[socket.socket]:
    """Give the socket of a connection by a file of its own, which stays this socket when the connection is closed."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        yield line


def _cut(line: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        line.shutdown(socket.SHUT_RDWR)


def _run(connection: Connection, text: str) -> psycopg.Cursor[tuple[Any, ...]]:
    return connection.execute(text.encode())


def _value(connection: Connection, text: str, *parameters: object) -> Any:
    row = connection.execute(text.encode(), parameters or None).fetchone()
    assert row is not None
    return row[0]


def _escaped(text: str) -> str:
    """Return the text of a statement with parameters, in which names may have the sign of a parameter."""
    return text.replace("%", "%%")


def _place_of(error: psycopg.Error) -> str:
    """Return where a row was refused, without its values."""
    diag = error.diag
    named = (
        ("constraint", diag.constraint_name),
        ("column", diag.column_name),
        ("table", diag.table_name),
    )
    places = [f"{what} {name}" for what, name in named if name]
    return ", ".join([f"error {error.sqlstate}", *places])
