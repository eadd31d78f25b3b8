"""Columns: the conversion of values of a type into a column of SQL and of Arrow.

No value is lost or rounded, and a value that SQL cannot hold is refused. Where the type allows,
building a column costs no Python code per cell: nested values are flattened by C loops (`zip`,
`chain`). `table` chooses the column of an annotation.
"""

import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.decimals import DECIMAL_PLACES
from penstock.base.key_text import key_parts, wire_key_type
from penstock.base.schema import reference_type
from penstock.snapshots.text import decimal_text, exact_json

_HOLDS: Final = {
    f"DECIMAL(38,{DECIMAL_PLACES})": f", which has at most {38 - DECIMAL_PLACES} digits before the point and no infinity",
    "INTERVAL": ", which holds less than 292 years",
}
"""The values that a column of a type holds, by the type in SQL."""

_SHOWN_MAX: Final = 60
_INTERVAL_MAX_US: Final = (2**63 - 1) // 1_000
"""Intervals leave SQL in nanoseconds."""


class TooNarrow(Exception):
    """A value does not fit the column's type; a class with narrow columns must become wide.

    Args:
        reason: The text, or a function that returns it: the text of most errors is never read, and takes a search.
    """

    def __init__(self, reason: str | Callable[[], str]) -> None:
        super().__init__()
        self._reason = reason

    def __str__(self) -> str:
        return self._reason if isinstance(self._reason, str) else self._reason()


class Column(ABC):
    """One column, or a part of one.

    Attributes:
        arrow: The Arrow type of `build`.
        wire: The Python type that a value is decoded as from MessagePack.
        cast: Whether SQL must convert the Arrow type to the SQL type.
        ordered: Whether its lists are sets, which SQL must sort.
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
            TooNarrow: A value does not fit, and would fit the wide type.
        """

    def widened(self, value: str) -> str:
        """Return the SQL expression of a value of this type; `value` is an expression of the narrow type."""
        return f"CAST({value} AS {self.sql})"

    @property
    def is_cast(self) -> bool:
        """Whether SQL's own conversion widens the values."""
        return self.widened("") == f"CAST( AS {self.sql})"


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
            raise TooNarrow(lambda: self._misfit(prepared)) from error

    def _misfit(self, values: Sequence[Any]) -> str:
        """Say which of values that Arrow refuses is the first that does not fit, and what the column holds."""
        while len(values) > 1:
            half = values[: len(values) // 2]
            try:
                pa.array(half, self.arrow)
            except (OverflowError, pa.ArrowInvalid):
                values = half
            else:
                values = values[len(half) :]
        return f"{_short(values[0])} does not fit {self.sql}{_HOLDS.get(self.sql, '')}"


class DecimalText(Scalar):
    """Decimals of which some do not fit a DECIMAL."""

    def __init__(self) -> None:
        super().__init__("VARCHAR", pa.string(), Decimal, prepare=_decimal_texts)

    def widened(self, value: str) -> str:
        """Return the text without zeros at the end of its places, as `decimal_text` writes it."""
        return rf"regexp_replace(CAST({value} AS VARCHAR), '\.?0+$', '')"


class Interval(Scalar):
    """Durations."""

    def __init__(self) -> None:
        super().__init__("INTERVAL", pa.duration("us"), timedelta)

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        array = super().build(values)
        least, most = pc.min_max(array.cast(pa.int64())).as_py().values()
        if least is not None and max(-least, most) > _INTERVAL_MAX_US:
            longest = timedelta(microseconds=least if -least > most else most)
            raise TooNarrow(f"{longest} does not fit {self.sql}{_HOLDS[self.sql]}")
        return array


class Json(Column):
    """Values of several types, as JSON text; None is NULL."""

    sql = "VARCHAR"
    arrow = pa.string()
    wire = Any

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        return pa.array(
            [None if value is None else exact_json(value) for value in values], pa.string()
        )


class Reasons(Column):
    """The reasons why attributes of a row with values are NULL, as JSON text; usually NULL."""

    sql = "VARCHAR"
    arrow = pa.string()

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        return pa.array([exact_json(value) if value else None for value in values], pa.string())


class Reference(Column):
    """References: their keys' texts, as the other class's key type.

    Attributes:
        key: The column of the keys.
        keys: Turns texts of keys into keys.
    """

    def __init__(self, key: Column, annotation: Any) -> None:
        self.sql, self.arrow, self.cast = key.sql, key.arrow, key.cast
        self.wire = str | None
        self.key = key
        self.keys = key_reader(annotation)

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        return self.key.build(self.keys(values))


class Lists(Column):
    """Lists, sets and tuples of any length."""

    def __init__(self, item: Column, *, ordered: bool) -> None:
        self.sql = f"{item.sql}[]"
        self.arrow = pa.list_(item.arrow)
        self.wire = tuple[item.wire, ...] | None  # type: ignore[name-defined]
        self.cast = item.cast
        self.ordered = ordered
        self._item = item

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        flat = list(chain.from_iterable(filter(None, values)))
        offsets, mask = _offsets(values)
        items = self._item.build(flat)
        return pa.ListArray.from_arrays(offsets, items, type=self.arrow, mask=mask)

    def widened(self, value: str) -> str:
        """Widen each item."""
        if self._item.is_cast:
            return super().widened(value)
        return f"list_transform({value}, lambda item: {self._item.widened('item')})"


class Maps(Column):
    """Dictionaries whose keys are never None, and equal in SQL if and only if in Python."""

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
        if _may_coincide(self._key.arrow) and _coincide(keys, full):
            raise TooNarrow("two keys of the dictionary are the same in SQL")
        inside = self._value.build(list(chain.from_iterable(mapping.values() for mapping in full)))
        return pa.MapArray.from_arrays(offsets, keys, inside, type=self.arrow, mask=mask)

    def widened(self, value: str) -> str:
        """Widen each key and each value."""
        if self._key.is_cast and self._value.is_cast:
            return super().widened(value)
        key, inside = self._key.widened("entry.key"), self._value.widened("entry.value")
        pairs = f"list_transform(map_entries({value}), lambda entry: {{'key': {key}, 'value': {inside}}})"
        return f"map_from_entries({pairs})"


class Pairs(Lists):
    """Other dictionaries: lists of keys and values."""

    def __init__(self, key: Column, value: Column) -> None:
        super().__init__(Structs([("key", key), ("value", value)], named=False), ordered=False)
        self.wire = dict[key.wire, value.wire] | None  # type: ignore[name-defined]

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        return super().build([None if value is None else value.items() for value in values])


class Structs(Column):
    """Tuples of fixed length, and records; `named` fields are stored as a map, others as an array."""

    def __init__(self, fields: Sequence[tuple[str, Column]], *, named: bool) -> None:
        inside = ", ".join(f"{quoted(name)} {column.sql}" for name, column in fields)
        self.sql = f"STRUCT({inside})"
        self._fields = [pa.field(name, column.arrow) for name, column in fields]
        self.arrow = pa.struct(self._fields)
        self.cast = any(column.cast for _, column in fields)
        self.columns = list(fields)
        self._named = named
        row: Any = types.GenericAlias(tuple, tuple(column.wire for _, column in fields))
        self.wire = _record(fields) if named else row | None
        self._nothing = {name: None for name, _ in fields} if named else (None,) * len(fields)

    def build(self, values: Sequence[Any]) -> pa.Array:
        """Make the column."""
        arrays = [
            column.build(part)
            for (_, column), part in zip(self.columns, self.parts(values), strict=True)
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=self._fields, mask=mask)

    def widened(self, value: str) -> str:
        """Widen each field."""
        if all(column.is_cast for _, column in self.columns):
            return super().widened(value)
        fields = ", ".join(
            f"{quoted(name)} := " + column.widened(f"({value}).{quoted(name)}")
            for name, column in self.columns
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({fields}) END"

    def parts(self, values: Sequence[Any]) -> list[list[Any]]:
        """Return the values of each field; all fields of None are None."""
        rows = [self._nothing if value is None else value for value in values]
        if self._named:
            return [[row.get(name) for row in rows] for name, _ in self.columns]  # type: ignore[union-attr]
        return [list(part) for part in zip(*rows, strict=True)] or [[] for _ in self.columns]


def _decimal_texts(values: Sequence[Decimal | None]) -> Sequence[str | None]:
    return [None if value is None else decimal_text(value) for value in values]


def key_reader(annotation: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return the function that turns texts of keys into keys as SQL has them; None stays None."""
    if annotation is str or reference_type(annotation) is not None:
        return lambda texts: texts
    wire = wire_key_type(annotation)
    if key_parts(annotation) is None:
        column = list[wire | None]  # type: ignore[valid-type]
        return lambda texts: msgspec.convert(texts, column, strict=False)
    decode = msgspec.json.Decoder(wire).decode
    return lambda texts: [None if text is None else decode(text) for text in texts]


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def unambiguous(names: Sequence[str]) -> list[str]:
    """Return names without those that differ only by case, which SQL ignores: `price`, `Price` are `price_2`, `Price_1`."""
    spellings: dict[str, list[str]] = {}
    for name in sorted({*names}):
        spellings.setdefault(name.casefold(), []).append(name)
    chosen = []
    for name in names:
        alike = spellings[name.casefold()]
        # None of several keeps its name: a query that says `price` could mean each of them.
        chosen.append(name if len(alike) == 1 else f"{name}_{alike.index(name) + 1}")
    return distinct(chosen)


def alike(name: str, names: Iterable[str]) -> list[str]:
    """Return the numbered names that `unambiguous` gives if several are `name` without regard to case."""
    numbered = re.compile(rf"{re.escape(name)}_\d+", re.IGNORECASE)
    candidates = [each for each in names if numbered.fullmatch(each)]
    spellings = {each.rpartition("_")[0] for each in candidates}
    return sorted(candidates) if len(spellings) > 1 else []


def distinct(names: Sequence[str]) -> list[str]:
    """Return names that differ, as SQL wants: a second `price` becomes `price_2`."""
    taken: set[str] = set()
    different: list[str] = []
    for name in names:
        chosen, count = name, 1
        while chosen.casefold() in taken:
            count += 1
            chosen = f"{name}_{count}"
        taken.add(chosen.casefold())
        different.append(chosen)
    return different


def _record(fields: Sequence[tuple[str, Column]]) -> Any:
    wires = [(name, column.wire) for name, column in fields]
    return typing.TypedDict("Record", dict(wires), total=False) | None  # type: ignore[operator]


def _offsets(values: Sequence[Any]) -> tuple[pa.Array, pa.Array | None]:
    lengths = [0 if value is None else len(value) for value in values]
    ends = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    absent = [value is None for value in values]
    return pa.array(ends), pa.array(absent, pa.bool_()) if any(absent) else None


def _may_coincide(data_type: pa.DataType) -> bool:
    """Say whether two keys that differ in Python can be one in SQL."""
    times = pa.types.is_timestamp(data_type) or pa.types.is_time(data_type)
    return bool(times or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def _coincide(keys: pa.Array, full: Sequence[Any]) -> bool:
    """Say whether a dictionary has two keys that are one in SQL."""
    owners = np.repeat(np.arange(len(full)), [len(mapping) for mapping in full])
    codes = keys.dictionary_encode(null_encoding="encode").indices.to_numpy()
    pairs = owners * (len(keys) + 1) + codes
    return bool(len(np.unique(pairs)) < len(pairs))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
