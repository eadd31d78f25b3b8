"""`RowCopy`: the rows that a change log shows, in a file of the view's folder.

A log cannot be asked for the row of a key, and a change has the row before it. The log alone is the truth. Each
transaction of the log has a token, and the copy knows the token up to which it shows the log. A change is written here
as *pending* before its transaction of the log is committed, and takes effect here when the log is seen to have the token. So after any
crash the copy shows either the log, or nothing that counts; then it is made again from the log.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from penstock.views.change_message import KeyedRow
from penstock.views.target import TargetProblem

_WAIT_S: Final = 3.0
"""How long a transaction waits for that of another process."""
_ASKED: Final = 500
"""Owners whose rows are asked for at once."""
_SHAPE: Final = (
    "(of TEXT, owner BLOB, key BLOB, value BLOB, PRIMARY KEY (of, owner, key)) WITHOUT ROWID"
)
_BEGIN: Final = f"""
CREATE TABLE IF NOT EXISTS row {_SHAPE};
CREATE TABLE IF NOT EXISTS pending {_SHAPE};
CREATE TABLE IF NOT EXISTS fresh {_SHAPE};
CREATE TABLE IF NOT EXISTS state (only INTEGER PRIMARY KEY CHECK (only = 0), shown TEXT, pending TEXT, is_fill INTEGER);
INSERT OR IGNORE INTO state VALUES (0, '', NULL, 0);
"""

Change = tuple[str, bytes, bytes, bytes | None]
"""Table, owner and key, and the row; None: it is gone."""


class RowCopy:
    """The file; for one thread. Each method raises `TargetProblem` if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep other processes from the copy until the block ends; an error leaves the copy as it was."""
        connection = self._opened()
        with self._translated():
            connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._translated():
                if connection.in_transaction:
                    connection.execute("COMMIT")
        finally:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def commit(self) -> None:
        """Make the work of the block of `changing` durable before its end."""
        self._execute("COMMIT")

    def settle(self, token: str) -> bool:
        """Let the copy show the log up to a token, inside of `changing`; say whether it can."""
        ((shown, pending, is_fill),) = self._execute("SELECT shown, pending, is_fill FROM state")
        if token not in (shown, pending):
            return False
        if token == pending and is_fill:
            self._execute("DROP TABLE row")
            self._execute("ALTER TABLE fresh RENAME TO row")
            self._execute(f"CREATE TABLE fresh {_SHAPE}")
        elif token == pending:
            self._execute(
                "DELETE FROM row WHERE (of, owner, key) IN (SELECT of, owner, key FROM pending)"
            )
            self._execute("INSERT INTO row SELECT * FROM pending WHERE value IS NOT NULL")
        if pending is not None:
            self._execute("DELETE FROM pending")
            self._execute("DELETE FROM fresh")
            self._execute("UPDATE state SET shown = ?, pending = NULL", (token,))
        return True

    def begin_again(self, token: str) -> None:
        """Forget all rows, inside of `changing`; `replay` adds those that the log has at a token."""
        for table in ("row", "pending", "fresh"):
            self._execute(f"DELETE FROM {table}")
        self._execute("UPDATE state SET shown = ?, pending = NULL", (token,))

    def replay(self, of: str, owner: bytes, key: bytes, value: bytes | None) -> None:
        """Take a message of the log."""
        if value is None:
            self._execute(
                "DELETE FROM row WHERE of = ? AND owner = ? AND key = ?", (of, owner, key)
            )
        else:
            self._execute("INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?)", (of, owner, key, value))

    def rows_of(self, of: str, owners: Sequence[bytes]) -> dict[bytes, tuple[bytes, bytes]]:
        """Return the rows of owners: the keys of messages to owner and row."""
        present: dict[bytes, tuple[bytes, bytes]] = {}
        for at in range(0, len(owners), _ASKED):
            some = owners[at : at + _ASKED]
            marks = ",".join("?" * len(some))
            for owner, key, value in self._asked(
                f"SELECT owner, key, value FROM row WHERE of = ? AND owner IN ({marks})",
                (of, *some),
            ):
                present[key] = owner, value
        return present

    def prepare(self, token: str, changes: Iterable[Change]) -> None:
        """Write the changes that a transaction of the log will have."""
        self._execute("DELETE FROM pending")
        self._many("INSERT INTO pending VALUES (?, ?, ?, ?)", changes)
        self._execute("UPDATE state SET pending = ?, is_fill = 0", (token,))

    def begin_fill(self) -> None:
        """Begin to write all rows again, beside those that the log shows."""
        self._execute("DELETE FROM fresh")

    def add(self, of: str, rows: Iterable[KeyedRow]) -> None:
        """Add rows of a fill; a key of the table that is there already is replaced."""
        self._many("INSERT OR REPLACE INTO fresh VALUES (?, ?, ?, ?)", ((of, *row) for row in rows))

    def prepare_fill(self, token: str) -> None:
        """End a fill whose rows a transaction of the log will have."""
        self._execute("UPDATE state SET pending = ?, is_fill = 1", (token,))

    def gone(self) -> Iterator[tuple[str, bytes]]:
        """Yield table and key of the rows that a fill does not have any more."""
        yield from self._asked(
            "SELECT of, key FROM row WHERE NOT EXISTS (SELECT 1 FROM fresh "
            "WHERE fresh.of = row.of AND fresh.owner = row.owner AND fresh.key = row.key)"
        )

    def fresh(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield table, key and row of all rows of a fill."""
        yield from self._asked("SELECT of, key, value FROM fresh")

    def count(self, of: str, table: str = "row") -> int:
        """Return the number of rows of a table."""
        ((count,),) = self._execute(f"SELECT count(*) FROM {table} WHERE of = ?", (of,))
        return int(count)

    def purge(self) -> None:
        """Destroy the rest of rows that were removed."""
        connection = self._opened()
        with self._translated():
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise TargetProblem(f"another process reads {self._path}")

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        for end in ("", "-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._begun()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # locked, no room, no such folder
                    raise TargetProblem(f"{self._path} cannot be used: {error}") from error
                # It is damaged, and follows from the log.
                self.remove()
                with self._translated():
                    self._connection = self._begun()
        return self._connection

    def _begun(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, _WAIT_S, isolation_level=None)
        try:
            self._path.chmod(0o600)  # rows of persons may be in it
            connection.execute("PRAGMA journal_mode = WAL")
            # The loss of the last transactions is noticed: the log has another token then.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.executescript(_BEGIN)
        except BaseException:
            connection.close()
            raise
        return connection

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        assert self._connection is not None, "a block of `changing` has opened it"
        with self._translated():
            return self._connection.execute(statement, values)

    def _asked(self, query: str, values: Sequence[object] = ()) -> Iterator[Any]:
        with self._translated():
            yield from self._execute(query, values)

    def _many(self, statement: str, values: Iterable[Sequence[object]]) -> None:
        assert self._connection is not None, "a block of `changing` has opened it"
        with self._translated():
            self._connection.executemany(statement, values)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):
                self.remove()
            raise TargetProblem(f"{self._path} cannot be used: {error}") from error
