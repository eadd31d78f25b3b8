"""The tables of an application's state: one typed table for each class, in SQL and in Arrow.

The rows are built from the states in the journal; `column` converts the values.

A class's table is named as its class, its columns as the key and the attributes, in the order of
declaration; names that differ only by case, which SQL ignores, are all numbered (`price_2`, `Price_1`). The
tables of tasks are in the schema `tasks`, are named as workflow and task, and their key is `key`.

Every entity gets a row. A value that no column can show is NULL, and the column `_unshown` of wide
tables gives the reason as JSON: `{"note": "it is nested more than 100 levels deep"}`. A decimal of more than 12 places
is rounded, and `_unshown` has it exactly: `{"price": "rounded from 0.3333333333333333333333333333"}`.

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

While a value of a class does not fit, the class is *wide*: integers have the wider type. So a number is a number whatever the others are.
Only keys, which must stay different, are texts then: those of type Decimal and timedelta.
"""

import enum
import re
import struct
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from itertools import islice
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
import pyarrow as pa

from penstock.base.cause import cause_text
from penstock.base.decimals import DECIMAL_PLACES
from penstock.base.record import RecordKind, fields_of, is_record, kind_of
from penstock.base.schema import reference_type
from penstock.errors import Diverged, Erased, MigrationFailed
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.streams.stream import UNKNOWN
from penstock.model.streams.task_type import KEY
from penstock.model.versions.former_class import Presented, presented, type_at
from penstock.snapshots.column import (
    Column,
    DecimalText,
    Interval,
    Json,
    Lists,
    Maps,
    Pairs,
    Reasons,
    Reference,
    Scalar,
    Structs,
    TooNarrow,
    distinct,
    key_reader,
    quoted,
    unambiguous,
)
from penstock.snapshots.text import duration_text, exact_json, rounded_decimals

LONGEST: Final = 10_000
"""Characters of a record's type; records that contain each other make it grow fast."""

DEEPEST: Final = 10
"""Levels of lists, dictionaries, tuples and records that have types; Arrow ends at 64."""


class Width(IntEnum):
    """The values that the columns of a class have to show.

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
        # Keys must stay different, so a key is never rounded.
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
            # No other column holds values of several types.
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


MAIN: Final = "main"
"""The schema of the tables of entities; a query may omit it."""

TASKS: Final = "tasks"
"""The schema of the tables of tasks."""

UNSHOWN: Final = "_unshown"
UNFIT: Final = (
    TooNarrow,
    MigrationFailed,
    Erased,
    pa.ArrowException,
    ArithmeticError,
    RecursionError,
    TypeError,
    ValueError,
    LookupError,
)
"""The errors that values can cause when a column is built; `MemoryError` is a different matter."""

_ROW: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_WHY_MAX: Final = 200
_EXACT_MAX: Final = 2_000
"""Characters of an exact value that was rounded."""
_NUMBER: Final = re.compile(r"-?\d+")
_ANY_SIZE: Final = 1 << 62

Reason = dict[str, str]
"""For each column that is NULL, the reason."""

KeyReader = Callable[[Sequence[Any]], Sequence[Any]]
"""Turns texts of keys into keys."""


class EntityTable:
    """The table of one entity class, or of the rows of one task.

    Args:
        wide: Whether its columns have the wide types.
        read_keys: Turns texts of keys into keys; None for the usual texts of the class.
    """

    def __init__(
        self,
        entity_type: EntityType,
        name: str,
        *,
        wide: bool,
        schema: str = MAIN,
        read_keys: KeyReader | None = None,
    ) -> None:
        self.entity_type = entity_type
        self.schema = schema
        self.name = name
        self.wide = wide
        annotations = entity_type.attributes.values()
        columns = [
            column_of(entity_type.key_annotation, wide=Width.KEYS if wide else Width.NARROW),
            *(column_of(annotation, wide=wide) for annotation in annotations),
        ]
        self._rounding = [column_of(it, wide=Width.ROUNDING) for it in annotations if wide]
        key_name = "key" if entity_type.key_name == KEY else entity_type.key_name
        names = unambiguous([key_name, *entity_type.attributes])
        if wide:
            columns.append(Reasons())
            names.append(UNSHOWN)
        self.columns = list(zip(distinct(names), columns, strict=True))
        self.key = self.columns[0][0]
        self._attributes = self.columns[1 : len(entity_type.attributes) + 1]
        self._read_keys = read_keys or key_reader(entity_type.key_annotation)
        wires = tuple(column.wire for _, column in self._attributes)
        row: Any = types.GenericAlias(tuple, (Literal[entity_type.shape.tag], *wires))
        self._decode = msgspec.msgpack.Decoder(list[row]).decode

    @property
    def written(self) -> str:
        """The name in SQL, quoted, with its schema if that is not `main`."""
        return written_name(self.schema, self.name)

    @property
    def query_name(self) -> str:
        """The name as queries usually write it: `Item`, `tasks."wordcount.Count"`."""
        return self.name if self.schema == MAIN else self.written

    @property
    def definition(self) -> str:
        """The columns in the syntax of CREATE TABLE."""
        return ", ".join(f"{quoted(name)} {column.sql}" for name, column in self.columns)

    def keys(self, texts: Sequence[str]) -> pa.Table:
        """Return a table of keys, from their texts.

        Raises:
            TooNarrow: A key needs the wide types.
            Diverged: A key is not of this class as it is declared now.
        """
        return pa.table({self.key: self._built_keys(texts)})

    def rows(
        self, texts: Sequence[str], states: Sequence[bytes], cell_bytes_max: int | None = None
    ) -> pa.Table:
        """Return rows from keys' texts and from states as stored in the journal.

        Args:
            cell_bytes_max: A value with more stored bytes is NULL, with a reason; None: no limit.

        Returns:
            A row for each entity, in order.

        Raises:
            TooNarrow: A value needs the wide types; never if the table is wide.
            Diverged: A state is of another shape than this class, or does not fit it.
        """
        if cell_bytes_max is not None and any(len(state) > cell_bytes_max for state in states):
            if not self.wide:
                raise TooNarrow(f"a value takes more than {cell_bytes_max} bytes")
            arrays = self._one_by_one(texts, states, cell_bytes_max)
            return pa.Table.from_arrays(arrays, names=[name for name, _ in self.columns])
        try:
            # Column by column first; only a value that no column can hold costs a look at each row.
            arrays = self._at_once(texts, states)
        except MemoryError:
            raise
        except UNFIT as error:
            if not self.wide:
                raise TooNarrow(str(error)) from error
            arrays = self._one_by_one(texts, states)
        return pa.Table.from_arrays(arrays, names=[name for name, _ in self.columns])

    def readable(self, states: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Return states by the texts of keys, without deleted entities and erased subjects."""
        entity_type = self.entity_type
        return {
            text: state
            for text, state in states.items()
            if state is not None
            and not (
                entity_type.personal and entity_type.is_erased(entity_type.key_at(text), state)
            )
        }

    def values(
        self, texts: Sequence[str], states: Sequence[bytes]
    ) -> tuple[Sequence[Sequence[Any]], list[Reason] | None]:
        """Return the decoded attributes of entities, of the type `Column.wire` of each column.

        Returns:
            The values of each attribute, and for each entity the reasons why values are None; None without any.

        Raises:
            Diverged: A state is of another shape than this class, or does not fit it.
        """
        try:
            decoded = self._all_decoded(texts, states)
        except MemoryError:
            raise
        except UNFIT:
            reasons: list[Reason] = [{} for _ in states]
            shown = presented(self.entity_type, texts, states)
            decoded = [
                (None, *self._row(*row, _ANY_SIZE))
                for row in zip(texts, shown, reasons, strict=True)
            ]
        else:
            reasons = []
        parts = list(islice(zip(*decoded, strict=True), 1, None))  # no tags
        return parts or [()] * len(self._attributes), reasons or None

    def key_values(self, texts: Sequence[str]) -> Sequence[Any]:
        """Return keys as SQL has them, from their texts."""
        return self._read_keys(texts)

    def _all_decoded(
        self, texts: Sequence[str], states: Sequence[bytes]
    ) -> Sequence[Sequence[Any]]:
        try:
            return self._decoded(self._opened(texts, states))
        except msgspec.MsgspecError:
            try:
                return self._decoded(self._opened(texts, self._present(texts, states)))
            except msgspec.MsgspecError as error:
                raise self._diverged(error) from error

    def _at_once(self, texts: Sequence[str], states: Sequence[bytes]) -> list[pa.Array]:
        decoded = self._all_decoded(texts, states)
        parts: Iterable[Sequence[Any]] = islice(zip(*decoded, strict=True), 1, None)  # no tags
        if not decoded:
            parts = [()] * len(self._attributes)
        arrays = [
            column.build(part) for (_, column), part in zip(self._attributes, parts, strict=True)
        ]
        reasons = [pa.nulls(len(states), pa.string())] if self.wide else []
        return [self._built_keys(texts), *arrays, *reasons]

    def _opened(self, texts: Sequence[str], states: Sequence[bytes]) -> Sequence[bytes]:
        """Return rows with readable attributes; those of a personal class are encrypted.

        Raises:
            Erased: The subject of a row was erased.
        """
        entity_type = self.entity_type
        if not entity_type.personal:
            return states
        return [
            entity_type.opened(entity_type.key_at(text), state)
            for text, state in zip(texts, states, strict=True)
        ]

    def _decoded(self, states: Sequence[bytes]) -> Sequence[Sequence[Any]]:
        # All rows in one call: a call for each row takes several times as long.
        return self._decode(array_header(len(states)) + b"".join(states))

    def _present(self, texts: Sequence[str], states: Sequence[bytes]) -> list[bytes]:
        """Return rows as the class declares them, also those of earlier versions.

        Raises:
            MigrationFailed: A function of `@migrate` has failed.
        """
        rows = []
        for row in presented(self.entity_type, texts, states):
            if not isinstance(row, bytes):
                raise row
            rows.append(row)
        return rows

    def _one_by_one(
        self, texts: Sequence[str], states: Sequence[bytes], cell_bytes_max: int = _ANY_SIZE
    ) -> list[pa.Array]:
        """Build the columns without the values that do not fit them."""
        reasons: list[Reason] = [{} for _ in states]
        rows = [
            self._row(text, state, reason, cell_bytes_max)
            for text, state, reason in zip(
                texts, presented(self.entity_type, texts, states), reasons, strict=True
            )
        ]
        arrays = []
        for place, (name, column) in enumerate(self._attributes):
            values = [row[place] for row in rows]
            arrays.append(fitted(name, column, self._rounding[place], values, reasons))
        return [self._built_keys(texts), *arrays, self.columns[-1][1].build(reasons)]

    def _row(self, text: str, state: Presented, reason: Reason, cell_bytes_max: int) -> list[Any]:
        """Decode the attributes of one entity, each by itself."""
        values: list[Any] = []
        try:
            if not isinstance(state, bytes):
                raise state
            state = self._opened([text], [state])[0]
        except (MigrationFailed, Erased) as error:
            reason.update(dict.fromkeys((name for name, _ in self._attributes), reason_text(error)))
            return [None] * len(self._attributes)
        try:
            _, *raws = _ROW.decode(state)  # without the tag
            for (name, column), raw in zip(self._attributes, raws, strict=True):
                if len(raw) > cell_bytes_max:
                    values.append(None)
                    reason[name] = f"it takes {len(raw)} bytes, too many for view.memory_mb"
                    continue
                try:
                    values.append(msgspec.msgpack.decode(raw, type=column.wire))
                except RecursionError as error:
                    values.append(None)
                    reason[name] = reason_text(error)
        except msgspec.MsgspecError as error:
            raise self._diverged(error) from error
        return values

    def _built_keys(self, texts: Sequence[str]) -> pa.Array:
        try:
            return self.columns[0][1].build(self._read_keys(texts))
        except (TooNarrow, msgspec.MsgspecError) as error:
            if isinstance(error, TooNarrow) and not self.wide:
                raise
            raise self._diverged(error) from error

    def _diverged(self, error: Exception) -> Diverged:
        return Diverged(
            f"the journal holds a {self.entity_type.name} that does not fit its class: {error}"
        )


def fitted(
    name: str, column: Column, rounding: Column, values: list[Any], reasons: Sequence[Reason]
) -> pa.Array:
    """Build a column, with the values that do not fit it rounded or NULL, and add their reasons.

    Args:
        rounding: The same column, which rounds decimals.
        values: The values; those that are NULL are removed.
    """
    for index, _ in [*misfits(column, values)]:
        value = values[index]
        still = next(misfits(rounding, [value]), None)
        if still is not None:
            values[index], reasons[index][name] = None, still[1]
        else:
            text = str(value) if type(value) is Decimal else exact_json(value)
            short = text if len(text) <= _EXACT_MAX else f"{text[:_EXACT_MAX]}…"
            reasons[index][name] = f"rounded from {short}"
    return rounding.build(values)


def misfits(column: Column, values: Sequence[Any], start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the index of each value that does not fit a column, and the reason."""
    try:
        column.build(values)
    except MemoryError:
        raise
    except UNFIT as error:
        if len(values) == 1:
            yield start, reason_text(error)
            return
        middle = len(values) // 2  # by halves, so that a few misfits among many values cost little
        yield from misfits(column, values[:middle], start)
        yield from misfits(column, values[middle:], start + middle)


def reason_text(error: Exception) -> str:
    """Return a reason that does not depend on where a row is built."""
    return (
        "it is nested too deeply"
        if isinstance(error, RecursionError)
        else cause_text(error, _WHY_MAX)
    )


def tables_of(
    app: App, wide: Iterable[str] = (), epoch: int | None = None
) -> dict[str, EntityTable]:
    """Return the tables of the stored classes by stored name; in SQL a table has the present name of its class.

    Args:
        epoch: The epoch whose columns the tables have; None: those of the classes as they are declared.

    Returns:
        The tables of the entity classes, then those of the rows of tasks, then those of removed classes.
    """
    chosen = frozenset(wide)
    classes = app.readable
    names = [entity_type.name for entity_type in classes.values()]
    undeclared = {
        task.rows.name
        for task in app.topology.tasks.values()
        if task.is_keyed and task.key_annotation is UNKNOWN
    }
    return {
        stored_name: EntityTable(
            entity_type if epoch is None else type_at(entity_type, epoch),
            name,
            wide=stored_name in chosen,
            schema=TASKS if "." in stored_name else MAIN,
            read_keys=_undeclared_keys if stored_name in undeclared else None,
        )
        for (stored_name, entity_type), name in zip(
            classes.items(), unambiguous(names), strict=True
        )
    }


def written_name(schema: str, name: str) -> str:
    """Return the name of a table in SQL, quoted, with its schema if that is not `main`."""
    return quoted(name) if schema == MAIN else f"{schema}.{quoted(name)}"


def _undeclared_keys(texts: Sequence[Any]) -> Sequence[Any]:
    """Return the keys of a task whose keys have no declared type, as text.

    Such a key is a `str` or an `int`, and its text is JSON. A string has no quotes here, unless it could
    be taken for a number or for a string with quotes. So different keys stay different.
    """
    return [_without_quotes(text) for text in texts]


def _without_quotes(text: str) -> str:
    value = msgspec.json.decode(text)
    if type(value) is not str or value.startswith('"'):
        return text
    return text if _NUMBER.fullmatch(value) else value


def array_header(count: int) -> bytes:
    """Return the head of a MessagePack array, so that one call decodes many values."""
    return struct.pack(">BI", 0xDD, count)
