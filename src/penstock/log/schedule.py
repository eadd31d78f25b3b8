"""The schedule: entries that wait in the log's file until they are due.

An entry is returned as it was stored, or its damage is named. Entries that are due come in the order
of their due times, and entries with equal due times in the order of arrival. The caller supplies the
transaction, and appends the entries that are due.
"""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import xxhash

from penstock.base.ids import RequestId
from penstock.errors import Corrupt
from penstock.log.api import PROMOTED_MAX, Entry

PROMOTED_BYTES: Final = 16_777_216
"""One transaction takes no further entry once it holds this many encoded bytes."""

SCHEMA: Final = """
CREATE TABLE scheduled (
    number INTEGER PRIMARY KEY AUTOINCREMENT, due_us INTEGER NOT NULL,
    mark BLOB NOT NULL UNIQUE, digest BLOB NOT NULL, data BLOB NOT NULL
);
CREATE INDEX scheduled_by_due ON scheduled (due_us, number);
"""

_PARAMETERS_MAX: Final = 500
_SELECT: Final = "SELECT number, due_us, mark, digest, data FROM scheduled"
_INSERT: Final = "INSERT INTO scheduled (due_us, mark, digest, data) VALUES (?, ?, ?, ?)"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Entry)


class ScheduledEntry(NamedTuple):
    """An entry that waits, with the hash of its request id."""

    due_us: int
    id_hash: bytes
    entry: Entry


class ScheduleRow(NamedTuple):
    """One row of the table."""

    number: int
    due_us: int
    id_hash: bytes
    digest: bytes
    data: bytes


def find(
    connection: sqlite3.Connection, id_hashes: Sequence[bytes], file: str
) -> dict[bytes, ScheduledEntry]:
    """Return the scheduled entries with some of these id hashes."""
    (any_scheduled,) = connection.execute("SELECT EXISTS (SELECT 1 FROM scheduled)").fetchone()
    entries: dict[bytes, ScheduledEntry] = {}
    if not any_scheduled:
        return entries
    for first in range(0, len(id_hashes), _PARAMETERS_MAX):
        wanted = id_hashes[first : first + _PARAMETERS_MAX]
        places = ", ".join("?" * len(wanted))
        rows = connection.execute(f"{_SELECT} WHERE mark IN ({places})", wanted)
        entries.update((row.id_hash, _decoded(row, file)) for row in map(ScheduleRow._make, rows))
    return entries


def upcoming(connection: sqlite3.Connection, count_max: int, file: str) -> list[tuple[int, Entry]]:
    """Return the due times and entries that are due next, in the order of `take_due`."""
    rows = connection.execute(f"{_SELECT} ORDER BY due_us, number LIMIT ?", (count_max,))
    scheduled = [_decoded(row, file) for row in map(ScheduleRow._make, rows)]
    return [(row.due_us, row.entry) for row in scheduled]


def ids(
    connection: sqlite3.Connection, beginning: str, count_max: int, file: str
) -> list[RequestId]:
    """Return the ids of entries that begin with a text, sorted; one entry at a time is in memory."""
    entries = (entry.request_id for _, _, entry in scheduled_entries(connection, file))
    return heapq.nsmallest(count_max, (name for name in entries if name.startswith(beginning)))


def is_due(connection: sqlite3.Connection, now_us: int) -> bool:
    """Say whether an entry is due."""
    (due,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM scheduled WHERE due_us <= ?)", (now_us,)
    ).fetchone()
    return bool(due)


def add(connection: sqlite3.Connection, entries: Iterable[ScheduledEntry]) -> None:
    """Schedule entries."""
    connection.executemany(_INSERT, map(_encoded, entries))


def take_due(connection: sqlite3.Connection, now_us: int, file: str) -> list[ScheduledEntry]:
    """Remove the entries that are due, up to the size of one transaction; return them in order."""
    rows = connection.execute(
        f"{_SELECT} WHERE due_us <= ? ORDER BY due_us, number LIMIT ?", (now_us, PROMOTED_MAX)
    )
    taken: list[ScheduleRow] = []
    size = 0
    for row in map(ScheduleRow._make, rows):
        taken.append(row)
        size += len(row.data)
        if size >= PROMOTED_BYTES:
            break
    rows.close()
    connection.executemany(
        "DELETE FROM scheduled WHERE number = ?", [(row.number,) for row in taken]
    )
    return [_decoded(row, file) for row in taken]


def take(connection: sqlite3.Connection, id_hash: bytes, file: str) -> list[ScheduledEntry]:
    """Remove the entry with an id hash, and return it; an empty list without any."""
    taken = list(find(connection, [id_hash], file).values())
    connection.execute("DELETE FROM scheduled WHERE mark = ?", (id_hash,))
    return taken


def scheduled_entries(
    connection: sqlite3.Connection, file: str
) -> Iterator[tuple[int, int, Entry]]:
    """Yield all scheduled entries in order of arrival: number, due time, entry."""
    for row in map(ScheduleRow._make, connection.execute(f"{_SELECT} ORDER BY number")):
        yield row.number, row.due_us, _decoded(row, file).entry


def verify(connection: sqlite3.Connection, file: str) -> None:
    """Check every scheduled entry; raises as `scheduled_entries`."""
    for _ in scheduled_entries(connection, file):
        pass


def _encoded(scheduled: ScheduledEntry) -> tuple[int, bytes, bytes, bytes]:
    due_us, id_hash, entry = scheduled
    data = _ENCODER.encode(entry)
    return due_us, id_hash, _digest_of(due_us, id_hash, data), data


def _decoded(row: ScheduleRow, file: str) -> ScheduledEntry:
    if _digest_of(row.due_us, row.id_hash, row.data) != row.digest:
        raise Corrupt(
            f"{file}: checksum does not fit in scheduled request number {row.number}; "
            "restore the file from a backup"
        )
    return ScheduledEntry(row.due_us, row.id_hash, _DECODER.decode(row.data))


def _digest_of(due_us: int, id_hash: bytes, data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(_ENCODER.encode((due_us, id_hash)) + data)
