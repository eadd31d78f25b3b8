"""The view's DuckDB file, and how changes of the journal get into it.

A batch of changes is applied completely or not at all, together with its epoch, so that a killed
process continues where it was. A file that is damaged, or of another journal or other classes, is rebuilt, and the
caller is told. Queries reach nothing outside of the file. Tables of applications with personal classes are in memory.

Changed rows are removed by their keys and inserted again, in tables without an index. Measured with DuckDB 2.0, 100,000 rows and batches
of 2,000 changes: MERGE takes 22 ms of processor time for a batch of rows with three columns, and 31 ms with eleven; DELETE and INSERT
take 17 and 14 ms, because MERGE changes each value at its place. A scan of the table takes up to 1.5 times as long until the log is folded.
ON CONFLICT with a primary key took 600 ms where MERGE took 45, and a file of four times the size. With 2,500 checkouts a second applied
as they come, a join of the three classes over all lines of all orders takes 24 ms (p50) and 53 ms (p99). The view is rebuilt at 230,000
entities a second (`benchmarks/view_sql.py`). DELETE reads the keys of the whole table, so rows that are known to be new are
only inserted: the columns of a snapshot, and a large epoch in an empty table.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.waiting_effect import EFFECT
from penstock.process.config import ViewConfig
from penstock.retention.retention import VIEW, VIEW_EPOCH
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.snapshot import Manifest, SnapshotColumns, SnapshotFile, Snapshots
from penstock.snapshots.state_as_of import TypedStates
from penstock.snapshots.table import TASKS, EntityTable, tables_of
from penstock.sql_view.change_batch import ROWS_MAX, ChangeBatch, EntityStates
from penstock.sql_view.connection import (
    BREAKDOWNS,
    close_to_outside,
    fix_settings,
    lock_folder,
    open_isolated,
    registered,
)
from penstock.sql_view.stream_tables import StreamTables
from penstock.sql_view.system_tables import (
    SYSTEM,
    create_system_tables,
    epoch_rows,
    names_of,
    reply_rows,
    request_rows,
    schema_fingerprint,
    without_large,
)
from penstock.sql_view.table_change import (
    change_effect_rows,
    exchange_tables,
    fits_narrow,
    forget_oldest,
    forget_oldest_epochs,
    hides_system_table,
    insert_rows,
    put_rows,
    remove_rows,
    retype_table,
)

_STEPS: Final = (1 << 20, 64 << 10, 4 << 10)
_CELL_LIMIT_FILE: Final = "cell_bytes_max"


class CellLimit:
    """The size limit of one value; it is lowered by a step, and the view rebuilt, when memory is short.

    Attributes:
        bytes_max: The limit in bytes; None is no limit.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _CELL_LIMIT_FILE
        try:
            self.bytes_max: int | None = int(self._path.read_text())
        except (OSError, ValueError):
            self.bytes_max = None

    def lower(self) -> bool:
        """Lower the limit by a step; return False at the lowest step."""
        # DuckDB keeps a group of rows in memory to write it, so a class of large values may never
        # fit.
        for step in _STEPS:
            if self.bytes_max is None or step < self.bytes_max:
                self.bytes_max = step
                # A file of its own, which outlives the file of the view: else each rebuild would
                # fail once.
                self._path.write_text(str(step))
                return True
        return False


_log = logging.getLogger(__name__)

FOLDER: Final = VIEW
EPOCH: Final = VIEW_EPOCH
_FILE: Final = "view.duckdb"
_SLACK: Final = 20
"""Old requests and old epochs are removed when they exceed `view.requests_max` by this fraction (1/20)."""

_LOG_MAX: Final = 64 << 20
_LOG_READ_MAX: Final = 128 << 20
"""The size in bytes at which DuckDB's log is folded, without and with readers of the file.

A fold writes all groups of rows with a change. Measured with TPC-C, whose transaction adds 7 to 15 KB to the log: with 16 MB, folds
took 0.05 to 0.11 ms of processor time for each, a fifth of the view's; with 64 MB a quarter of that. A file with a log of
45 MB is opened in 0.18 s of processor time, and in 0.09 s with one of 17 MB.
"""

_BATCHES: Final = 2_000
"""Batches after which the file is opened again."""

_CATALOG: Final = "penstock_view"
_ROW_GROUP: Final = 14_336
"""How many rows one thread reads at a time. With DuckDB's default of 122,880, a single thread reads a
class of 100,000: a join of three classes took 48 ms, and takes 23 ms with this (two cores)."""

_ROWS_SHARE: Final = 8
_ROWS_FOR_MB: Final = 512
"""All keys of a table are read for a batch of any size. So a batch is full with an eighth of the rows of the largest table,
but not with more than so many for each megabyte of `view.memory_mb`. Measured with 30,000,000 accounts and transfers between two of
all: batches of 66,000 changes take 37 µs of processor time for a transfer, and batches of 520,000 changes take 10 µs.
"""

_REMOVED: Final = 2
"""The log is folded, too, when so many full batches of rows were removed: statements read the removed rows until then."""

_STATE: Final = f"{SYSTEM}.view"
_STATE_COLUMNS: Final = "epoch, journal, layout, wide, wide_streams"


class StaleViewFile(Exception):
    """The file must be rebuilt; the message says why."""


class ViewStore:
    """The tables of one application in one file, which one process at a time has open."""

    def __init__(self, data: Path, app: App, identity: str, settings: ViewConfig) -> None:
        """Open the file; create it if it is missing, damaged or stale."""
        self._folder = data / FOLDER
        self._app = app
        self._identity = identity
        self._settings = settings
        self._layout = schema_fingerprint(app)
        self._lock = lock_folder(self._folder)
        self.tables: dict[str, EntityTable] = {}
        self._streams = StreamTables(app, settings.requests_max)
        self.epoch = BEFORE_FIRST
        self._kept = 0
        self._kept_epochs = 0
        self._batches = self._removed = (
            0  # batches, and rows that were removed, since the file was opened
        )
        self._batch_rows = self._unmeasured = ROWS_MAX
        self._are_batches_small = False
        self._is_sealed = False
        self._cells = CellLimit(self._folder)
        self._connection: duckdb.DuckDBPyConnection
        # With personal data the tables are in memory, so that an erased person is on no disk; a
        # file is from before.
        for path in self._folder.glob(f"{_FILE}*" if app.is_personal else "*.copy"):
            path.unlink()  # a killed view has left it
        self._reopen()

    def rebuild(self, why: str) -> None:
        """Replace the file by an empty one; its content follows from the journal."""
        if (self._folder / _FILE).exists():
            _log.warning("the SQL view is built again: %s", why, extra={"epoch": self.epoch})
        if hasattr(self, "_connection"):
            self._connection.close()
        for path in self._folder.glob(f"{_FILE}*"):
            path.unlink()
        self._connection = self._connected()
        self._create()
        self._publish_epoch()

    def declare(self, app: App, states: Callable[[str], TypedStates]) -> None:
        """Go on with another version of the application: tables of changed classes are filled again.

        `states` returns the entities of a class at `epoch`, with the columns of this version. If a table cannot be
        kept or filled, the file is rebuilt from the journal.
        """
        present = tables_of(app, [name for name, table in self.tables.items() if table.wide])
        layout = schema_fingerprint(app)
        try:
            with self._transaction():
                streams = self._streams.exchange(self._connection, app)
                is_moved = app.is_personal != self._app.is_personal  # between file and memory
                hidden = hides_system_table(self.tables.values(), present.values())
                if streams is None or is_moved or hidden:
                    raise StaleViewFile("a deployment has changed the place or kind of tables")
                self.tables = exchange_tables(self._connection, self.tables, present, states)
                wide = sorted(name for name, table in self.tables.items() if table.wide)
                self._connection.execute(
                    f"UPDATE {_STATE} SET layout = ?, wide = ?, wide_streams = ?",
                    [layout, msgspec.json.encode(wide).decode(), streams.wide],
                )
            self._app, self._layout, self._streams = app, layout, streams
        except (StaleViewFile, PenstockError, duckdb.Error) as error:
            self._app, self._layout = app, layout
            self._streams = StreamTables(app, self._settings.requests_max)
            self.rebuild(str(error).partition("\n")[0])

    def repair(self, damage: str, *, again: bool) -> None:
        """Rebuild the file; if DuckDB itself broke down and `again` is set, only reopen it."""
        # DuckDB itself may have broken down without harm to the file, so the first time it is only
        # opened again.
        if not (again and damage.startswith(BREAKDOWNS)):
            self.rebuild(damage)
            return
        _log.warning("view.reopened", extra={"reason": damage, "epoch": self.epoch})
        self._connection.close()
        self._reopen()

    def withhold(self) -> bool:
        """Rebuild the file with a lower `CellLimit`; return False if that is already the lowest."""
        is_lower = self._cells.lower()
        if is_lower:
            most = self._cells.bytes_max
            self.rebuild(f"memory is short: values over {most} bytes are NULL from now on")
        return is_lower

    def _reopen(self) -> None:
        try:
            self._connection = self._opened()
        except (StaleViewFile, duckdb.Error) as error:
            self.rebuild(str(error).partition("\n")[0])

    def sealed(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for a query; from now on no setting of this database can change."""
        if not self._is_sealed:
            self._is_sealed = True
            fix_settings(self._connection, self._settings.threads)
        return self._connection

    def fold_log(self, *, is_read: bool) -> None:
        """Fold DuckDB's log into the file when the log is long, or after many batches or removed rows, and open the file again.

        A checkpoint writes to blocks that child processes may still read. So while the file is read,
        the checkpoint waits until the log has half the size of the file; then the children keep the
        old file, and the view continues with a copy.
        """
        size, log = (path.stat().st_size if path.exists() else 0 for path in self._files())
        # Tables in memory have no log, and no file that could be opened again; a child has memory of its own.
        is_read = is_read and log > 0
        if is_read:
            is_due = log >= max(_LOG_READ_MAX, size // 2)
        else:
            has_removed = self._removed >= _REMOVED * self._batch_rows
            is_due = log >= _LOG_MAX or has_removed or (log > 0 and self._batches >= _BATCHES)
        if not is_due:
            return
        if is_read:
            # Children may still read the blocks to which a checkpoint writes.
            self._continue_with_copy()
        self._connection.execute(f"CHECKPOINT {_CATALOG}")
        self._removed = 0
        if log > 0 and not is_read:
            # DuckDB 2.0 keeps 4 KB of each statement with a join, which `duckdb_memory` does not count, until it is
            # closed: 50 MB in an hour of two batches a second.
            self._connection.close()
            self._reopen()

    def _continue_with_copy(self) -> None:
        """Replace the file by a copy under the same name."""
        copies = [(path, path.with_name(f"{path.name}.copy")) for path in self._files()]
        for path, copy in copies:
            shutil.copyfile(path, copy)
        self._connection.close()
        for path, copy in copies:
            copy.replace(path)
        self._reopen()

    def _files(self) -> tuple[Path, Path]:
        """Return the paths of the file and its log."""
        return self._folder / _FILE, self._folder / f"{_FILE}.wal"

    def apply(self, batch: ChangeBatch) -> None:
        """Apply a batch of changes in one transaction."""
        assert batch.epoch >= self.epoch, f"a batch up to {batch.epoch} is behind {self.epoch}"
        requests = batch.newest_requests(self._settings.requests_max)
        kept = self._kept + requests.num_rows
        kept_epochs = self._kept_epochs + len(batch.epochs)
        with self._transaction():
            # An epoch has one row for each entity. So those of a large epoch, as of an import, are all new in a table
            # that is empty before it, and no step has to look for them among the rows of the steps before.
            empty = self._empty_tables() - batch.changes.keys() if batch.large else set()
            merged: set[str] = set()
            for name, changes in chain.from_iterable(step.items() for step in batch.steps()):
                if name in self.tables:
                    merged.add(name)
                    self._merge(name, changes, are_new=name in empty)
                elif name == EFFECT:
                    change_effect_rows(self._connection, changes, self._cells.bytes_max)
            # The values that needed the wide types may be among those that have gone.
            for name in sorted(each for each in merged if self.tables[each].wide):
                self._narrow(name)
            if batch.epochs:
                self._insert(f"{SYSTEM}.epochs", epoch_rows(batch.epochs))
            if requests.num_rows:
                most = self._cells.bytes_max
                self._insert(f"{SYSTEM}.requests", without_large(request_rows(requests), most))
                self._insert(f"{SYSTEM}.replies", without_large(reply_rows(requests), most))
            self._streams.append(self._connection, batch.events, self._cells.bytes_max)
            # In the same transaction, so that no query sees more than `view.requests_max`.
            kept -= self._forget(kept, forget_oldest)
            kept_epochs -= self._forget(kept_epochs, forget_oldest_epochs)
            self._connection.execute(
                f"UPDATE {_STATE} SET epoch = ?, wide_streams = ?",
                [batch.epoch, self._streams.wide],
            )
        self._kept, self._kept_epochs = kept, kept_epochs
        self._batches += 1
        self._unmeasured += batch.rows
        self.epoch = batch.epoch
        self._publish_epoch()

    def fill(self, snapshots: Snapshots, manifest: Manifest) -> None:
        """Fill the tables of a new file from a snapshot.

        Each file of the snapshot is one transaction, and only the last one gives the tables the epoch, so a killed view
        begins again.

        Raises:
            Corrupt: A file of the snapshot is missing or damaged.
        """
        for name, class_files in manifest.classes.items():
            for file in class_files.files:
                with self._transaction():
                    if name in self.tables:
                        self._insert_file(snapshots, manifest, name, file)
                    elif name == EFFECT:
                        rows = _states_by_key(snapshots.states(class_files, file))
                        change_effect_rows(self._connection, rows, self._cells.bytes_max)
            if name in self.tables and self.tables[name].wide:
                with self._transaction():
                    self._narrow(name)  # a file alone may have needed the wide types
        self._unmeasured = ROWS_MAX
        self.apply(ChangeBatch(manifest.epoch))

    def batch_rows(self) -> int:
        """Return with how many rows a batch is full: more rows for larger tables."""
        if self._are_batches_small:
            return ROWS_MAX
        if self._unmeasured >= ROWS_MAX:  # not for each batch, which often is a small epoch
            largest = _number(self._connection, "SELECT max(estimated_size) FROM duckdb_tables()")
            most = min(largest // _ROWS_SHARE, self._settings.memory_mb * _ROWS_FOR_MB)
            self._batch_rows = max(ROWS_MAX, most)
            self._unmeasured = 0
        return self._batch_rows

    def keep_batches_small(self) -> None:
        """Let no later batch have more rows for a large table, because there was too little memory."""
        self._are_batches_small = True

    def rows(self) -> int:
        """Return how many entities the view holds."""
        return sum(
            _number(self._connection, f"SELECT count(*) FROM {table.written}")
            for table in self.tables.values()
        )

    def size(self) -> int:
        """Return the bytes of the file and its log."""
        return sum(path.stat().st_size for path in self._folder.glob(f"{_FILE}*"))

    @property
    def names(self) -> list[str]:
        """The names of all tables, as queries write them."""
        return names_of(self._app, self.tables.values())

    @property
    def lock(self) -> int:
        """The descriptor that keeps other processes out."""
        return self._lock

    def close(self) -> None:
        """Close the file and let others open it."""
        self._connection.close()
        os.close(self._lock)

    def _publish_epoch(self) -> None:
        """Publish the applied epoch, so that retention keeps all later epochs."""
        with suppress(OSError):  # with an older number, retention keeps more
            (self._folder / EPOCH).write_text(str(int(self.epoch)))

    def _connected(self) -> duckdb.DuckDBPyConnection:
        self._unmeasured = ROWS_MAX
        connection = open_isolated(self._settings.memory_mb)
        self._batches = self._removed = 0
        path = str(self._folder.absolute() / _FILE).replace("'", "''")
        path = ":memory:" if self._app.is_personal else path
        try:
            # Before the settings are closed: after that, no file can be attached.
            connection.execute(f"ATTACH '{path}' AS {_CATALOG} (ROW_GROUP_SIZE {_ROW_GROUP})")
            close_to_outside(connection)
            connection.execute(f"USE {_CATALOG}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _opened(self) -> duckdb.DuckDBPyConnection:
        """Open the file."""
        if not (self._folder / _FILE).exists():
            raise StaleViewFile("there is no file yet")
        connection = self._connected()
        try:
            row = connection.execute(f"SELECT {_STATE_COLUMNS} FROM {_STATE}").fetchall()[0]
            if row[1] != self._identity:
                raise StaleViewFile("it was built from another journal")
            if row[2] != self._layout:
                raise StaleViewFile("the declaration of a class has changed")
            self._kept = _number(connection, f"SELECT count(*) FROM {SYSTEM}.requests")
            self._kept_epochs = _number(connection, f"SELECT count(*) FROM {SYSTEM}.epochs")
            self._streams.open(connection, row[4])
        except BaseException:
            connection.close()
            raise
        self.epoch = Epoch(row[0])
        self.tables = tables_of(self._app, msgspec.json.decode(row[3], type=list[str]))
        return connection

    def _create(self) -> None:
        self.tables = tables_of(self._app)
        self.epoch, self._kept, self._kept_epochs = BEFORE_FIRST, 0, 0
        with self._transaction():
            run = self._connection.execute
            run(f"CREATE SCHEMA {SYSTEM}")
            texts = "journal VARCHAR, layout VARCHAR, wide VARCHAR, wide_streams VARCHAR"
            run(f"CREATE TABLE {_STATE}(epoch BIGINT, {texts})")
            run(
                f"INSERT INTO {_STATE} VALUES (?, ?, ?, '[]', '[]')",
                [BEFORE_FIRST, self._identity, self._layout],
            )
            if self._app.topology.rows:
                run(f"CREATE SCHEMA {TASKS}")
            for table in self.tables.values():
                run(f"CREATE TABLE {table.written}({table.definition})")
            self._streams.create(self._connection)
            create_system_tables(self._connection, self.tables.values())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        before, mark = self.tables.copy(), self._streams.mark()
        self._connection.execute("BEGIN TRANSACTION")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            self.tables = before  # a class that was widened in this transaction is narrow again
            self._streams.restore(mark)
            with suppress(duckdb.Error):  # the cause is being raised
                self._connection.execute("ROLLBACK")
            raise

    def _empty_tables(self) -> set[str]:
        """Return the names of the classes without entities."""
        run = self._connection.execute
        return {
            name
            for name, table in self.tables.items()
            if not run(f"SELECT 1 FROM {table.written} LIMIT 1").fetchall()
        }

    def _insert_file(
        self, snapshots: Snapshots, manifest: Manifest, name: str, file: SnapshotFile
    ) -> None:
        """Insert the entities of one file of a snapshot, which are in no other file."""
        columns = SnapshotColumns(self.tables[name])
        # Columns of an earlier version of the class may have the same types and other values. Values that are too large
        # for the memory, and rows of persons, are chosen by what is stored.
        is_usable = (
            columns.is_of(self._app, name, manifest.epoch)
            and not columns.is_sealed
            and self._cells.bytes_max is None
        )
        shown = columns.shown(snapshots, file) if is_usable else None
        if shown is not None:
            insert_rows(self._connection, self.tables[name], shown)
        else:
            states = _states_by_key(snapshots.states(manifest.classes[name], file))
            self._merge(name, states, are_new=True)

    def _merge(self, name: str, changes: EntityStates, *, are_new: bool) -> None:
        gone = [key for key, state in changes.items() if state is None]
        kept, rows = self.tables[name].readable(changes), None
        if kept:
            keys, states = list(kept), list(kept.values())
            try:
                rows = self.tables[name].rows(keys, states, self._cells.bytes_max)
            except TooNarrow:
                rows = self._widen(name).rows(keys, states, self._cells.bytes_max)
        if gone:
            self._remove(name, gone)
        if rows is not None and are_new:
            insert_rows(self._connection, self.tables[name], rows)
        elif rows is not None:
            self._removed += put_rows(self._connection, self.tables[name], rows)

    def _remove(self, name: str, gone: list[str]) -> None:
        try:
            keys = self.tables[name].keys(gone)
        except TooNarrow:
            keys = self._widen(name).keys(gone)
        self._removed += remove_rows(self._connection, self.tables[name], keys)

    def _narrow(self, name: str) -> None:
        """Give a class the narrow types again if no value needs the wide ones any more."""
        wide, narrow = self.tables[name], self._table(name, wide=False)
        if fits_narrow(self._connection, wide.written, wide, narrow):
            self._retype(name, narrow)
            _log.info("view.narrowed", extra={"entity": name})

    def _widen(self, name: str) -> EntityTable:
        """Give a class the wide types, and copy its rows."""
        table = self._table(name, wide=True)
        self._retype(name, table)
        _log.info("view.widened", extra={"entity": name})
        return table

    def _table(self, name: str, *, wide: bool) -> EntityTable:
        return tables_of(self._app, [name] if wide else [])[name]

    def _retype(self, name: str, table: EntityTable) -> None:
        retype_table(self._connection, (table.schema, table.name), self.tables[name], table)
        self.tables[name] = table
        names = sorted(entity for entity, its in self.tables.items() if its.wide)
        text = msgspec.json.encode(names).decode()
        self._connection.execute(f"UPDATE {_STATE} SET wide = ?", [text])

    def _insert(self, target: str, rows: pa.Table) -> None:
        with registered(self._connection, rows) as source:
            self._connection.execute(f"INSERT INTO {target} SELECT * FROM {source}")

    def _forget(self, kept: int, remove: Callable[[duckdb.DuckDBPyConnection, int], None]) -> int:
        """Remove the oldest rows beyond `view.requests_max`; return their number."""
        most = self._settings.requests_max
        excess = kept - most if kept - most > most // _SLACK else 0
        if excess:
            remove(self._connection, excess)
        return excess


def _states_by_key(states: pa.Table) -> EntityStates:
    return dict(zip(states["key"].to_pylist(), states["state"].to_pylist(), strict=True))


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    [(number,)] = connection.execute(query).fetchall()
    return int(number)
