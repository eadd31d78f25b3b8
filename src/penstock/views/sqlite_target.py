"""`SqliteTarget`: the tables of a view in an SQLite file, which any program may read meanwhile.

The file is in WAL mode: readers see whole epochs, and neither wait nor make the view wait. A reader that stays in one
transaction keeps the write-ahead log from being emptied. It is reported, and beyond a bound the view stands still until
that reader ends, because a full disk would stop more than this view.

`synchronous` is NORMAL: a commit is not synced. A loss of power takes the newest commits and with them their position,
which is in the same transaction; the view then goes on from there. The kill of a process takes nothing.
"""

import logging
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.base.ids import Epoch
from penstock.snapshots.column import quoted
from penstock.views.cells import Cells, Hold, Unheld, held_key, held_text
from penstock.views.reading import SqliteReading
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

_log = logging.getLogger(__name__)

META: Final = "_penstock_view"
"""The table with the position, in one row, and with the shapes of the tables as JSON."""

WAIT_S: Final = 5.0
"""How long a writer waits for another program that writes to the file."""

REPORTED_BYTES: Final = 64 << 20
"""A write-ahead log of this size is emptied; if a reader forbids it, that is reported."""

LOG_BYTES_MAX: Final = 1 << 30
"""Beyond this size, or that of the database if it is larger, nothing is written until the log can be emptied."""

_CACHE_KB: Final = 64 << 10
_PAGE_BYTES: Final = 4_096
_EMPTY_MS: Final = 200
_MICROSECOND: Final = timedelta(microseconds=1)
_INTEGER_END: Final = 1 << 63

TYPES: Final[Mapping[Kind, str]] = {
    Kind.TEXT: "TEXT",
    Kind.INTEGER: "INTEGER",
    Kind.FLOAT: "REAL",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DECIMAL: "TEXT",
    Kind.BYTES: "BLOB",
    Kind.DATE: "TEXT",
    Kind.TIME: "TEXT",
    Kind.TIMESTAMP: "TEXT",
    Kind.DURATION: "INTEGER",
    Kind.UUID: "TEXT",
    Kind.JSON: "TEXT",
}


def _float(value: float) -> float:
    if math.isnan(value):
        raise Unheld("it is not a number, and SQLite has none such")
    return value


def _instant(value: datetime) -> str:
    return value.isoformat(" ", "microseconds")  # of one length, so texts have the order of times


def _duration(value: timedelta) -> int:
    microseconds = value // _MICROSECOND
    if not -_INTEGER_END <= microseconds < _INTEGER_END:
        raise Unheld("its microseconds need more than 64 bits")
    return microseconds


_HOLDS: Final[Mapping[Kind, Hold]] = {
    Kind.TEXT: held_text,
    Kind.FLOAT: _float,
    Kind.DECIMAL: Decimal.__str__,
    Kind.DATE: date.isoformat,
    Kind.TIME: time.isoformat,
    Kind.TIMESTAMP: _instant,
    Kind.DURATION: _duration,
    Kind.UUID: str,
}

_REMEDIES: Final[Mapping[int, tuple[str, str]]] = {
    sqlite3.SQLITE_BUSY: ("another program is writing to the file", ""),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room on it"),
    sqlite3.SQLITE_READONLY: ("the file may only be read", "give the service the right to write"),
    sqlite3.SQLITE_PERM: ("the file may not be used", "give the service the right to write"),
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened",
        "create its directory, and give the service the right to write there",
    ),
    sqlite3.SQLITE_NOTADB: ("the file is not a database of SQLite", "move it away"),
    sqlite3.SQLITE_CORRUPT: ("the file is damaged", "move it away; the view is filled again"),
    sqlite3.SQLITE_IOERR: ("the disk failed to read or write", "see the messages of the system"),
}

_CREATE_META: Final = (
    f"CREATE TABLE IF NOT EXISTS {META} (only INTEGER PRIMARY KEY CHECK (only = 1), "
    "lineage TEXT, journal TEXT, epoch INTEGER, checksum TEXT, definition TEXT, shapes TEXT)"
)
_FOREIGN_KEYS: Final = (
    """SELECT s.name, k."table" FROM main.sqlite_master AS s, pragma_foreign_key_list(s.name, 'main') AS k """
    "WHERE s.type = 'table'"
)
_READ_META: Final = f"SELECT lineage, journal, epoch, checksum, definition FROM main.{META}"


class SqliteTarget:
    """An SQLite file with the tables of one view.

    Args:
        view: The name of the view, for remedies.
        wait_s: See `WAIT_S`.
        log_bytes_max: See `LOG_BYTES_MAX`.
    """

    def __init__(
        self,
        path: Path,
        view: str,
        *,
        wait_s: float = WAIT_S,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        self._path = path
        self._rebuild = f"penstock view rebuild {view}"
        self._wait_s = wait_s
        self._log_bytes_max = log_bytes_max
        self._reported_bytes = min(REPORTED_BYTES, log_bytes_max)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = (0, 0)
        self._verified = -1  # the version of the schema that was found to be right
        self._tables: dict[TableShape, _Table] = {}

    def position(self) -> Standing:
        """Return position and failed rows of the file."""
        with self._opened() as connection:
            position = _position_in(connection)
            if position is None or FAILED not in _names_in(connection, ("table",)).values():
                return Standing(position)
            (failed,) = connection.execute(f"SELECT count(*) FROM main.{FAILED}").fetchone()
            return Standing(position, failed)

    def reading(self) -> SqliteReading:
        """Open a read transaction, and read the position in it."""
        if not self._path.exists():
            raise TargetProblem("the view has not been filled yet")
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=self._wait_s
        )
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            return SqliteReading(connection, _position_in(connection))
        except sqlite3.Error as error:
            connection.close()
            raise TargetProblem(f"the file cannot be read: {error}") from error

    def load(
        self,
        before: Position | None,
        after: Position,
        shapes: Sequence[TableShape],
        rows: Iterable[TableChange],
    ) -> None:
        """Replace all tables of the view, and its position, in one transaction."""
        tables = [_Table(shape, number) for number, shape in enumerate(shapes)]
        with self._opened() as connection:
            self._require(connection, before)
            replacement = _Replacement(connection, tables)  # a refusal comes at once
            try:
                self._stage(connection, tables, rows)
                # A refusal is found again, if the schema was changed meanwhile.
                with self._writing(connection, before, after):
                    replacement = _Replacement(connection, tables)
                    replacement.run()
                    text = msgspec.json.encode(list(shapes)).decode()
                    connection.execute(f"UPDATE main.{META} SET shapes = ?", (text,))
            finally:
                for table in tables:
                    connection.execute(f"DROP TABLE IF EXISTS {table.staging}")
            self._verified = -1
            self._shrink_log(connection)

    def _stage(
        self,
        connection: sqlite3.Connection,
        tables: Sequence["_Table"],
        changes: Iterable[TableChange],
    ) -> None:
        """Collect the rows in temporary tables: the file stays free for others, however long this takes."""
        staged = {table.shape.name: table for table in tables}
        for table in tables:
            connection.execute(table.create(table.staging, with_key=False))
        for change in changes:
            table = staged[change.shape.name]
            with _transaction(connection, "DEFERRED"):
                connection.executemany(table.stage, table.cells.held(change.rows))

    def apply(self, before: Position, after: Position, changes: Sequence[TableChange]) -> None:
        """Change some tables, and the position, in one transaction."""
        with self._opened() as connection:
            with self._writing(connection, before, after):
                self._verify(connection)
                for change in changes:
                    self._change(connection, change)
            self._shrink_log(connection)

    def _change(self, connection: sqlite3.Connection, change: TableChange) -> None:
        """Write the rows of a change, and delete the other rows of the touched owners.

        Each statement concerns one row key, and none comes twice, so their order does not matter. Staging would save no
        round trip here, because the database is in this process.
        """
        table = self._tables.get(change.shape)
        if table is None:
            raise TargetProblem(
                f"the table {change.shape.name} has another shape than the view wants",
                self._rebuild,
            )
        rows = table.cells.held(change.rows)
        connection.executemany(table.forget, table.forgotten(change.touched, rows))
        connection.executemany(table.upsert, rows)

    def purge(self) -> None:
        """Write the whole file again, without free pages, and empty the write-ahead log."""
        with self._opened() as connection:
            # The log first: the rewritten file goes through it, and it would grow with each try.
            if self._empty_log(connection):
                connection.execute("PRAGMA main.secure_delete = ON")  # also the gaps in new pages
                try:
                    connection.execute("VACUUM main")
                finally:
                    connection.execute("PRAGMA main.secure_delete = OFF")
                if self._empty_log(connection):
                    return
        raise TargetProblem(
            f"a program reads {self._path} in one transaction", "end the transaction of that reader"
        )

    def drop(self, before: Position) -> None:
        """Remove all tables of the view, and its position."""
        with self._opened() as connection, _transaction(connection, "IMMEDIATE"):
            self._require(connection, before)
            present = _names_in(connection, ("table",))
            made = {_folded(shape.name) for shape in _shapes_in(connection)} | {_folded(META)}
            names = [name for folded, name in present.items() if folded in made]
            _refuse_readers(connection, dict.fromkeys(names))
            for name in names:
                connection.execute(f"DROP TABLE main.{quoted(name)}")
            self._verified = -1

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Give the connection; errors of SQLite become problems.

        Raises:
            TargetProblem: SQLite fails; nothing has changed.
        """
        try:
            yield self._connected()
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None:
            if self._file == _identity(self._path):
                return self._connection
            self.close()  # it was removed or replaced: a write would go into a file without a name
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TargetProblem(
                f"the directory of {self._path} cannot be made: {error.strerror}",
                "give the service the right to write there",
            ) from error
        connection = sqlite3.connect(self._path, timeout=self._wait_s, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            # Pages that several changes write are moved into the database once.
            connection.execute(f"PRAGMA wal_autocheckpoint = {REPORTED_BYTES // _PAGE_BYTES}")
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, _identity(self._path)
        self._verified = -1
        return connection

    def _problem(self, error: sqlite3.Error) -> TargetProblem:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _REMEDIES:
            reason, remedy = _REMEDIES[code]
            return TargetProblem(f"{self._path}: {reason}", remedy)
        remedy = f"undo the change of the schema, or run {self._rebuild}"
        return TargetProblem(f"{self._path}: {error}", remedy)

    @contextmanager
    def _writing(
        self, connection: sqlite3.Connection, before: Position | None, after: Position
    ) -> Iterator[None]:
        """Begin a transaction; at its end, write the new position and commit.

        Raises:
            Overtaken: The position is another.
        """
        self._require_short_log(connection)
        with _transaction(connection, "IMMEDIATE"):
            self._require(connection, before)
            connection.execute(_CREATE_META)
            connection.execute(f"INSERT OR IGNORE INTO main.{META} (only) VALUES (1)")
            yield
            connection.execute(
                f"UPDATE main.{META} SET lineage = ?, journal = ?, epoch = ?, checksum = ?, definition = ?",
                msgspec.structs.astuple(after),
            )

    def _require(self, connection: sqlite3.Connection, before: Position | None) -> None:
        if _position_in(connection) != before:
            raise Overtaken

    def _verify(self, connection: sqlite3.Connection) -> None:
        """Check the tables when the schema of the file has changed.

        Raises:
            TargetProblem: A table is not as it was created.
        """
        (version,) = connection.execute("PRAGMA main.schema_version").fetchone()
        if version == self._verified:
            return
        tables = [_Table(shape, number) for number, shape in enumerate(_shapes_in(connection))]
        for table in tables:
            if reason := table.difference(connection):
                raise TargetProblem(reason, f"undo it, or run {self._rebuild}")
            _refuse_unique_indexes(connection, table.shape.name)
        self._tables = {table.shape: table for table in tables}
        self._verified = version

    def _require_short_log(self, connection: sqlite3.Connection) -> None:
        bound = max(self._log_bytes_max, _size(self._path))
        if self._log_size() > bound and not self._empty_log(connection):
            raise TargetProblem(
                f"a program has read {self._path} in one transaction for so long that its write-ahead log has grown to "
                f"{self._log_size() >> 20} MB",
                "end the transaction of that reader",
            )

    def _shrink_log(self, connection: sqlite3.Connection) -> None:
        size = self._log_size()
        if size < self._reported_bytes:
            return
        if self._empty_log(connection):
            self._reported_bytes = min(REPORTED_BYTES, self._log_bytes_max)
            return
        self._reported_bytes = (
            2 * size
        )  # so a reader that stays is reported some times, and not at each change
        _log.warning(
            "the write-ahead log of %s has %d MB and cannot be emptied, because a program reads the file in one transaction",
            self._path,
            size >> 20,
        )

    def _empty_log(self, connection: sqlite3.Connection) -> bool:
        """Move the write-ahead log into the database; say whether it is empty now."""
        connection.execute(f"PRAGMA busy_timeout = {_EMPTY_MS}")  # for readers, which may stay
        try:
            (busy, *_) = connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return False
            raise
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(1_000 * self._wait_s)}")
        return not busy

    def _log_size(self) -> int:
        return _size(self._path.with_name(self._path.name + "-wal"))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


class _Table:
    """The statements of a table."""

    def __init__(self, shape: TableShape, number: int) -> None:
        self.shape = shape
        self.cells = Cells(shape, _HOLDS)
        self.name = f"main.{quoted(shape.name)}"
        self.staging = f"temp._penstock_rows_{number}"
        names = [quoted(name) for name in shape.names]
        columns, marks = ", ".join(names), ", ".join("?" * len(names))
        others = names[shape.key_width :]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        differs = " OR ".join(
            f"{quoted(shape.name)}.{name} IS NOT excluded.{name}" for name in others
        )
        key = ", ".join(map(quoted, shape.key))
        self.stage = f"INSERT INTO {self.staging} VALUES ({marks})"
        self.unstage = (
            f"INSERT INTO {self.name} ({columns}) SELECT * FROM {self.staging} ORDER BY {key}"
        )
        self.upsert = (
            f"INSERT INTO {self.name} ({columns}) VALUES ({marks}) "
            f"ON CONFLICT ({key}) DO UPDATE SET {changes} WHERE {differs}"
        )
        self.forget = f"DELETE FROM {self.name} WHERE {names[0]} = ?"
        if shape.key_width > 1:
            self.forget += f" AND {names[1]} NOT IN (SELECT value FROM json_each(?))"

    def create(self, name: str, *, with_key: bool = True) -> str:
        """Return the statement that creates the table, or its staging."""
        columns = [f"{quoted(each.name)} {TYPES[each.kind]}" for each in self.shape.columns]
        if with_key:
            columns = [
                f"{column} NOT NULL" if at < self.shape.key_width else column
                for at, column in enumerate(columns)
            ]
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self.shape.key))})")
        return f"CREATE TABLE {name} ({', '.join(columns)})"

    def forgotten(
        self, touched: Sequence[str | int], rows: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the parameters of `forget`."""
        places: dict[str | int, list[Any]] = {owner: [] for owner in map(held_key, touched)}
        if self.shape.key_width == 1:
            kept = {row[0] for row in rows}
            yield from ((owner,) for owner in places if owner not in kept)
            return
        for row in rows:
            places[row[0]].append(row[1])
        for owner, kept_places in places.items():
            yield owner, msgspec.json.encode(kept_places).decode()

    def difference(self, connection: sqlite3.Connection) -> str:
        """Return the parts of the table that the file lacks; empty if it has all."""
        actual = _columns_in(connection, self.shape.name)
        if not actual:
            return f"the table {self.shape.name} is gone"
        for column in self.shape.columns:
            if column.name not in actual:
                return f"the column {column.name} of the table {self.shape.name} is gone"
        key = [name for name, (_, place) in actual.items() if place]
        if sorted(key) != sorted(self.shape.key):
            return f"the table {self.shape.name} has another primary key than the view's"
        return ""

    def is_as_created(self, connection: sqlite3.Connection) -> bool:
        """Say whether the table of the file has exactly the columns of the shape."""
        actual = [
            (name, declared)
            for name, (declared, _) in _columns_in(connection, self.shape.name).items()
        ]
        wanted = [(column.name, TYPES[column.kind]) for column in self.shape.columns]
        return actual == wanted and not self.difference(connection)


class _Replacement:
    """The replacement of all tables by staged rows, in place: indexes, triggers and views of users stay.

    Raises:
        TargetProblem: Something of a user's own is in the way.
    """

    def __init__(self, connection: sqlite3.Connection, tables: Sequence[_Table]) -> None:
        self._connection = connection
        self._tables = tables
        former = {_folded(shape.name) for shape in _shapes_in(connection)}
        present = _names_in(connection, ("table", "view"))
        wanted = {_folded(table.shape.name): table for table in tables}
        for folded in wanted:
            if folded in present and folded not in former:
                raise TargetProblem(
                    f"{present[folded]} exists and is not the view's", "rename or move it"
                )
        self._gone = [name for folded, name in present.items() if folded in former - wanted.keys()]
        self._kept = {
            table.shape.name: table.is_as_created(connection)
            for folded, table in wanted.items()
            if folded in present
        }
        for name in self._kept:
            _refuse_unique_indexes(connection, name)
        self._refuse_dependents()

    def _refuse_dependents(self) -> None:
        dropped: dict[str, set[str] | None] = dict.fromkeys(self._gone)
        for table in self._tables:
            name = table.shape.name
            if not self._kept.get(name, True):
                dropped[name] = _columns_in(self._connection, name).keys() - set(table.shape.names)
        if any(columns is None or columns for columns in dropped.values()):
            _refuse_readers(self._connection, dropped)

    def run(self) -> None:
        """Replace the tables; in a transaction."""
        for name in self._gone:
            self._connection.execute(f"DROP TABLE main.{quoted(name)}")
        for table in self._tables:
            is_kept = self._kept.get(table.shape.name)
            if is_kept:
                self._connection.execute(f"DELETE FROM {table.name}")
                self._connection.execute(table.unstage)
                continue
            attached: list[tuple[str, str, str]] = []
            if is_kept is not None:
                # Indexes and triggers go with the table; SQLite can drop no column of a primary key, nor one with an index.
                attached = self._attached_to(table.shape.name)
                self._connection.execute(f"DROP TABLE {table.name}")
            self._connection.execute(table.create(table.name))
            self._attach(table.shape.name, attached, "trigger")  # it runs for rows of a load, too
            self._connection.execute(table.unstage)
            self._attach(table.shape.name, attached, "index")

    def _attached_to(self, table: str) -> list[tuple[str, str, str]]:
        """Return sort, name and text of each index and trigger that a user has added to a table."""
        return self._connection.execute(
            "SELECT type, name, sql FROM main.sqlite_master WHERE type IN ('index', 'trigger') "
            "AND tbl_name = ? COLLATE NOCASE AND sql IS NOT NULL ORDER BY type, name",
            (table,),
        ).fetchall()

    def _attach(self, table: str, attached: Sequence[tuple[str, str, str]], wanted: str) -> None:
        for sort, name, text in attached:
            if sort != wanted:
                continue
            try:
                self._connection.execute(text)
            except sqlite3.OperationalError as error:
                raise TargetProblem(
                    f"the {sort} {name} does not fit the new columns of {table}: {error}",
                    f"change or drop {name}",
                ) from error


@contextmanager
def _transaction(connection: sqlite3.Connection, mode: str) -> Iterator[None]:
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have ended the transaction by itself
            connection.execute("ROLLBACK")
        raise


def _position_in(connection: sqlite3.Connection) -> Position | None:
    if META not in _names_in(connection, ("table",)).values():
        return None
    row = connection.execute(_READ_META).fetchone()
    if row is None or row[0] is None:
        return None
    lineage, journal, epoch, checksum, definition = row
    return Position(lineage, journal, Epoch(epoch), checksum, definition)


def _shapes_in(connection: sqlite3.Connection) -> list[TableShape]:
    """Return the tables of the last load."""
    if META not in _names_in(connection, ("table",)).values():
        return []
    row = connection.execute(f"SELECT shapes FROM main.{META}").fetchone()
    return (
        [] if row is None or row[0] is None else msgspec.json.decode(row[0], type=list[TableShape])
    )


def _names_in(connection: sqlite3.Connection, sorts: Sequence[str]) -> dict[bytes, str]:
    """Return the names of tables or views by their folded names, because SQLite ignores case."""
    marks = ", ".join("?" * len(sorts))
    rows = connection.execute(
        f"SELECT name FROM main.sqlite_master WHERE type IN ({marks})",
        sorts,
    )
    return {_folded(name): name for (name,) in rows.fetchall()}


def _columns_in(connection: sqlite3.Connection, table: str) -> dict[str, tuple[str, int]]:
    """Return the declared type of each column of a table, and its place in the primary key, or 0."""
    rows = connection.execute("SELECT name, type, pk FROM pragma_table_info(?, 'main')", (table,))
    return {name: (declared, place) for name, declared, place in rows.fetchall()}


def _refuse_unique_indexes(connection: sqlite3.Connection, table: str) -> None:
    """Refuse unique indexes on other columns than the key: an epoch may pass through states that they forbid."""
    rows = connection.execute(
        """SELECT name FROM pragma_index_list(?, 'main') WHERE "unique" AND origin <> 'pk'""",
        (table,),
    ).fetchall()
    for (name,) in rows:
        raise TargetProblem(
            f"the table {table} has the unique index {name}, and the rows of an epoch are not written in the order of "
            "their transactions",
            f"drop {name}, or create it again without UNIQUE",
        )


def _refuse_readers(connection: sqlite3.Connection, dropped: Mapping[str, set[str] | None]) -> None:
    """Refuse to drop a table or a column to which a view or a foreign key of a user's own refers.

    Args:
        dropped: The columns that have to go, by table; None: the table itself.
    """
    for view, table_name, column in _reads_of_views(connection):
        columns = dropped.get(table_name, set())
        if columns is None or column in columns:
            where = f"the column {column} of the table {table_name}" if column else table_name
            raise TargetProblem(
                f"the view {view} of the database reads {where}, which has to go",
                f"change or drop {view}",
            )
    gone = {_folded(name) for name, columns in dropped.items() if columns is None}
    for name, referred in connection.execute(_FOREIGN_KEYS).fetchall():
        if _folded(referred) in gone and _folded(name) not in gone:
            raise TargetProblem(
                f"the table {name} refers to {referred}, which has to go", f"change or drop {name}"
            )


def _reads_of_views(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return each column that a view of the database reads, as (view, table, column)."""
    reads: list[tuple[str, str, str]] = []
    view = ""

    def note(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and table is not None:
            reads.append((view, table, column or ""))
        return sqlite3.SQLITE_OK

    views = _names_in(connection, ("view",))
    connection.set_authorizer(note)
    try:
        for view in views.values():
            with suppress(sqlite3.Error):  # it is broken already
                connection.execute(f"EXPLAIN SELECT * FROM main.{quoted(view)}").fetchall()
    finally:
        connection.set_authorizer(None)
    return reads


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> tuple[int, int]:
    """Return the facts that tell a file from another of the same name."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_dev, stat.st_ino


def _folded(name: str) -> bytes:
    return name.encode().lower()  # as SQLite folds names: letters of ASCII only
