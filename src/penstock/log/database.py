"""The embedded log's file: connections, transactions, checkpoints, and translated SQLite errors.

A committed transaction is on the disk (see below). Writers of all processes take turns, each within
a deadline. Readers and writers never block each other. The write-ahead log stays bounded. Other
modules define the content of the tables.

Durability: `journal_mode=WAL` with `synchronous=FULL`. In this mode SQLite calls `fdatasync` on
the write-ahead log inside every COMMIT, after the last frame is written and before the commit
becomes visible; a new write-ahead log's directory is synced too. (`NORMAL` would sync at
checkpoints only.) So all records that a process can read or that an append has acknowledged survive
a power loss, unless the disk itself loses synced data.

Checkpoints hold the writers' lock, so that none runs during a commit: SQLite before 3.51.3 can lose
commits when a checkpoint and the restart of the write-ahead log meet. They run after the commit
has been acknowledged, every `CHECKPOINT_BYTES` of appended data, so each is short.

A connection belongs to one thread of one process. A forked process must open the log again; the use
of a parent's connection is refused, because SQLite's locks do not survive a fork.
"""

import os
import resource
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import xxhash

from penstock.base.ids import Lsn
from penstock.errors import ConfigError, Corrupt, LogUnavailable, PenstockError
from penstock.files.durable import is_read_only
from penstock.files.lock import KeptLock
from penstock.log.schedule import SCHEMA as SCHEDULE_SCHEMA

_DIGITS: Final = 20
_CHECKSUM_BYTES: Final = 16
_MARK_BYTES: Final = _DIGITS + 1 + _CHECKSUM_BYTES + 1


class HighWaterMark:
    """The entry count at the newest commit, in the lock's file; usable while the lock is held.

    It detects that acknowledged records are gone: a file that was damaged, cut, deleted or replaced
    by an older one. It is written after the commit was synced, and is not synced itself, so after a
    crash it may be behind the log, and is never ahead of it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> int | None:
        """Return the count; None if it was never written or cannot be read."""
        text = os.pread(self._descriptor, _MARK_BYTES, 0)
        digits = text[:_DIGITS]
        # A mark that does not fit its checksum was torn by a crash; without a mark, nothing is
        # compared.
        return int(digits) if digits and text == _with_checksum(digits) else None

    def write(self, count: int) -> None:
        """Store the count. A failure does no harm: the mark is then behind the log."""
        with suppress(OSError):
            os.pwrite(self._descriptor, _with_checksum(b"%0*d" % (_DIGITS, count)), 0)

    def tell(self) -> None:
        """Write to the file, and change no mark: a copy has none."""
        with suppress(OSError):
            os.pwrite(self._descriptor, b"\n", _MARK_BYTES)


class WriterLock:
    """Lets one writer at a time into a log."""

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self.path = path
        self._timeout_s = timeout_ms / 1000
        self._lock = KeptLock(path)

    @contextmanager
    def held(self) -> Iterator[HighWaterMark]:
        """Hold the lock; lend the high-water mark.

        Raises:
            OSError: The lock's file cannot be opened.
        """
        with self._lock.held(self._timeout_s) as descriptor:
            if descriptor is None:
                raise LogUnavailable(f"{self.path}: another writer held the log for too long")
            yield HighWaterMark(descriptor)

    def close(self) -> None:
        """Close the lock's file; idempotent."""
        self._lock.close()


def _with_checksum(digits: bytes) -> bytes:
    return digits + b" " + xxhash.xxh3_64_hexdigest(digits).encode() + b"\n"


CHECKPOINT_BYTES: Final = 8_388_608
"""Appended bytes after which a process copies the write-ahead log into the file."""

LOCK_TIMEOUT_MS: Final = 5_000
"""How long a process waits for the append of another process."""

RESTART_FRAMES: Final = 16_384
"""Frames (pages) of write-ahead log beyond which a checkpoint waits for readers to finish."""

_RESTART_WAIT_MS: Final = 250
_FULL_BYTES: Final = 1 << 20
"""A disk with less free space than this can be the reason why SQLite cannot make its files longer."""

_APPLICATION_ID: Final = 0x50454E53
_FORMAT: Final = 2
_FORMAT_WITHOUT_SCHEDULE: Final = 1
_FORMAT_OF_COPY: Final = 1_002
"""The file of a host that copies a topic; an embedded log of an earlier version refuses it."""
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
COPY_SCHEMA: Final = """
CREATE TABLE followed (
    one INTEGER PRIMARY KEY CHECK (one = 1), log BLOB NOT NULL, next INTEGER NOT NULL,
    time_s INTEGER NOT NULL, digest BLOB NOT NULL
);
CREATE TABLE piece (
    writer BLOB NOT NULL, number INTEGER NOT NULL, part INTEGER NOT NULL, next INTEGER NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (writer, number, part)
);
CREATE TABLE outcome (
    next INTEGER PRIMARY KEY, writer BLOB NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (writer, number)
);
INSERT INTO followed VALUES (1, x'', 0, 0, x'')
"""
"""What a copy has besides a log: how far it has read the topic, what is incomplete, and what came of each order."""

_NO_POSITION: Final = (1 << 63) - 1
_END: Final = (  # the start is the end of a log that was truncated to nothing
    "SELECT coalesce((SELECT first + records FROM block ORDER BY first DESC LIMIT 1), start) "
    "FROM position"
)
_SCHEDULED: Final = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'scheduled'), 0)"
INSERT_BLOCK: Final = "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_NEWEST_APPEND: Final = """
SELECT appended_s FROM block WHERE first = (SELECT max(first) FROM block)
UNION ALL SELECT appended_s FROM remembered WHERE first = (SELECT max(first) FROM remembered)
"""
_LAST_TO_DELETE: Final = """
SELECT max(first) FROM (
    SELECT first, records, sum(size) OVER (ORDER BY first) - size AS size_before FROM (
        SELECT first, records, length(data) AS size FROM block
        WHERE first < ? ORDER BY first LIMIT 4096))
WHERE first + records <= ? AND size_before < ?
"""

# A forked child keeps its parent's connections alive here: closing one could release locks or
# remove files that the parent still uses.
_INHERITED: Final[list[sqlite3.Connection]] = []


@contextmanager
def sqlite_errors_translated(file: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system into those of the log."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if code & 0xFF in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ:
            raise Corrupt(f"{file}: {error} ({name}); restore it from a backup") from error
        full = _no_room(file) if code & 0xFF == sqlite3.SQLITE_IOERR else ""
        raise LogUnavailable(f"{file}: {error} ({name}){full}") from error
    except OSError as error:
        raise LogUnavailable(f"{file}: {error}") from error


def _no_room(file: Path) -> str:
    """Return the end of the message of a failed write that a full disk or a limit explains: SQLite does not name that cause."""
    try:
        free = shutil.disk_usage(file.parent).free
    except OSError:
        return ""
    if free < _FULL_BYTES:
        return f"; the disk is full: {free:,} bytes are free"
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return "" if most == resource.RLIM_INFINITY else f"; a file may have {most:,} bytes (ulimit -f)"


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

    Args:
        follows: Whether the file is the copy of a topic, and whether it may be written to.
    """

    def __init__(self, path: Path, lock_timeout_ms: int, *, follows: bool = False) -> None:
        self.path = path
        self._follows = follows
        self._is_copy = follows
        self._writer_lock = WriterLock(path.with_name(path.name + "-lock"), lock_timeout_ms)
        self._lock_timeout_ms = lock_timeout_ms
        self._process = os.getpid()
        self._closed = False
        self._mine = threading.local()
        self._handles_lock = threading.Lock()
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()  # a thread's end closes its own
        with self.closed_on_error(), sqlite_errors_translated(path):
            self._prepare()

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the database if the block, which opens it or its owner, fails."""
        try:
            yield
        except BaseException:
            with suppress(PenstockError):
                self.close()
            raise

    @property
    def mark_path(self) -> Path:
        """The file that is written to after each commit."""
        return self._writer_lock.path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection, in no transaction."""
        with sqlite_errors_translated(self.path):
            handle = self._handle()
            with handle.lock:
                self.check_usable()  # it may have been closed since the look-up
                yield handle.connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend this thread's connection inside a read transaction: one state of the file.

        Keep it short: until it ends, the write-ahead log cannot be restarted.
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
        if self._is_copy and not self._follows:
            raise LogUnavailable(f"{self.path} is a copy of a topic in Kafka: append to the topic")
        with self.using() as connection, self._writer_lock.held() as mark:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                reached = _reached(connection)
                connection.execute("COMMIT")
            finally:
                _roll_back(connection)
            # Others see the transaction from here on, and this write wakes those who wait for it.
            if self._follows:
                mark.tell()
            else:
                mark.write(reached)

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file; wait for readers only if it has grown long.

        Readers that begin meanwhile read the file itself, so they do not prolong the wait.
        """
        with self.using() as connection, self._writer_lock.held():
            _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames > RESTART_FRAMES:
                connection.execute(f"PRAGMA busy_timeout = {_RESTART_WAIT_MS}")
                try:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    connection.execute(f"PRAGMA busy_timeout = {self._lock_timeout_ms}")

    def close(self) -> None:
        """Close the connections of all threads, once each is out of use; idempotent.

        The last one to close in any process copies the write-ahead log into the file.
        """
        self._closed = True
        if os.getpid() != self._process:
            return
        with self._handles_lock:
            handles = list(self._handles)
        with sqlite_errors_translated(self.path):
            for handle in handles:
                with handle.lock:
                    handle.connection.close()
        self._writer_lock.close()

    def check_usable(self) -> None:
        """Raise `LogUnavailable` unless this process opened the database and has not closed it."""
        if self._closed:
            raise LogUnavailable(f"{self.path}: the log is closed")
        if os.getpid() != self._process:
            raise LogUnavailable(f"{self.path}: opened before a fork; open it again in the child")

    def _handle(self) -> Handle:
        self.check_usable()
        handle: Handle | None = getattr(self._mine, "handle", None)
        if handle is None:
            handle = Handle(self._connect())
            self._mine.handle = handle
            with self._handles_lock:
                self._handles.add(handle)
        return handle

    def _connect(self) -> sqlite3.Connection:
        is_fixed = _is_fixed(self.path)
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?immutable=1" if is_fixed else self.path,
            uri=is_fixed,
            timeout=self._lock_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        try:
            # A copy that loses its newest transactions reads them again, so only checkpoints sync it.
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._follows else 'FULL'}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            # Else freed pages are written with zeros.
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute("PRAGMA cache_size = -16384")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        """Create the tables in a new file; check that an old file is a log and has lost nothing."""
        with self._writer_lock.held() as mark:
            # What a copy must have, its topic says.
            expected = None if self._follows else mark.read()
            if expected is not None and not (self.path.exists() and self.path.stat().st_size):
                raise Corrupt(f"{self.path}: the log is missing; {self._way_out}")
            connection = self._handle().connection
            self._prepare_tables(connection)
            if self._is_copy:
                return
            reached = _reached(connection)
            if expected is not None and reached < expected:
                raise Corrupt(
                    f"{self.path}: {expected - reached} acknowledged records from "
                    f"{end_of(connection)} on, or scheduled ones, are gone; {self._way_out}"
                )
            mark.write(reached)

    def _prepare_tables(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if (version, application) == (0, 0) and not connection.execute(
            "SELECT 1 FROM sqlite_schema"
        ).fetchone():
            self._create(connection)
        elif (version, application) == (_FORMAT_OF_COPY, _APPLICATION_ID):
            self._is_copy = True
        elif self._follows:
            raise Corrupt(f"{self.path}: not a copy of a topic")
        elif (version, application) == (_FORMAT_WITHOUT_SCHEDULE, _APPLICATION_ID):
            self._add_schedule(connection)
        elif application == _APPLICATION_ID and version > _FORMAT:
            raise ConfigError(
                f"{self.path} has the format {version}, and this version of Penstock knows formats up to {_FORMAT}; "
                "use the version that wrote it, or a newer one"
            )
        elif (version, application) != (_FORMAT, _APPLICATION_ID):
            raise Corrupt(f"{self.path}: not a log of format {_FORMAT}")

    @property
    def _way_out(self) -> str:
        return f"restore it from a backup, or remove {self._writer_lock.path} to accept the loss"

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        seed = int.from_bytes(os.urandom(7), "big")
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {SCHEDULE_SCHEMA}")
        connection.execute("INSERT INTO position VALUES (1, 0, ?)", (seed,))
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        if self._follows:
            _make_copy(connection)
        connection.execute("COMMIT")

    @staticmethod
    def _add_schedule(connection: sqlite3.Connection) -> None:
        """Upgrade a file of the former format, which had no schedule, in one transaction."""
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEDULE_SCHEMA}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.execute("COMMIT")
        finally:
            _roll_back(connection)


def _is_fixed(path: Path) -> bool:
    """Say whether a file is on a disk for reading only, and whole: SQLite could not make the files that it has beside it."""
    return is_read_only(path.parent) and not path.with_name(f"{path.name}-wal").exists()


def is_copy(path: Path) -> bool:
    """Say whether a file exists and is the copy of a topic."""
    if not path.exists():
        return False
    with sqlite_errors_translated(path), closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version == _FORMAT_OF_COPY)


def new_copy(path: Path) -> None:
    """Make the copy of an empty topic."""
    Database(path, LOCK_TIMEOUT_MS, follows=True).close()


def as_copy(path: Path) -> None:
    """Turn an embedded log that no process uses into a copy that stands before the first message of a topic."""
    with (
        sqlite_errors_translated(path),
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute("BEGIN IMMEDIATE")
        _make_copy(connection)
        connection.execute("COMMIT")


def _make_copy(connection: sqlite3.Connection) -> None:
    for statement in COPY_SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_FORMAT_OF_COPY}")


def make_embedded(connection: sqlite3.Connection) -> None:
    """Turn a copy of a topic into an embedded log that goes on by itself; another file stays as it is."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _FORMAT_OF_COPY:
        connection.execute("BEGIN IMMEDIATE")
        for table in ("followed", "piece", "outcome"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute(f"PRAGMA user_version = {_FORMAT}")
        connection.execute("COMMIT")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _reached(connection: sqlite3.Connection) -> int:
    """Return how many entries were ever appended, plus how many were ever scheduled.

    Each acknowledgement increases the sum, and nothing decreases it.
    """
    # In one statement: each takes longer than its work, and every append waits for it.
    (reached,) = connection.execute(f"SELECT ({_END}) + {_SCHEDULED}").fetchone()
    return int(reached)


def newest_append_s(connection: sqlite3.Connection) -> int | None:
    """Return the log's own time of the newest append whose ids are held; None without one."""
    rows = connection.execute(_NEWEST_APPEND).fetchall()
    return max((int(seconds) for (seconds,) in rows), default=None)


def identity_of(path: Path) -> str | None:
    """Return which log a file is: a text that was drawn when it was made; None if it does not exist.

    Raises:
        Corrupt, LogUnavailable: It cannot be read.
    """
    if not path.exists():  # connecting would create it
        return None
    with sqlite_errors_translated(path), closing(sqlite3.connect(path)) as connection:
        (seed,) = connection.execute("SELECT seed FROM position").fetchone()
        return f"{seed:014x}"


def start_of(connection: sqlite3.Connection) -> Lsn:
    """Return the oldest position held."""
    (start,) = connection.execute("SELECT start FROM position").fetchone()
    return Lsn(start)


def end_of(connection: sqlite3.Connection) -> Lsn:
    """Return the position after the newest record."""
    (end,) = connection.execute(_END).fetchone()
    return Lsn(end)


def delete_some_blocks(connection: sqlite3.Connection, before: Lsn, size: int) -> int:
    """Delete blocks below a position, about `size` bytes, but keep their hashes; return how many."""
    last = connection.execute(_LAST_TO_DELETE, (before, before, size)).fetchone()
    connection.execute(
        "INSERT INTO remembered SELECT first, records, appended_s, prints_digest, prints "
        "FROM block WHERE first <= ?",
        last,
    )
    return connection.execute("DELETE FROM block WHERE first <= ?", last).rowcount


def delete_expired_ids(connection: sqlite3.Connection, oldest_s: int) -> None:
    """Delete the hashes of truncated records that were appended at a time or before, and lie below all younger ones."""
    # The rows are in the order of their appends. So it ends at the first one that is younger, and does not read the others,
    # which are gigabytes after days with many requests, while all appends wait.
    connection.execute(
        "DELETE FROM remembered WHERE first < coalesce("
        "(SELECT first FROM remembered WHERE appended_s > ? ORDER BY first LIMIT 1), ?)",
        (oldest_s, _NO_POSITION),
    )
