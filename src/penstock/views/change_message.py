"""The messages of a change log: rows as JSON in the envelope of Debezium, and their keys.

The values are those of Debezium's connectors with `decimal.handling.mode=string`, `binary.handling.mode=base64` and
`schemas.enable=false`, so that programs that read their topics can read these.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import msgspec

from penstock.views.cells import Cells, Hold, Unheld, held_key
from penstock.views.target import Kind, Row, TableShape

OVERHEAD_BYTES: Final = 512
"""Bytes of a message in the log besides its key and value, at most: frames, and what the broker adds."""

_ENVELOPE_BYTES: Final = 1_536
"""Bytes of an envelope besides its rows, at most: the names of topics, views and tables are short."""

_VERSION: Final = version("penstock")
_INTEGER_MAX: Final = (1 << 63) - 1
_MICROSECOND: Final = timedelta(microseconds=1)
_BEGIN: Final = date(1970, 1, 1).toordinal()
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _text(text: str) -> str:
    if not text.isascii() and _SURROGATE.search(text):
        raise Unheld("it contains half of a surrogate pair, which is no character")
    return text


def _json(text: str) -> str:
    if _ESCAPED.search(text):
        _text(json.dumps(json.loads(text), ensure_ascii=False))
    return text


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> str:
    return "NaN" if value.is_nan() else str(value)


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _date(value: date) -> int:
    return value.toordinal() - _BEGIN


def _time(value: time) -> int:
    if value.tzinfo is not None:
        raise Unheld("it has a zone, and a time of the change log has none")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _instant(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + "Z"


def _duration(value: timedelta) -> int:
    count = value // _MICROSECOND
    if abs(count) > _INTEGER_MAX:
        raise Unheld("its microseconds need more than 64 bits")
    return count


_HOLDS: Final[Mapping[Kind, Hold]] = {
    Kind.TEXT: _text,
    Kind.FLOAT: _float,
    Kind.DECIMAL: _decimal,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _instant,
    Kind.DURATION: _duration,
    Kind.UUID: str,
    Kind.JSON: _json,
}

_encode: Final = msgspec.json.Encoder().encode


class KeyedRow(NamedTuple):
    """A row in its topic.

    Attributes:
        owner: The owner of the row, as JSON.
        key: The key of its messages.
        value: The row as JSON.
    """

    owner: bytes
    key: bytes
    value: bytes


class TooLarge(Exception):
    """The key of a row takes more than a message may have."""


class Source(NamedTuple):
    """The origin of messages: the beginning of the names of the topics, and the view."""

    prefix: str
    view: str


class TableMessages:
    """Turns the rows of one table into keys and values for its topic.

    Args:
        bytes_max: The most bytes of a message; a longer row has NULL for its longest values, with the reason.
    """

    def __init__(self, shape: TableShape, bytes_max: int) -> None:
        self._shape = shape
        self._cells = Cells(shape, _HOLDS)
        self._key, self._names = shape.key, shape.names
        # The envelope of a row without the one before it must fit.
        self._bytes_max = bytes_max - OVERHEAD_BYTES - _ENVELOPE_BYTES

    def owner(self, owner: str | int) -> bytes:
        """Return an owner as it is in `KeyedRow`."""
        return _json_of(held_key(owner))

    def rows(self, rows: Sequence[Row]) -> Iterator[KeyedRow]:
        """Yield the rows.

        Raises:
            TooLarge: A key takes more than a message may have.
        """
        width = self._shape.key_width
        for row in self._cells.held(rows):
            key = _json_of(dict(zip(self._key, row[:width], strict=True)))
            value = _json_of(dict(zip(self._names, row, strict=True)))
            if len(key) + len(value) > self._bytes_max:
                value = self._shortened(key, row)
            yield KeyedRow(_json_of(row[0]), key, value)

    def _shortened(self, key: bytes, row: Row) -> bytes:
        width, values = self._shape.key_width, list(row)
        sizes = [len(_json_of(value)) for value in values]
        reasons: dict[str, str] = json.loads(values[-1]) if values[-1] else {}
        for at in sorted(range(width, len(values) - 1), key=lambda at: -sizes[at]):
            values[at] = None
            reasons[self._names[at]] = (
                f"it takes {sizes[at]} bytes, and a message has at most {self._bytes_max}"
            )
            values[-1] = json.dumps(reasons)
            value = _json_of(dict(zip(self._names, values, strict=True)))
            if len(key) + len(value) <= self._bytes_max:
                return value
        raise TooLarge


class Frame:
    """The common part of the messages of one transaction: all of the envelope but the rows.

    Args:
        source_us: When the epoch was committed, in microseconds since 1970; None if it is not known.
        now_us: The present time.
        is_fill: Whether all rows are sent, and not the changed ones.
    """

    def __init__(
        self, source: Source, epoch: int, source_us: int | None, now_us: int, *, is_fill: bool
    ) -> None:
        self._is_fill = is_fill
        self._source = {
            "version": _VERSION,
            "connector": "penstock",
            "name": source.prefix,
            **_times(source_us),
            "snapshot": "true" if is_fill else "false",
            "db": source.view,
            "sequence": json.dumps([str(epoch)]),
            "epoch": epoch,
        }
        self._now = _times(now_us)
        self._ends: dict[tuple[str, str], bytes] = {}

    def change(
        self,
        table: str,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        bytes_max: int | None = None,
    ) -> bytes:
        """Return the value of the message of a change; without `before` if both rows would be too long.

        Args:
            before: The row before the change as JSON, or its key alone; None: there was none.
            after: The row behind it; None: there is none.
            bytes_max: The most bytes of a message; it counts for a change with both rows.
        """
        if after is None:
            op = "d"
        elif self._is_fill:
            op = "r"
        else:
            op = "c" if before is None else "u"
        end = self._end(table, op)
        if before is not None and after is not None and bytes_max is not None:
            size = len(key) + len(before) + len(after) + len(end)
            before = before if size + OVERHEAD_BYTES <= bytes_max else None
        return b"".join(
            (b'{"before":', before or b"null", b',"after":', after or b"null", b",", end)
        )

    def _end(self, table: str, op: str) -> bytes:
        """Return the envelope behind `before` and `after`; it is made once for each table and kind of change."""
        known = self._ends.get((table, op))
        if known is None:
            source = {**self._source, "table": table}
            rest = {"source": source, "transaction": None, "op": op, **self._now}
            known = self._ends[table, op] = _json_of(rest)[1:]
        return known


def _times(time_us: int | None) -> dict[str, int | None]:
    """Return a time in the units of an envelope."""
    if time_us is None:
        return {"ts_ms": None, "ts_us": None, "ts_ns": None}
    return {"ts_ms": time_us // 1_000, "ts_us": time_us, "ts_ns": time_us * 1_000}


class _Envelope(msgspec.Struct):
    after: msgspec.Raw


_KEY: Final = msgspec.json.Decoder(dict[str, str | int])
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def read_row(key: bytes | None, value: bytes | None) -> tuple[bytes, bytes, bytes | None] | None:
    """Return owner, key and row of a message; the row is None if it is gone. Return None for a message of others."""
    if key is None:
        return None
    try:
        names = _KEY.decode(key)
        after = b"null" if value is None else bytes(_ENVELOPE.decode(value).after)
    except msgspec.MsgspecError:
        return None
    if not names:
        return None
    return _json_of(next(iter(names.values()))), key, None if after == b"null" else after


def _json_of(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a key with half of a surrogate pair; it must stay different
        return json.dumps(value, separators=(",", ":")).encode()
