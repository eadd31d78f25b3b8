"""The view's DuckDB file: what it holds, and how a fold of the journal gets into it.

Promises that a fold is applied whole or not at all, together with the epoch that it leads to, so
that a killed process goes on where it was; that a file of another journal, of other classes or with
damage is made anew, and the caller is told; and that nothing outside of this file can be reached
through its connections.

Changes are merged (`MERGE INTO`) into tables without an index. Measured with 3 classes of 100,000
entities and epochs of 2,000 changes, on two cores that others used, too: MERGE 45 ms an epoch,
DELETE by join and INSERT 90 ms, ON CONFLICT with a primary key 600 ms and four times the file. The
merged file stayed at 6 to 8 MB over 1,500 epochs, with a log of at most 16 MB beside it, which DuckDB
folds in by itself. With 2,500 checkouts a second applied as they come, which takes 16 % of a core, a
join of the three classes over all lines of all orders takes 24 ms (p50) and 53 ms (p99); the whole
view is made anew at 230,000 entities a second (`benchmarks/view_sql.py`).
"""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.model.application import App
from penstock.process.config import ViewConfig
from penstock.retention.retention import VIEW, VIEW_EPOCH
from penstock.snapshots.column import TooNarrow, quoted
from penstock.snapshots.table import EntityTable, tables_of
from penstock.sql.cell_limit import CellLimit
from penstock.sql.change_batch import ChangeBatch, EntityStates
from penstock.sql.connection import close_to_outside, fix_settings, open_isolated, registered
from penstock.sql.damage import BREAKDOWNS
from penstock.sql.lock import locked
from penstock.sql.system_tables import (
    SYSTEM,
    SYSTEM_TABLES,
    epoch_rows,
    reply_rows,
    request_rows,
    schema_fingerprint,
    select_list,
    widening_select_list,
    without_large,
)

_log = logging.getLogger(__name__)

FOLDER: Final = VIEW
EPOCH: Final = VIEW_EPOCH
_FILE: Final = "view.duckdb"
_SLACK: Final = 20
"""Old requests are removed when they exceed what is kept by one in so many."""

_LOG_MAX: Final = 16 << 20
_LOG_READ_MAX: Final = 128 << 20
"""How long DuckDB's log becomes, and how long while somebody reads the file."""

_CATALOG: Final = "penstock_view"
_ROW_GROUP: Final = 14_336
"""Rows that one thread reads at a time. With DuckDB's 122,880 a class of 100,000 is read by a single
thread: a join of three took 48 ms, with this 23 ms (two cores)."""

_STATE: Final = f"{SYSTEM}.view"


class StaleViewFile(Exception):
    """The file cannot be used and must be made anew; says why."""


class ViewStore:
    """The tables of one application in one file; one process at a time has it open."""

    def __init__(self, data: Path, app: App, identity: str, settings: ViewConfig) -> None:
        """Open the file if it is there and right; otherwise `rebuild` must follow.

        Raises:
            ConfigError: Another process has it open.
            StateUnavailable: The directory cannot be written.
        """
        self._folder = data / FOLDER
        self._app = app
        self._identity = identity
        self._settings = settings
        self._layout = schema_fingerprint(app)
        self._lock = locked(self._folder)
        self.tables: dict[str, EntityTable] = {}
        self.epoch = BEFORE_FIRST
        self._kept = 0
        self._is_sealed = False
        self._cells = CellLimit(self._folder)
        self._connection: duckdb.DuckDBPyConnection
        for path in self._folder.glob("*.copy"):  # what a killed view left
            path.unlink()
        self._reopen()

    def rebuild(self, why: str) -> None:
        """Make the file anew, empty; what it held is in the journal."""
        fresh = not (self._folder / _FILE).exists()
        if not fresh:
            _log.warning("view.rebuild", extra={"reason": why, "epoch": self.epoch})
        if hasattr(self, "_connection"):
            self._connection.close()
        for path in self._folder.glob(f"{_FILE}*"):
            path.unlink()
        self._connection = self._connected()
        self._create()
        self._tell_epoch()

    def repair(self, damage: str, *, again: bool) -> None:
        """Make the file anew; where DuckDB itself broke down, try first to open it `again`."""
        if not (again and damage.startswith(BREAKDOWNS)):
            self.rebuild(damage)
            return
        _log.warning("view.reopened", extra={"reason": damage, "epoch": self.epoch})
        self._connection.close()
        self._reopen()

    def withhold(self) -> bool:
        """Make the file anew without the largest values, which want more memory than there is.

        DuckDB keeps a group of rows in memory to write it, so that a class whose values are large
        may never fit, however often it is tried.

        Returns:
            Whether there was something left to withhold.
        """
        if not self._cells.lower():
            return False
        self.rebuild(
            f"memory is short: values over {self._cells.bytes_max} bytes are NULL from now on"
        )
        return True

    def _reopen(self) -> None:
        try:
            self._connection = self._opened()
        except (StaleViewFile, duckdb.Error) as error:
            self.rebuild(_why(error))

    def sealed(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for a query; nobody may change a setting of this database any more."""
        if not self._is_sealed:
            self._is_sealed = True
            fix_settings(self._connection, self._settings.threads)
        return self._connection

    def fold_log(self, *, is_read: bool) -> None:
        """Fold DuckDB's log into the file when it is long; other processes may read the file.

        A checkpoint writes to blocks that they may still need. So it waits until they have ended, or
        until the log is as long as half of the file: then they keep the file, and a copy goes on.
        """
        size, log = (path.stat().st_size if path.exists() else 0 for path in self._files())
        if log < _LOG_MAX or (is_read and log < max(_LOG_READ_MAX, size // 2)):
            return
        if is_read:
            self._leave_file()
        self._connection.execute(f"CHECKPOINT {_CATALOG}")

    def _leave_file(self) -> None:
        """Go on with a copy of the file, under its name."""
        copies = [(path, path.with_name(f"{path.name}.copy")) for path in self._files()]
        for path, copy in copies:
            shutil.copyfile(path, copy)
        self._connection.close()
        for path, copy in copies:
            copy.replace(path)
        self._reopen()

    def _files(self) -> tuple[Path, Path]:
        """Return the file and its log."""
        return self._folder / _FILE, self._folder / f"{_FILE}.wal"

    def apply(self, fold: ChangeBatch) -> None:
        """Take over a fold, in one transaction.

        Raises:
            Diverged: The journal holds what does not fit the classes.
            duckdb.Error: The disk is full, or the file is damaged.
        """
        assert fold.epoch >= self.epoch, f"a fold up to {fold.epoch} is behind {self.epoch}"
        requests = fold.newest_transactions(self._settings.requests_max)
        kept = self._kept + requests.num_rows
        with self._transaction():
            for name, changes in fold.changes.items():
                if name in self.tables:
                    self._merge(name, changes)
            if fold.epochs:
                self._insert(f"{SYSTEM}.epochs", epoch_rows(fold.epochs))
            if requests.num_rows:
                most = self._cells.bytes_max
                self._insert(f"{SYSTEM}.requests", without_large(request_rows(requests), most))
                self._insert(f"{SYSTEM}.replies", without_large(reply_rows(requests), most))
            kept -= self._forget(kept)
            self._connection.execute(f"UPDATE {_STATE} SET epoch = ?", [fold.epoch])
        self._kept = kept
        self.epoch = fold.epoch
        self._tell_epoch()

    def rows(self) -> int:
        """Return how many entities the view holds."""
        return sum(
            _number(self._connection, f"SELECT count(*) FROM {quoted(one.name)}")
            for one in self.tables.values()
        )

    def size(self) -> int:
        """Return the bytes of the file and its log."""
        return sum(path.stat().st_size for path in self._folder.glob(f"{_FILE}*"))

    @property
    def lock(self) -> int:
        """The descriptor that keeps other processes out."""
        return self._lock

    def close(self) -> None:
        """Close the file and let others open it."""
        self._connection.close()
        os.close(self._lock)

    def _tell_epoch(self) -> None:
        """Say for others what has been applied: the journal keeps what comes after it."""
        with suppress(OSError):  # who reads an older number keeps more
            (self._folder / EPOCH).write_text(str(int(self.epoch)))

    def _connected(self) -> duckdb.DuckDBPyConnection:
        connection = open_isolated(self._settings.memory_mb)
        path = str(self._folder.absolute() / _FILE).replace("'", "''")
        try:
            connection.execute(f"ATTACH '{path}' AS {_CATALOG} (ROW_GROUP_SIZE {_ROW_GROUP})")
            close_to_outside(connection)
            connection.execute(f"USE {_CATALOG}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened(self) -> duckdb.DuckDBPyConnection:
        """Open the file.

        Raises:
            Stale: It is not there, or is not of this journal and these classes.
            duckdb.Error: It is damaged.
        """
        if not (self._folder / _FILE).exists():
            raise StaleViewFile("there is no file yet")
        connection = self._connected()
        try:
            found = connection.execute(
                f"SELECT epoch, journal, layout, wide FROM {_STATE}"
            ).fetchall()[0]
            if found[1] != self._identity:
                raise StaleViewFile("it was fed from another journal")
            if found[2] != self._layout:
                raise StaleViewFile("classes are declared otherwise now")
            self._kept = _number(connection, f"SELECT count(*) FROM {SYSTEM}.requests")
        except BaseException:
            connection.close()
            raise
        self.epoch = Epoch(found[0])
        self.tables = tables_of(self._app, msgspec.json.decode(found[3], type=list[str]))
        return connection

    def _create(self) -> None:
        self.tables = tables_of(self._app)
        self.epoch, self._kept = BEFORE_FIRST, 0
        taken = {one.name.casefold() for one in self.tables.values()}
        with self._transaction():
            run = self._connection.execute
            run(f"CREATE SCHEMA {SYSTEM}")
            run(
                f"CREATE TABLE {_STATE}(epoch BIGINT, journal VARCHAR, layout VARCHAR, wide VARCHAR)"
            )
            run(
                f"INSERT INTO {_STATE} VALUES (?, ?, ?, '[]')",
                [BEFORE_FIRST, self._identity, self._layout],
            )
            for table in self.tables.values():
                run(f"CREATE TABLE {quoted(table.name)}({table.definition})")
            for name, columns in SYSTEM_TABLES.items():
                run(f"CREATE TABLE {SYSTEM}.{name}({columns})")
                if name not in taken:
                    run(f"CREATE VIEW {name} AS SELECT * FROM {SYSTEM}.{name}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        before = self.tables.copy()
        self._connection.execute("BEGIN TRANSACTION")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self.tables = before  # a class that was widened meanwhile is not
            with suppress(duckdb.Error):  # the cause is on its way up already
                self._connection.execute("ROLLBACK")
            raise

    def _merge(self, name: str, changes: EntityStates) -> None:
        gone = [key for key, state in changes.items() if state is None]
        kept = {key: state for key, state in changes.items() if state is not None}
        rows: pa.Table | None = None
        if kept:
            try:
                rows = self.tables[name].rows(
                    list(kept), list(kept.values()), self._cells.bytes_max
                )
            except TooNarrow:
                wide = self._widen(name)
                rows = wide.rows(list(kept), list(kept.values()), self._cells.bytes_max)
        if gone:
            self._remove(name, gone)
        if rows is not None:
            self._put(self.tables[name], rows)

    def _remove(self, name: str, gone: list[str]) -> None:
        try:
            keys = self.tables[name].keys(gone)
        except TooNarrow:
            keys = self._widen(name).keys(gone)
        table = self.tables[name]
        target, key = quoted(table.name), quoted(table.key)
        with registered(self._connection, keys) as source:
            chosen = select_list(table, 1)
            self._connection.execute(
                f"DELETE FROM {target} WHERE {key} IN (SELECT {chosen} FROM {source})"
            )

    def _put(self, table: EntityTable, rows: pa.Table) -> None:
        target, key = quoted(table.name), quoted(table.key)
        names = [quoted(name) for name, _ in table.columns]
        with registered(self._connection, rows) as source:
            chosen = f"(SELECT {select_list(table)} FROM {source}) AS source"
            into = f"MERGE INTO {target} USING {chosen} ON {target}.{key} = source.{key} "
            setting = ", ".join(f"{one} = source.{one}" for one in names[1:])
            changed = f"WHEN MATCHED THEN UPDATE SET {setting} " if setting else ""
            values = ", ".join(f"source.{one}" for one in names)
            self._connection.execute(
                f"{into}{changed}WHEN NOT MATCHED THEN INSERT VALUES ({values})"
            )

    def _widen(self, name: str) -> EntityTable:
        """Give a class the wider types; what it holds is copied."""
        wide = sorted([one for one, table in self.tables.items() if table.wide] + [name])
        narrow, table = self.tables[name], tables_of(self._app, wide)[name]
        target = quoted(table.name)
        run = self._connection.execute
        run(f"ALTER TABLE {target} RENAME TO {quoted(f'{table.name} narrow')}")
        run(f"CREATE TABLE {target}({table.definition})")
        former = quoted(f"{table.name} narrow")
        run(f"INSERT INTO {target} SELECT {widening_select_list(narrow, table)} FROM {former}")
        run(f"DROP TABLE {quoted(f'{table.name} narrow')}")
        run(f"UPDATE {_STATE} SET wide = ?", [msgspec.json.encode(wide).decode()])
        self.tables[name] = table
        _log.info("view.widened", extra={"entity": name})
        return table

    def _insert(self, target: str, rows: pa.Table) -> None:
        with registered(self._connection, rows) as source:
            self._connection.execute(f"INSERT INTO {target} SELECT * FROM {source}")

    def _forget(self, kept: int) -> int:
        """Remove the oldest requests and replies beyond what is kept; return how many."""
        most = self._settings.requests_max
        excess = kept - most
        if excess <= most // _SLACK:
            return 0
        for name in ("requests", "replies"):
            table = f"{SYSTEM}.{name}"
            self._connection.execute(
                f"DELETE FROM {table} WHERE rowid IN "
                f"(SELECT rowid FROM {table} ORDER BY epoch, lsn LIMIT {excess})"
            )
        return excess


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    [(number,)] = connection.execute(query).fetchall()
    return int(number)


def _why(error: Exception) -> str:
    return str(error).partition("\n")[0]


def names_of(tables: Iterable[EntityTable]) -> list[str]:
    """Return the names of the tables that queries see."""
    return [*(one.name for one in tables), *SYSTEM_TABLES]
