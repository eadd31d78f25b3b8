"""The schedule: entries that wait in the log's file until they are due.

It promises that an entry is given back as it was put in, or that its damage is named, and that
those which are due come in the order of their due times, of equal ones in the order of arrival.
Whose transaction it is, and what becomes of an entry that is due, is left to others.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import xxhash

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

_ASKED_MAX: Final = 500
_SELECT: Final = "SELECT number, due_us, mark, digest, data FROM scheduled"
_INSERT: Final = "INSERT INTO scheduled (due_us, mark, digest, data) VALUES (?, ?, ?, ?)"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Entry)


class ScheduledEntry(NamedTuple):
    """An entry that waits; `mark` is the hash of its request id."""

    due_us: int
    mark: bytes
    entry: Entry


class ScheduleRow(NamedTuple):
    """One row of the table."""

    number: int
    due_us: int
    mark: bytes
    digest: bytes
    data: bytes


def find(
    connection: sqlite3.Connection, marks: Sequence[bytes], file: str
) -> dict[bytes, ScheduledEntry]:
    """Return those of some marks that wait.

    Raises:
        Corrupt: What was found is damaged.
    """
    found: dict[bytes, ScheduledEntry] = {}
    if not holds_any(connection):
        return found
    for some in _parts(marks):
        places = ", ".join("?" * len(some))
        rows = connection.execute(f"{_SELECT} WHERE mark IN ({places})", some)
        found.update((row.mark, _opened(row, file)) for row in map(ScheduleRow._make, rows))
    return found


def holds_any(connection: sqlite3.Connection) -> bool:
    """Say whether anything waits."""
    (found,) = connection.execute("SELECT EXISTS (SELECT 1 FROM scheduled)").fetchone()
    return bool(found)


def is_due(connection: sqlite3.Connection, now_us: int) -> bool:
    """Say whether anything is due."""
    (found,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM scheduled WHERE due_us <= ?)", (now_us,)
    ).fetchone()
    return bool(found)


def add(connection: sqlite3.Connection, several: Iterable[ScheduledEntry]) -> None:
    """Let entries wait."""
    connection.executemany(_INSERT, map(_closed, several))


def take_due(connection: sqlite3.Connection, now_us: int, file: str) -> list[ScheduledEntry]:
    """Remove what is due, as much as one transaction should hold, and return it in order.

    Raises:
        Corrupt: An entry that is due is damaged.
    """
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
    return [_opened(row, file) for row in taken]


def verify_schedule(connection: sqlite3.Connection, file: str) -> None:
    """Read all that waits, so that damage which would silence an entry is found.

    Raises:
        Corrupt: An entry is damaged.
    """
    for _ in scheduled_entries(connection, file):
        pass


def scheduled_entries(
    connection: sqlite3.Connection, file: str
) -> Iterator[tuple[int, int, Entry]]:
    """Yield all that waits, in order of arrival: number, due time, entry.

    Raises:
        Corrupt: An entry is damaged.
    """
    for row in map(ScheduleRow._make, connection.execute(f"{_SELECT} ORDER BY number")):
        yield row.number, row.due_us, _opened(row, file).entry


def _closed(one: ScheduledEntry) -> tuple[int, bytes, bytes, bytes]:
    data = _ENCODER.encode(one.entry)
    return one.due_us, one.mark, _digest_of(one.due_us, one.mark, data), data


def _opened(row: ScheduleRow, file: str) -> ScheduledEntry:
    if _digest_of(row.due_us, row.mark, row.data) != row.digest:
        raise Corrupt(
            f"{file}: checksum does not fit in scheduled request number {row.number}; "
            "restore the file from a backup"
        )
    return ScheduledEntry(row.due_us, row.mark, _DECODER.decode(row.data))


def _digest_of(due_us: int, mark: bytes, data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(_ENCODER.encode((due_us, mark)) + data)


def _parts(marks: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(marks), _ASKED_MAX):
        yield marks[first : first + _ASKED_MAX]
