"""Annotations: the column of SQL for the values of each annotation.

| annotation | SQL | remarks |
|---|---|---|
| int | BIGINT | HUGEINT once a value of the class needs it |
| float, bool, str, bytes, date, time | DOUBLE, BOOLEAN, VARCHAR, BLOB, DATE, TIME | |
| datetime | TIMESTAMP WITH TIME ZONE | an instant |
| timedelta | INTERVAL | NULL beyond 292 years |
| Decimal | DECIMAL(38,12) | exact, or rounded to 12 places; NULL if it does not fit, as `Infinity` does not |
| UUID | UUID | |
| Enum, Literal | BIGINT or VARCHAR | the value; JSON text where values are of several types |
| a reference | the type of the other's key | |
| list, deque, tuple[T, ...] | T[] | |
| set, frozenset | T[] | sorted where the attribute itself is the set |
| tuple[A, B] | STRUCT(_1 A, _2 B) | |
| dict[K, V] | MAP(K, V) | K is a scalar or a reference |
| any other dict[K, V] | STRUCT(key K, value V)[] | K may be None, or has parts |
| a dataclass, NamedTuple, TypedDict, Struct or pydantic model | STRUCT | JSON text where it holds itself, or has thousands of parts |
| T or None | T | nullable, as all columns are |
| anything else, or deeper than 10 levels | VARCHAR | JSON text |

While a value of a class does not fit, the class is *wide*: integers have the wider type, and the rows give the
reason for each value that is NULL or rounded (`snapshots.table`). So a number is a number whatever the others are.
Only keys, which must stay different, are texts then: those of type Decimal and timedelta.
"""

import enum
import types
import typing
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from penstock.base.decimals import DECIMAL_PLACES
from penstock.base.record import RecordKind, fields_of, is_record, kind_of
from penstock.base.schema import reference_type
from penstock.snapshots.column import (
    Column,
    DecimalText,
    Interval,
    Json,
    Lists,
    Maps,
    Pairs,
    Reference,
    Scalar,
    Structs,
    distinct,
)
from penstock.snapshots.text import duration_text, rounded_decimals

LONGEST: Final = 10_000
"""Characters of a record's type; records that contain each other make it grow fast."""

DEEPEST: Final = 10
"""Levels of lists, dictionaries, tuples and records that have types; Arrow ends at 64."""


class Width(IntEnum):
    """What the columns of a class have to show.

    NARROW: values that fit. WIDE: integers of any size. ROUNDING: decimals of any number of places, too. KEYS: values
    of any size, which stay different.
    """

    NARROW = 0
    WIDE = 1
    ROUNDING = 2
    KEYS = 3


def column_of(annotation: Any, *, wide: int, inside: tuple[Any, ...] = ()) -> Column:
    """Return the column for an annotation; `inside` has the annotations around it."""
    reference = reference_type(annotation)
    if reference is not None:
        key_annotation = reference.key_annotation  # type: ignore[attr-defined]
        width = Width.KEYS if wide else Width.NARROW
        return Reference(column_of(key_annotation, wide=width), key_annotation)
    if is_record(annotation):
        return _record(annotation, wide, inside)
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return _plain(annotation, wide)
    return _nested(annotation, wide, inside)


def _plain(annotation: type, wide: int) -> Column:
    if annotation in _SCALARS:
        return _SCALARS[annotation](wide)
    if issubclass(annotation, enum.Enum):
        return _choice([member.value for member in annotation], wide)
    return Json()


def _nested(annotation: Any, wide: int, inside: tuple[Any, ...]) -> Column:
    def column(inner: Any) -> Column:
        return column_of(inner, wide=wide, inside=(*inside, annotation))

    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if len(inside) >= DEEPEST and origin is not typing.Literal:
        return Json()
    match origin:
        case typing.Literal:
            column_type = _choice(arguments, wide)
        case typing.Union | types.UnionType:
            members = [argument for argument in arguments if argument is not type(None)]
            alone = len(members) == 1
            column_type = column_of(members[0], wide=wide, inside=inside) if alone else Json()
        case _ if origin in (list, deque, set, frozenset) or arguments[1:] == (Ellipsis,):
            column_type = Lists(column(arguments[0]), ordered=origin in (set, frozenset))
        case _ if origin is tuple and arguments:
            named = [(f"_{index}", column(argument)) for index, argument in enumerate(arguments, 1)]
            column_type = Structs(named, named=False)
        case _ if origin is dict:
            key, value = column(arguments[0]), column(arguments[1])
            plain = isinstance(key, Scalar | Reference) and not _may_be_none(arguments[0])
            column_type = Maps(key, value) if plain else Pairs(key, value)
        case _:
            column_type = Json()
    return column_type


def _record(annotation: Any, wide: int, inside: tuple[Any, ...]) -> Column:
    fields = fields_of(annotation) if annotation not in inside else []
    names = [field.member.wire for field in fields]
    if not fields or distinct(names) != names or len(inside) >= DEEPEST:
        return Json()
    if any(field.member.is_optional and _may_be_none(field.annotation) for field in fields):
        return Json()  # a column would show a missing key like None
    inner = (*inside, annotation)
    columns = [
        (field.member.wire, column_of(field.annotation, wide=wide, inside=inner))
        for field in fields
    ]
    in_a_row = kind_of(annotation) is RecordKind.NAMED_TUPLE
    structs = Structs(columns, named=not in_a_row)
    return structs if len(structs.sql) <= LONGEST else Json()


def _choice(values: Sequence[Any], wide: int) -> Column:
    value_types = {type(value) for value in values if value is not None}
    if len(value_types) == 1 and value_types <= {int, str}:
        return _SCALARS[value_types.pop()](wide)
    return Json()


def _may_be_none(annotation: Any) -> bool:
    """Say whether a dictionary's key of this type can be None."""
    arguments = typing.get_args(annotation)
    return annotation is type(None) or type(None) in arguments or None in arguments


def _instants(values: Sequence[Any]) -> Sequence[Any]:
    return [
        instant.replace(tzinfo=UTC) if instant is not None and instant.tzinfo is None else instant
        for instant in values
    ]


def _texts(text: Callable[[Any], str]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    return lambda values: [None if value is None else text(value) for value in values]


def _integer(wide: int) -> Column:
    if wide:
        return Scalar("HUGEINT", pa.decimal128(38, 0), int, cast=True)
    return Scalar("BIGINT", pa.int64(), int)


def _exact(wide: int) -> Column:
    if wide == Width.KEYS:
        return DecimalText()
    prepare = rounded_decimals if wide == Width.ROUNDING else None
    arrow = pa.decimal128(38, DECIMAL_PLACES)
    return Scalar(f"DECIMAL(38,{DECIMAL_PLACES})", arrow, Decimal, prepare=prepare)


def _duration(wide: int) -> Column:
    if wide == Width.KEYS:
        return Scalar("VARCHAR", pa.string(), timedelta, prepare=_texts(duration_text))
    return Interval()


def _always(*arguments: Any, **options: Any) -> Callable[[int], Column]:
    return lambda _wide: Scalar(*arguments, **options)


_SCALARS: Final[dict[type, Callable[[int], Column]]] = {
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
    UUID: _always("UUID", pa.string(), str, cast=True, prepare=_texts(str)),
}
