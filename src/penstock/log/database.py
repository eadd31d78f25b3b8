"""The embedded log's file: connections, transactions, checkpoints, and what SQLite's errors mean.

It promises that a transaction that was committed is on the disk (below), that writers of all
processes take turns within a deadline, that readers and writers never block each other, and that
the write-ahead log stays bounded. What is in the tables is left to others.

Durability: `journal_mode=WAL` with `synchronous=FULL`. In this mode SQLite calls `fdatasync` on
the write-ahead log inside every COMMIT, after the last frame is written and before the commit
becomes visible to anyone; a new write-ahead log's directory is synced too. (`NORMAL` would sync at
checkpoints only.) So whatever any process can read, and whatever an append acknowledged, survives
the loss of power, as far as the disk keeps its word.

Checkpoints run under the writers' lock, never beside a commit: SQLite before 3.51.3 can lose
commits when a checkpoint and the restart of the write-ahead log meet. They run after the commit
has been acknowledged, every `CHECKPOINT_BYTES` of appended data, so each is short.

A connection belongs to one thread of one process. A process that was forked must open the log
anew; using a parent's is refused, because SQLite's locks do not survive a fork.
"""

import fcntl
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import Corrupt, LogUnavailable

CHECKPOINT_BYTES: Final = 8_388_608
"""Appended bytes after which a process copies the write-ahead log into the file."""

RESTART_FRAMES: Final = 16_384
"""Frames (pages) of write-ahead log beyond which a checkpoint waits for readers to finish."""

_RESTART_WAIT_MS: Final = 250
_POLL_FIRST_S: Final = 0.0002
_POLL_LAST_S: Final = 0.002
_APPLICATION_ID: Final = 0x50454E53
_FORMAT: Final = 1
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_SCHEMA: Final = """
CREATE TABLE block (
    first INTEGER PRIMARY KEY, records INTEGER NOT NULL, appended_s INTEGER NOT NULL,
    prints_digest BLOB NOT NULL, prints BLOB NOT NULL,
    digest BLOB NOT NULL, shape BLOB NOT NULL, data BLOB NOT NULL
);
CREATE TABLE remembered (
    first INTEGER PRIMARY KEY, records INTEGER NOT NULL, appended_s INTEGER NOT NULL,
    prints_digest BLOB NOT NULL, prints BLOB NOT NULL
);
CREATE TABLE position (
    one INTEGER PRIMARY KEY CHECK (one = 1), start INTEGER NOT NULL, seed INTEGER NOT NULL
);
"""

# Forked children keep their parent's connections alive here: closing one could unlock or remove
# what the parent still uses.
_INHERITED: Final[list[sqlite3.Connection]] = []


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system into those of the log.

    Raises:
        Corrupt: The file is damaged, cut short, or no SQLite file.
        LogUnavailable: Anything else: disk full, input or output failed, locked for too long.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ:
            raise Corrupt(f"{file}: {error} ({name}); restore it from a backup") from error
        raise LogUnavailable(f"{file}: {error} ({name})") from error
    except OSError as error:
        raise LogUnavailable(f"{file}: {error}") from error


class Handle:
    """One thread's connection; `lock` is held while it is in use, so that `close` can wait."""

    __slots__ = ("__weakref__", "connection", "lock", "process")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()
        self.process = os.getpid()

    def __del__(self) -> None:
        if os.getpid() == self.process:
            self.connection.close()
        else:
            _INHERITED.append(self.connection)


class Database:
    """A file of SQLite, shared by threads and processes.

    Raises, from every method:
        Corrupt: The file is damaged.
        LogUnavailable: The file cannot be read or written, a lock was not free within
            `lock_timeout_ms`, the database is closed, or the process is a fork of its owner.
    """

    def __init__(self, path: Path, lock_timeout_ms: int) -> None:
        self.path = path
        self._lock_path = path.with_name(path.name + "-lock")
        self._lock_timeout_s = lock_timeout_ms / 1000
        self._process = os.getpid()
        self._closed = False
        self._mine = threading.local()
        self._handles_lock = threading.Lock()
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()  # a thread's end closes its own
        with translated(path):
            self._prepare()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection, in no transaction."""
        with translated(self.path):
            handle = self._handle()
            with handle.lock:
                if self._closed:  # in the moment between the look-up and the lock
                    raise LogUnavailable(f"{self.path}: the log is closed")
                yield handle.connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection inside a read transaction: one state of the file.

        Keep it short: what is read here cannot be overwritten in the write-ahead log.
        """
        with self.using() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection inside a write transaction, durable once this exits.

        Any exception, in the body or in COMMIT, undoes everything.
        """
        with self.using() as connection, self._locked():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                _roll_back(connection)

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file; wait for readers only when it has grown long.

        New readers that come while this waits read the file itself and so do not prolong it.
        """
        with self.using() as connection, self._locked():
            _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames > RESTART_FRAMES:
                connection.execute(f"PRAGMA busy_timeout = {_RESTART_WAIT_MS}")
                try:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    connection.execute(f"PRAGMA busy_timeout = {int(self._lock_timeout_s * 1000)}")

    def close(self) -> None:
        """Close the connections of all threads, once each is out of use; idempotent."""
        self._closed = True
        with self._handles_lock:
            handles = list(self._handles)
        if os.getpid() != self._process:
            return
        with translated(self.path), self._locked():
            for handle in handles:
                with handle.lock:
                    handle.connection.close()

    def _handle(self) -> Handle:
        if self._closed:
            raise LogUnavailable(f"{self.path}: the log is closed")
        if os.getpid() != self._process:
            raise LogUnavailable(f"{self.path}: opened before a fork; open it again in the child")
        handle: Handle | None = getattr(self._mine, "handle", None)
        if handle is None:
            handle = Handle(self._connect())
            self._mine.handle = handle
            with self._handles_lock:
                self._handles.add(handle)
        return handle

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._lock_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA secure_delete = OFF")  # else freed pages are written with zeros
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    def _prepare(self) -> None:
        """Create the tables in a new file; check that an old one is a log."""
        with self._locked():
            known = self._lock_path.read_text()
            if known and (not self.path.exists() or self.path.stat().st_size == 0):
                raise Corrupt(f"{self.path}: the log was here and is gone; restore its file")
            connection = self._handle().connection
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if (version, application) == (0, 0) and not connection.execute(
                "SELECT 1 FROM sqlite_schema"
            ).fetchone():
                self._create(connection)
            elif (version, application) != (_FORMAT, _APPLICATION_ID):
                raise Corrupt(f"{self.path}: not a log of format {_FORMAT}")
            if not known:
                self._lock_path.write_text("The log beside this file exists. Do not remove.\n")

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        seed = int.from_bytes(os.urandom(7), "big")
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}")
        connection.execute("INSERT INTO position VALUES (1, 0, ?)", (seed,))
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the writers' lock, which the operating system frees when its holder dies."""
        # Opened anew each time, so that a forked child never shares it for long.
        with self._lock_path.open("a") as file:
            deadline = time.monotonic() + self._lock_timeout_s
            pause_s = _POLL_FIRST_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise LogUnavailable(
                            f"{self.path}: another writer held the log for too long"
                        ) from None
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, _POLL_LAST_S)
            yield


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
