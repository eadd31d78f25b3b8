"""Copying an embedded log while it is in use, and cutting a copy.

A copy is one state of the log: whatever was acknowledged before the copy began is in it. A log that
is cut at a position goes on there, as if what came behind had never been appended: its request ids
are not known any more, those before keep their retention. Cutting is surgery on a file that nobody
else uses, and leaves no mark (see `turnstile`): who opens the log next writes a new one.

Promises that damage is found before anything is made of it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.ids import Lsn, RequestId
from penstock.errors import Corrupt, Diverged
from penstock.files import durable
from penstock.log import block as blocks
from penstock.log import schedule
from penstock.log.api import Entry
from penstock.log.block import DEDUP_HASH_BYTES, Block, DedupHashes
from penstock.log.database import Database, end_of, sqlite_errors_translated, start_of

_INSERT: Final = "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PRINTS: Final = "SELECT first, records, appended_s, prints_digest, prints FROM {}"


class PositionRange(NamedTuple):
    """What a log holds: the positions [start, end)."""

    start: Lsn
    end: Lsn


class LaterRequest(NamedTuple):
    """A request that a cut removes; `lsn` is None where it waits, `due_us` where it does not."""

    request_id: RequestId
    body: bytes
    time_us: int
    lsn: Lsn | None
    due_us: int | None


def copy_log(source: Path, target: Path, lock_timeout_ms: int = 5_000) -> PositionRange:
    """Copy a log into a new file, durably, and check every record of the copy.

    Writers go on meanwhile, but cannot shorten their write-ahead log. Memory does not grow with
    the log.

    Raises:
        Corrupt: The log is damaged.
        LogUnavailable: It cannot be read, or the disk of the copy is full or fails.
    """
    if not source.exists():  # opening it would create it
        raise Corrupt(f"{source} is missing; restore it from a backup")
    database = Database(source, lock_timeout_ms)
    try:
        with (
            database.reading() as reading,
            sqlite_errors_translated(target),
            closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing)
    finally:
        database.close()
    with _alone(target, source) as connection:
        verify_log(connection, str(source))
        extent = PositionRange(start_of(connection), end_of(connection))
    with sqlite_errors_translated(target):
        durable.sync(target)
    return extent


def verify_log(connection: sqlite3.Connection, file: str) -> None:
    """Check every record, the hashes of every request id, and all that is scheduled.

    Raises:
        Corrupt: Something does not fit its checksum, or positions are missing; names `file`.
    """
    reach = start_of(connection)
    for block in map(Block._make, connection.execute("SELECT * FROM block ORDER BY first")):
        blocks.verify(block, file)
        blocks.verify_dedup_hashes(DedupHashes._make(block[:5]), file)
        if block.first > reach:
            raise Corrupt(f"{file}: no record at lsn {reach}; restore the file from a backup")
        reach = max(reach, block.end)
    for prints in map(DedupHashes._make, connection.execute(_PRINTS.format("remembered"))):
        blocks.verify_dedup_hashes(prints, file)
    schedule.verify_schedule(connection, file)


def requests_after(path: Path, end: Lsn, time_us: int) -> Iterator[LaterRequest]:
    """Yield what is held and `keep_prefix` would remove, in order; what waits comes last.

    Raises:
        Corrupt: The log is damaged.
    """
    with _alone(path) as connection:
        first = max(end, start_of(connection))
        rows = connection.execute(
            "SELECT * FROM block WHERE first + records > ? ORDER BY first", (first,)
        )
        for block in map(Block._make, rows):
            blocks.verify(block, str(path))
            for one in blocks.records_of([block]):
                if one.lsn >= first:
                    yield LaterRequest(one.request_id, one.body, one.time_us, one.lsn, None)
        for _, due_us, entry in schedule.scheduled_entries(connection, str(path)):
            if entry.time_us > time_us:
                yield LaterRequest(entry.request_id, entry.body, entry.time_us, None, due_us)


def keep_prefix(path: Path, end: Lsn, time_us: int) -> None:
    """Remove every record from `end` on, and what was scheduled after a time.

    Args:
        path: The file; nobody else has it open.
        end: The first position to go; the next record will get it.
        time_us: Microseconds since the Unix epoch.

    Raises:
        Diverged: The log ends before `end`.
        Corrupt: The log is damaged.
        LogUnavailable: The disk is full or fails; nothing is cut.
    """
    with _alone(path) as connection:
        if end_of(connection) < end:
            raise Diverged(f"{path} ends at {end_of(connection)}, before {end}")
        connection.execute("BEGIN IMMEDIATE")
        _cut_blocks(connection, end, str(path))
        _cut_remembered(connection, end, str(path))
        connection.execute("UPDATE position SET start = min(start, ?)", (end,))
        late = [
            (number,)
            for number, _, entry in schedule.scheduled_entries(connection, str(path))
            if entry.time_us > time_us
        ]
        connection.executemany("DELETE FROM scheduled WHERE number = ?", late)
        connection.execute("COMMIT")
        assert end_of(connection) == end, "the log goes on where it was cut"
    with sqlite_errors_translated(path):
        durable.sync(path)


def _cut_blocks(connection: sqlite3.Connection, end: Lsn, file: str) -> None:
    """Remove the blocks behind a position; pack anew what precedes it in its own block."""
    across = connection.execute(
        "SELECT * FROM block WHERE first < :end AND first + records > :end", {"end": end}
    ).fetchone()
    connection.execute("DELETE FROM block WHERE first + records > ?", (end,))
    if across is None:
        return
    block = Block._make(across)
    blocks.verify(block, file)
    blocks.verify_dedup_hashes(DedupHashes._make(block[:5]), file)
    count = end - block.first
    records = blocks.records_of([block])[:count]
    touches = blocks.touches_of([block])[:count]
    entries = [
        Entry(one.request_id, one.body, touched, one.time_us)
        for one, touched in zip(records, touches, strict=True)
    ]
    prints = [
        block.prints[at : at + DEDUP_HASH_BYTES]
        for at in range(0, count * DEDUP_HASH_BYTES, DEDUP_HASH_BYTES)
    ]
    connection.executemany(
        _INSERT, blocks.pack(Lsn(block.first), entries, prints, block.appended_s)
    )


def _cut_remembered(connection: sqlite3.Connection, end: Lsn, file: str) -> None:
    query = f"{_PRINTS.format('remembered')} WHERE first < :end AND first + records > :end"
    across = connection.execute(query, {"end": end}).fetchone()
    connection.execute("DELETE FROM remembered WHERE first + records > ?", (end,))
    if across is None:
        return
    whole = DedupHashes._make(across)
    blocks.verify_dedup_hashes(whole, file)
    count = end - whole.first
    left = whole._replace(records=count, prints=whole.prints[: count * DEDUP_HASH_BYTES])
    left = left._replace(prints_digest=blocks.dedup_digest_of(left))
    connection.execute("INSERT INTO remembered VALUES (?, ?, ?, ?, ?)", left)


@contextmanager
def _alone(path: Path, blamed: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Open a log's file that nobody else uses; no other file is left beside it."""
    with (
        sqlite_errors_translated(blamed or path),
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA synchronous = FULL")
        yield connection
