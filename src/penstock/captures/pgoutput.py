"""The messages of PostgreSQL's logical replication: `pgoutput`, protocol version 1 (PostgreSQL, chapter 55.9).

Pure: it reads no socket. Values are the texts of PostgreSQL, as bytes; `UNCHANGED` stands for a long value that an update
did not touch, which the server does not send.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

UNCHANGED: Final[Any] = object()
"""In place of a value that was stored apart from its row (TOAST) and has not changed."""

Values: TypeAlias = list[bytes | None]
"""The values of a row, in the order of its columns; one of them may be `UNCHANGED`."""

EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL counts time from 2000-01-01; in microseconds since the Unix epoch."""


class Begin(NamedTuple):
    """A transaction begins.

    Attributes:
        commit_lsn: The position of its commit.
        time_us: The time of its commit, in microseconds since the Unix epoch.
    """

    commit_lsn: int
    time_us: int


class Commit(NamedTuple):
    """A transaction ends; the log goes on at `end_lsn`."""

    end_lsn: int


class ColumnOf(NamedTuple):
    """A column of a relation.

    Attributes:
        type_oid: The number of its type.
        is_key: Whether it is part of the replica identity.
    """

    name: str
    type_oid: int
    is_key: bool


class Relation(NamedTuple):
    """The columns of a table, as the following rows have them.

    Attributes:
        oid: The number of the table in the messages.
        identity: `d` (primary key), `f` (whole row), `i` (an index) or `n` (nothing).
    """

    oid: int
    table: str
    identity: str
    columns: tuple[ColumnOf, ...]


class RowChange(NamedTuple):
    """A row is new, has changed or is gone.

    Attributes:
        letter: `I`, `U` or `D`.
        key: The former values of the replica identity alone, others None; None if they are not sent.
        old: The whole former row; None if it is not sent.
        new: The row; None if it is gone.
        size: The bytes of the message.
    """

    letter: str
    oid: int
    key: Values | None
    old: Values | None
    new: Values | None
    size: int


class Truncated(NamedTuple):
    """All rows of tables are gone."""

    oids: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | RowChange | Truncated

_BEGIN: Final = struct.Struct("!qq")
_COMMIT: Final = struct.Struct("!Bqqq")
_COUNT: Final = struct.Struct("!H")
_NUMBER: Final = struct.Struct("!I")


def message_in(data: bytes) -> Message | None:
    """Return the message in a payload; None for one that changes nothing, such as the name of a type.

    Raises:
        ValueError: The payload is not of this protocol.
    """
    read = _READERS.get(data[:1])
    if read is None:
        if data[:1] in _IGNORED:
            return None
        raise ValueError(f"a message of the unknown kind {data[:1]!r}")
    try:
        return read(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a message that ends too early: {error}") from error


def _begin(data: bytes) -> Begin:
    lsn, time_us = _BEGIN.unpack_from(data, 1)
    return Begin(lsn, time_us + EPOCH_US)


def _commit(data: bytes) -> Commit:
    return Commit(_COMMIT.unpack_from(data, 1)[2])


def _relation(data: bytes) -> Relation:
    (oid,) = _NUMBER.unpack_from(data, 1)
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns: list[ColumnOf] = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        name, at = _text(data, at + 1)
        (type_oid,) = _NUMBER.unpack_from(data, at)
        at += 8
        columns.append(ColumnOf(name, type_oid, is_key))
    # An empty name stands for pg_catalog.
    return Relation(oid, f"{schema or 'pg_catalog'}.{table}", identity, tuple(columns))


def _row_change(data: bytes) -> RowChange:
    letter = chr(data[0])
    (oid,) = _NUMBER.unpack_from(data, 1)
    key = old = new = None
    at, end = 5, len(data)
    while at < end:
        which = data[at]
        values, at = _values(data, at + 1)
        if which == _KEY:
            key = values
        elif which == _OLD:
            old = values
        else:
            new = values
    return RowChange(letter, oid, key, old, new, end)


_KEY: Final = ord("K")
_OLD: Final = ord("O")


def _values(data: bytes, at: int) -> tuple[Values, int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: Values = []
    append, number_at = values.append, _NUMBER.unpack_from  # each cell of the database comes here
    for _ in range(count):
        form = data[at]
        if form == _TEXT:
            start = at + 5
            at = start + number_at(data, at + 1)[0]
            append(data[start:at])
        else:
            at += 1
            append(None if form == _NULL else UNCHANGED)
    return values, at


_TEXT: Final = ord("t")
_NULL: Final = ord("n")


def _truncated(data: bytes) -> Truncated:
    (count,) = _NUMBER.unpack_from(data, 1)
    return Truncated(struct.unpack_from(f"!{count}I", data, 6))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


_READERS: Final[dict[bytes, Callable[[bytes], Message]]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"I": _row_change,
    b"U": _row_change,
    b"D": _row_change,
    b"T": _truncated,
}
_IGNORED: Final = frozenset({b"Y", b"O", b"M"})
"""The name of a type, the origin of a transaction, and messages of programs."""
