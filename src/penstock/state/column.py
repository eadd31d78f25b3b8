"""Columns: how an attribute's annotation becomes an SQL type, and its values a column of it.

Promises that no value is lost or rounded, and that building a column costs no Python per cell
where the type allows: nested values are flattened by C loops (`zip`, `chain`), not visited.

| annotation | SQL | remarks |
|---|---|---|
| int | BIGINT | HUGEINT once a value of the class needs it |
| float, bool, str, bytes, date, time | DOUBLE, BOOLEAN, VARCHAR, BLOB, DATE, TIME | |
| datetime | TIMESTAMP WITH TIME ZONE | an instant; one without a zone is taken as UTC |
| timedelta | INTERVAL | VARCHAR (ISO 8601) once a value needs it |
| Decimal | DECIMAL(38,12) | exact; VARCHAR once a value does not fit, as NaN does not |
| UUID | UUID | |
| Enum, Literal | BIGINT or VARCHAR | the value; JSON text where values are of several types |
| a reference | the type of the other's key | |
| list, tuple[T, ...] | T[] | |
| set, frozenset | T[] | sorted where the attribute itself is the set |
| tuple[A, B] | STRUCT(_1 A, _2 B) | |
| dict[K, V] | MAP(K, V) | JSON text where K is no scalar |
| a dataclass | STRUCT | JSON text where it holds itself |
| T or None | T | nullable, as all columns are |
| anything else | VARCHAR | JSON text |

A class of which one value did not fit is *wide*: all its columns have the wider types from then on.
"""

import dataclasses
import enum
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from penstock.base.schema import is_record, reference_type

_encode_json: Final = msgspec.json.Encoder(enc_hook=str).encode


class TooNarrow(Exception):
    """A value does not fit the column's narrow type; the class must become wide."""


class Column(ABC):
    """One column, or a part of one.

    Attributes:
        sql: Its SQL type.
        arrow: What `build` gives.
        wire: What a value is decoded as from MessagePack.
        cast: Whether the SQL type differs from what the Arrow type becomes by itself.
        ordered: Whether its lists are sets, to be sorted as SQL sorts.
    """

    sql: str
    arrow: pa.DataType
    wire: Any
    cast: bool = False
    ordered: bool = False

    @abstractmethod
    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make a column of decoded values.

        Raises:
            TooNarrow: One does not fit, and would fit the wide type.
        """


class Scalar(Column):
    """Values that Arrow takes as they are, or after one function."""

    def __init__(
        self,
        sql: str,
        arrow: pa.DataType,
        wire: Any,
        *,
        cast: bool = False,
        prepare: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    ) -> None:
        self.sql = sql
        self.arrow = arrow
        self.wire = wire | None
        self.cast = cast
        self._prepare = prepare

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        prepared = values if self._prepare is None else self._prepare(values)
        try:
            return pa.array(prepared, self.arrow)
        except (OverflowError, pa.ArrowInvalid) as error:
            raise TooNarrow(str(error)) from error


class Json(Column):
    """Values of no one type, as JSON text; None is NULL."""

    sql = "VARCHAR"
    arrow = pa.string()
    wire = Any

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        return pa.array([None if one is None else json_text(one) for one in values], pa.string())


class Reference(Column):
    """References: their keys' texts, as the other class's key type."""

    def __init__(self, key: Column, annotation: Any) -> None:
        self.sql, self.arrow, self.cast = key.sql, key.arrow, key.cast
        self.wire = str | None
        self._key = key
        self._annotation = None if annotation is str else list[annotation | None]

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        return self._key.build(keys_of(values, self._annotation))


class Lists(Column):
    """Lists, sets and tuples of any length."""

    def __init__(self, item: Column, *, ordered: bool) -> None:
        self.sql = f"{item.sql}[]"
        self.arrow = pa.list_(item.arrow)
        self.wire = list[item.wire] | None  # type: ignore[name-defined]
        self.cast = item.cast
        self.ordered = ordered
        self._item = item

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        flat = list(chain.from_iterable(filter(None, values)))
        offsets, mask = _offsets(values)
        items = self._item.build(flat)
        return pa.ListArray.from_arrays(offsets, items, type=self.arrow, mask=mask)


class Maps(Column):
    """Dictionaries."""

    def __init__(self, key: Column, value: Column) -> None:
        self.sql = f"MAP({key.sql}, {value.sql})"
        self.arrow = pa.map_(key.arrow, value.arrow)
        self.wire = dict[key.wire, value.wire] | None  # type: ignore[name-defined]
        self.cast = key.cast or value.cast
        self._key, self._value = key, value

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        full = list(filter(None, values))
        offsets, mask = _offsets(values)
        keys = self._key.build(list(chain.from_iterable(full)))
        inside = self._value.build(list(chain.from_iterable(one.values() for one in full)))
        return pa.MapArray.from_arrays(offsets, keys, inside, type=self.arrow, mask=mask)


class Structs(Column):
    """Tuples of fixed length, and dataclasses."""

    def __init__(self, fields: Sequence[tuple[str, Column]], *, named: bool) -> None:
        inside = ", ".join(f"{quoted(name)} {column.sql}" for name, column in fields)
        self.sql = f"STRUCT({inside})"
        self._fields = [pa.field(name, column.arrow) for name, column in fields]
        self.arrow = pa.struct(self._fields)
        self.cast = any(column.cast for _, column in fields)
        self._columns = list(fields)
        self._named = named
        row: Any = types.GenericAlias(tuple, tuple(column.wire for _, column in fields))
        self.wire = _record(fields) if named else row | None
        self._nothing = {name: None for name, _ in fields} if named else (None,) * len(fields)

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        absent = [one is None for one in values]
        rows = [self._nothing if one is None else one for one in values]
        if self._named:
            parts = [list(map(itemgetter(name), rows)) for name, _ in self._columns]
        else:
            parts = [list(one) for one in zip(*rows, strict=True)] or [[] for _ in self._columns]
        arrays = [
            column.build(part) for (_, column), part in zip(self._columns, parts, strict=True)
        ]
        mask = pa.array(absent, pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=self._fields, mask=mask)


def column_of(annotation: Any, *, wide: bool, inside: tuple[type, ...] = ()) -> Column:
    """Return the column for an annotation; `inside` names the dataclasses around it."""
    reference = reference_type(annotation)
    if reference is not None:
        key_annotation = reference.key_annotation  # type: ignore[attr-defined]
        return Reference(column_of(key_annotation, wide=wide), key_annotation)
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return _plain(annotation, wide, inside)
    return _nested(annotation, wide, inside)


def keys_of(texts: Sequence[Any], annotation: Any) -> Sequence[Any]:
    """Return the keys with these texts; without an annotation the texts are the keys."""
    if annotation is None:
        return texts
    keys: Sequence[Any] = msgspec.convert(texts, annotation, strict=False)
    return keys


def json_text(value: Any) -> str:
    """Return a value as JSON; NaN is null, bytes are base64."""
    try:
        return _encode_json(value).decode()
    except (TypeError, ValueError):  # a dictionary whose keys JSON does not know
        return _encode_json(str(value)).decode()


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def distinct(names: Sequence[str]) -> list[str]:
    """Return names that differ by more than case, which SQL ignores: `Price` becomes `Price_2`."""
    taken: set[str] = set()
    found: list[str] = []
    for name in names:
        chosen, count = name, 1
        while chosen.casefold() in taken:
            count += 1
            chosen = f"{name}_{count}"
        taken.add(chosen.casefold())
        found.append(chosen)
    return found


def _plain(annotation: type, wide: bool, inside: tuple[type, ...]) -> Column:  # noqa: FBT001 -- passed on
    if annotation in _SCALARS:
        return _SCALARS[annotation](wide)
    if is_record(annotation):
        return _dataclass(annotation, wide, inside)
    if issubclass(annotation, enum.Enum):
        return _choice([one.value for one in annotation], wide)
    return Json()


def _nested(annotation: Any, wide: bool, inside: tuple[type, ...]) -> Column:  # noqa: FBT001 -- passed on
    def column(inner: Any) -> Column:
        return column_of(inner, wide=wide, inside=inside)

    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Literal:
            found = _choice(arguments, wide)
        case typing.Union | types.UnionType:
            members = [one for one in arguments if one is not type(None)]
            found = column(members[0]) if len(members) == 1 else Json()
        case origin if origin in (list, set, frozenset) or arguments[1:] == (Ellipsis,):
            found = Lists(column(arguments[0]), ordered=origin in (set, frozenset))
        case origin if origin is tuple and arguments:
            named = [(f"_{index}", column(one)) for index, one in enumerate(arguments, 1)]
            found = Structs(named, named=False)
        case origin if origin is dict:
            key = column(arguments[0])
            scalar = isinstance(key, Scalar | Reference)
            found = Maps(key, column(arguments[1])) if scalar else Json()
        case _:
            found = Json()
    return found


def _dataclass(annotation: Any, wide: bool, inside: tuple[type, ...]) -> Column:  # noqa: FBT001 -- passed on
    fields = dataclasses.fields(annotation)
    names = [one.name for one in fields]
    if annotation in inside or not fields or distinct(names) != names:
        return Json()
    hints = typing.get_type_hints(annotation)
    inner = (*inside, annotation)
    return Structs(
        [(name, column_of(hints[name], wide=wide, inside=inner)) for name in names], named=True
    )


def _choice(values: Sequence[Any], wide: bool) -> Column:  # noqa: FBT001 -- passed on
    kinds = {type(one) for one in values}
    if len(kinds) == 1 and kinds <= {int, str}:
        return _SCALARS[kinds.pop()](wide)
    return Json()


def _record(fields: Sequence[tuple[str, Column]]) -> Any:
    wires = [(name, column.wire) for name, column in fields]
    return typing.TypedDict("Record", dict(wires)) | None  # type: ignore[operator]


def _offsets(values: Sequence[Any]) -> tuple[pa.Array, pa.Array | None]:
    lengths = [0 if one is None else len(one) for one in values]
    ends = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    absent = [one is None for one in values]
    return pa.array(ends), pa.array(absent, pa.bool_()) if any(absent) else None


def _instants(values: Sequence[Any]) -> Sequence[Any]:
    return [
        one.replace(tzinfo=UTC) if one is not None and one.tzinfo is None else one for one in values
    ]


def _texts(values: Sequence[Any]) -> Sequence[Any]:
    return [None if one is None else str(one) for one in values]


def _durations(values: Sequence[Any]) -> Sequence[Any]:
    return [None if one is None else str(msgspec.to_builtins(one)) for one in values]


def _integer(wide: bool) -> Column:  # noqa: FBT001 -- passed on
    if wide:
        return Scalar("HUGEINT", pa.decimal128(38, 0), int, cast=True)
    return Scalar("BIGINT", pa.int64(), int)


def _exact(wide: bool) -> Column:  # noqa: FBT001 -- passed on
    if wide:
        return Scalar("VARCHAR", pa.string(), Decimal, prepare=_texts)
    return Scalar("DECIMAL(38,12)", pa.decimal128(38, 12), Decimal)


def _duration(wide: bool) -> Column:  # noqa: FBT001 -- passed on
    if wide:
        return Scalar("VARCHAR", pa.string(), timedelta, prepare=_durations)
    return Scalar("INTERVAL", pa.duration("us"), timedelta)


def _always(*arguments: Any, **options: Any) -> Callable[[bool], Column]:
    return lambda _wide: Scalar(*arguments, **options)


_SCALARS: Final[dict[type, Callable[[bool], Column]]] = {
    int: _integer,
    Decimal: _exact,
    timedelta: _duration,
    float: _always("DOUBLE", pa.float64(), float),
    bool: _always("BOOLEAN", pa.bool_(), bool),
    str: _always("VARCHAR", pa.string(), str),
    bytes: _always("BLOB", pa.binary(), bytes),
    date: _always("DATE", pa.date32(), date),
    time: _always("TIME", pa.time64("us"), time),
    datetime: _always(
        "TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC"), datetime, prepare=_instants
    ),
    UUID: _always("UUID", pa.string(), str, cast=True, prepare=_texts),
}
