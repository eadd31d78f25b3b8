"""Values of SQL: a result's JSON as Python values, by the SQL types of its columns.

| SQL | Python |
|---|---|
| whole numbers, DOUBLE | `int`, `float` |
| DECIMAL | `Decimal` |
| DATE, TIME, TIMESTAMP | `date`, `time`, `datetime` |
| TIMESTAMP WITH TIME ZONE | `datetime` in UTC |
| INTERVAL | `timedelta`; text in ISO 8601 if it has months, whose length is not fixed |
| BLOB, UUID | `bytes`, `UUID` |
| T[] | `list` |
| STRUCT | `dict` by name; `tuple` if the names are `_1`, `_2` and so on, as of a stored tuple |
| TUPLE | `tuple` |
| MAP | `dict`; a list of pairs if a key is a list or a struct |
| any other type | the value of JSON, such as `str` and `bool` |
"""

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from penstock.errors import OperationalError

Convert = Callable[[Any], Any]
"""Converts a value of JSON, which is not null."""

_WORDS: Final = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|\w+|[(),\[\]]""")
_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
_WRONG: Final = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


def typed_rows(types: Iterable[str], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with Python values.

    Args:
        types: The SQL type of each column.
        rows: The rows, with values of JSON.

    Returns:
        The rows, in the same order.

    Raises:
        OperationalError: A value does not have its type.
    """
    try:
        converts = [_SqlType(text).convert() for text in types]
        if not rows or not any(converts):
            return rows
        columns = zip(*rows, strict=True)
        return list(zip(*map(_all, converts, columns), strict=True))
    except _WRONG as error:
        raise OperationalError(f"the result of the query cannot be read: {error}") from error


def _all(convert: Convert | None, values: Iterable[Any]) -> Iterable[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


class _SqlType:
    """Reads the text of a type, such as `MAP(VARCHAR, DECIMAL(38,12))[]`, from left to right."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = [*_WORDS.findall(text), ""]
        self._at = 0

    def convert(self) -> Convert | None:
        """Read one type, and return the conversion of its values; None if they need none."""
        name = self._next()
        while self._words[self._at] not in "(),[]":  # TIMESTAMP WITH TIME ZONE
            name = f"{name} {self._next()}"
        convert = _SCALARS.get(name)
        if self._take("("):
            match name:
                case "STRUCT":
                    convert = self._struct()
                case "TUPLE":
                    convert = self._tuple()
                case "MAP":
                    convert = self._map()
                case _:
                    self._skip()
        while self._take("["):
            self._skip()
            convert = _list(convert)
        return convert

    def _struct(self) -> Convert | None:
        converts: dict[str, Convert | None] = {}
        while not self._take(")"):
            name = self._next()
            if name.startswith('"'):
                name = name[1:-1].replace('""', '"')
            converts[name] = self.convert()
            self._take(",")
        if list(converts) == [f"_{number}" for number in range(1, len(converts) + 1)]:
            return _tuple(list(converts.values()))
        return _struct({name: convert for name, convert in converts.items() if convert is not None})

    def _tuple(self) -> Convert:
        converts: list[Convert | None] = []
        while not self._take(")"):
            converts.append(self.convert())
            self._take(",")
        return _tuple(converts)

    def _map(self) -> Convert:
        key, _, item = self.convert(), self._take(","), self.convert()
        self._skip()
        return _map(key, item)

    def _skip(self) -> None:
        """Go behind the bracket that closes the last bracket."""
        depth = 1
        while depth:
            word = self._next()
            depth += (word in ("(", "[")) - (word in (")", "]"))

    def _take(self, word: str) -> bool:
        """Go behind a word if it is the next one."""
        is_next = self._words[self._at] == word
        self._at += is_next
        return is_next

    def _next(self) -> str:
        word = self._words[self._at]
        if not word:
            raise ValueError(f"a type ends early: {' '.join(self._words)}")
        self._at += 1
        return word


def _interval(text: str) -> timedelta | str:
    """Return an interval as a duration; as text if it has months or is too long for Python."""
    parts = _INTERVAL.fullmatch(text)
    if parts is None:
        return text
    days, hours, minutes = (int(part or 0) for part in parts.groups()[:3])
    microseconds = int(Decimal(parts[4] or 0) * 1_000_000)
    try:
        return timedelta(days, 0, microseconds, 0, minutes, hours)
    except OverflowError:
        return text


def _list(inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    return lambda values: [None if value is None else inner(value) for value in values]


def _tuple(converts: Sequence[Convert | None]) -> Convert:
    def convert(value: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(
            inner(item) if inner and item is not None else item
            for inner, item in zip(converts, value.values(), strict=True)
        )

    return convert


def _struct(converts: dict[str, Convert]) -> Convert | None:
    if not converts:
        return None

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: converts[name](item) if name in converts and item is not None else item
            for name, item in value.items()
        }

    return convert


def _map(key: Convert | None, inner: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        pairs = [
            (key(name) if key else name, inner(item) if inner and item is not None else item)
            for name, item in (value.items() if isinstance(value, dict) else value)
        ]
        if any(isinstance(name, list | dict) for name, _ in pairs):
            return pairs
        return dict(pairs)

    return convert


_SCALARS: Final[dict[str, Convert]] = {
    **dict.fromkeys(("BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"), int),
    **dict.fromkeys(("DOUBLE", "FLOAT"), float),
    "DECIMAL": Decimal,
    "DATE": date.fromisoformat,
    **dict.fromkeys(("TIME", "TIME WITH TIME ZONE", "TIME_NS"), time.fromisoformat),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
        datetime.fromisoformat,
    ),
    "INTERVAL": _interval,
    "BLOB": base64.b64decode,
    "UUID": UUID,
}
