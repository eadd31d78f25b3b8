"""Copying an embedded log while it is in use, and shortening a copy to a prefix.

A copy is one state of the log: it has every record that was acknowledged before the copy began.

A log that is shortened at a position goes on there, as if the later records had never been appended:
their request ids are not known any more, and the earlier ids keep their retention. The file must not
be in use by another process. The high-water mark is not written (`database`); the next process
that opens the log writes a new one.

Damage is found before a record is copied or removed.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.ids import Lsn, RequestId
from penstock.errors import Corrupt, Diverged
from penstock.files import durable
from penstock.log import block as blocks
from penstock.log import schedule
from penstock.log.api import Entry
from penstock.log.block import DEDUP_HASH_BYTES, Block, DedupHashes
from penstock.log.database import (
    INSERT_BLOCK,
    LOCK_TIMEOUT_MS,
    Database,
    end_of,
    make_embedded,
    sqlite_errors_translated,
    start_of,
)

_REMEMBERED: Final = "SELECT first, records, appended_s, prints_digest, prints FROM remembered"


class PositionRange(NamedTuple):
    """The positions [start, end) that a log holds."""

    start: Lsn
    end: Lsn


class LaterRequest(NamedTuple):
    """A request that is not part of a prefix: with its position, or with its due time if it waits."""

    request_id: RequestId
    body: bytes
    time_us: int
    lsn: Lsn | None
    due_us: int | None


class ProcessedRequest(NamedTuple):
    """A request that a journal has."""

    lsn: int
    request_id: RequestId
    body: bytes
    time_us: int


def begin_at(path: Path, start: Lsn, processed: Iterable[Sequence[ProcessedRequest]]) -> None:
    """Make a log that goes on behind the history of another one: it knows the ids of processed requests, and has no record.

    Args:
        path: The file, which does not exist.
        start: The position of its first record; the positions of the others are smaller.
        processed: The requests whose ids it knows, in groups, in the order of their positions.
    """
    Database(path, LOCK_TIMEOUT_MS).close()
    with _opened(path) as connection:
        (seed,) = connection.execute("SELECT seed FROM position").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        for group in processed:
            for run in _runs(group):
                ids = blocks.id_hashes_of([each.request_id for each in run], seed)
                bodies = blocks.body_hashes_of([each.body for each in run], seed)
                hashes = b"".join(chain.from_iterable(zip(ids, bodies, strict=True)))
                appended_s = min(each.time_us for each in run) // 1_000_000
                row = DedupHashes(run[0].lsn, len(run), appended_s, b"", hashes)
                row = row._replace(digest=blocks.dedup_digest_of(row))
                connection.execute("INSERT INTO remembered VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("UPDATE position SET start = ?", (start,))
        connection.execute("COMMIT")
    with sqlite_errors_translated(path):
        durable.sync(path)


def _runs(group: Sequence[ProcessedRequest]) -> Iterator[list[ProcessedRequest]]:
    """Yield the parts of a group whose positions have no gap."""
    run: list[ProcessedRequest] = []
    for each in group:
        if run and each.lsn != run[-1].lsn + 1:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def copy_log(source: Path, target: Path) -> PositionRange:
    """Copy a log into a new file, durably, and check every record of the copy.

    Writers go on meanwhile, but cannot shorten their write-ahead log. Memory does not grow with
    the log. The new file is an embedded log, also if the source is a host's copy of a log in Kafka.
    """
    if not source.exists():  # opening it would create it
        raise Corrupt(f"{source} is missing; restore it from a backup")
    database = Database(source, LOCK_TIMEOUT_MS)
    try:
        with (
            database.reading() as reading,
            sqlite_errors_translated(target),
            closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing)
    finally:
        database.close()
    with _opened(target, source) as connection:
        make_embedded(connection)
        verify_log(connection, str(source))
        copied = PositionRange(start_of(connection), end_of(connection))
    with sqlite_errors_translated(target):
        durable.sync(target)
    return copied


def verify_log(connection: sqlite3.Connection, file: str) -> None:
    """Check every record, the hashes of every request id, and every scheduled entry.

    Raises:
        Corrupt: A checksum does not fit, or positions are missing; names `file`.
    """
    reach = start_of(connection)
    for block in map(Block._make, connection.execute("SELECT * FROM block ORDER BY first")):
        blocks.verify(block, file)
        blocks.verify_dedup_hashes(block.dedup, file)
        if block.first > reach:
            raise Corrupt(f"{file}: no record at lsn {reach}; restore the file from a backup")
        reach = max(reach, block.end)
    for row in map(DedupHashes._make, connection.execute(_REMEMBERED)):
        blocks.verify_dedup_hashes(row, file)
    schedule.verify(connection, file)


def requests_after(path: Path, end: Lsn, time_us: int) -> Iterator[LaterRequest]:
    """Yield the held requests that `keep_prefix` would remove, in order; scheduled ones come last."""
    with _opened(path) as connection:
        first = max(end, start_of(connection))
        rows = connection.execute(
            "SELECT * FROM block WHERE first + records > ? ORDER BY first", (first,)
        )
        for block in map(Block._make, rows):
            blocks.verify(block, str(path))
            for record in blocks.records_of([block]):
                if record.lsn >= first:
                    yield LaterRequest(
                        record.request_id, record.body, record.time_us, record.lsn, None
                    )
        for _, due_us, entry in schedule.scheduled_entries(connection, str(path)):
            if entry.time_us > time_us:
                yield LaterRequest(entry.request_id, entry.body, entry.time_us, None, due_us)


def keep_prefix(path: Path, end: Lsn, time_us: int) -> None:
    """Remove every record from `end` on, and every entry that was scheduled after a time.

    Args:
        path: The file; no other process has it open.
        end: The first position to remove; the next record will get it.
        time_us: Microseconds since the Unix epoch.

    Raises:
        Corrupt: The log is damaged.
    """
    with _opened(path) as connection:
        if end_of(connection) < end:
            raise Diverged(f"{path} ends at {end_of(connection)}, before {end}")
        connection.execute("BEGIN IMMEDIATE")
        _shorten_blocks(connection, end, str(path))
        _shorten_remembered(connection, end, str(path))
        connection.execute("UPDATE position SET start = min(start, ?)", (end,))
        late = [
            (number,)
            for number, _, entry in schedule.scheduled_entries(connection, str(path))
            if entry.time_us > time_us
        ]
        connection.executemany("DELETE FROM scheduled WHERE number = ?", late)
        connection.execute("COMMIT")
        assert end_of(connection) == end, "the log goes on after its prefix"
    with sqlite_errors_translated(path):
        durable.sync(path)


def _shorten_blocks(connection: sqlite3.Connection, end: Lsn, file: str) -> None:
    """Remove the blocks after a position; pack again the records before it in its own block."""
    row = connection.execute(
        "SELECT * FROM block WHERE first < :end AND first + records > :end", {"end": end}
    ).fetchone()
    connection.execute("DELETE FROM block WHERE first + records > ?", (end,))
    if row is None:
        return
    block = Block._make(row)
    blocks.verify(block, file)
    blocks.verify_dedup_hashes(block.dedup, file)
    count = end - block.first
    records = blocks.records_of([block])[:count]
    hints = blocks.hints_of([block])[:count]
    controls = blocks.controls_of(block.first, block.shape)
    entries = [
        Entry(record.request_id, record.body, touched, record.time_us, record.lsn in controls)
        for record, touched in zip(records, hints, strict=True)
    ]
    step = DEDUP_HASH_BYTES
    hashes = [block.dedup_hashes[at : at + step] for at in range(0, count * step, step)]
    packed = blocks.pack(Lsn(block.first), entries, hashes, block.appended_s)
    connection.executemany(INSERT_BLOCK, packed)


def _shorten_remembered(connection: sqlite3.Connection, end: Lsn, file: str) -> None:
    """Remove the ids of truncated records after a position."""
    query = f"{_REMEMBERED} WHERE first < :end AND first + records > :end"
    row = connection.execute(query, {"end": end}).fetchone()
    connection.execute("DELETE FROM remembered WHERE first + records > ?", (end,))
    if row is None:
        return
    whole = DedupHashes._make(row)
    blocks.verify_dedup_hashes(whole, file)
    count = end - whole.first
    left = whole._replace(records=count, hashes=whole.hashes[: count * DEDUP_HASH_BYTES])
    left = left._replace(digest=blocks.dedup_digest_of(left))
    connection.execute("INSERT INTO remembered VALUES (?, ?, ?, ?, ?)", left)


@contextmanager
def _opened(path: Path, named: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Open a log's file that no other process uses; errors name `named`."""
    with (
        sqlite_errors_translated(named or path),
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA synchronous = FULL")
        yield connection
