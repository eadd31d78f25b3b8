"""Results of reads: rows as plain values or as an Arrow table, changes, and their epochs."""

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from penstock.base.decimals import DECIMAL_PLACES
from penstock.errors import OperationalError

if TYPE_CHECKING:
    import pyarrow as pa

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from penstock.base.http import EPOCH_SCHEMA
from penstock.base.ids import Epoch
from penstock.client.operation import HttpResponse
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH_KEY: Final = b"penstock.epoch"
"""The key in the metadata of an Arrow schema; its value is the epoch in decimal digits."""


_DAY_US: Final = 86_400_000_000


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


def python_types(table: "pa.Table") -> "pa.Table":
    """Return a table with equal values, whose types Python shows well.

    A column of decimals has as many places as its values need. A column of intervals without months is
    a column of durations.
    """
    for index, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        converted = _durations(_short_decimals(column))
        if converted is not column:
            table = table.set_column(index, field.with_type(converted.type), converted)
    return table


def _short_decimals(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return a column whose decimals have as few places as hold every value."""
    import pyarrow as pa  # noqa: PLC0415

    places, column_type = 0, _with_places(column.type, 0)
    while column_type != column.type:
        try:
            return column.cast(column_type)
        except pa.ArrowInvalid:  # a value has more places
            places += 1
            column_type = _with_places(column.type, places)
    return column


def _with_places(column_type: "pa.DataType", places: int) -> "pa.DataType":
    """Return a type in which the decimals with the places of an attribute have `places` at most."""
    import pyarrow as pa  # noqa: PLC0415

    def inside(field: "pa.Field") -> "pa.Field":
        return field.with_type(_with_places(field.type, places))

    if pa.types.is_decimal(column_type) and column_type.scale >= DECIMAL_PLACES:
        column_type = pa.decimal128(column_type.precision, min(places, column_type.scale))
    elif pa.types.is_list(column_type):
        column_type = pa.list_(inside(column_type.value_field))
    elif pa.types.is_fixed_size_list(column_type):
        column_type = pa.list_(inside(column_type.value_field), column_type.list_size)
    elif pa.types.is_struct(column_type):
        column_type = pa.struct(map(inside, column_type))
    elif pa.types.is_map(column_type):
        column_type = pa.map_(inside(column_type.key_field), inside(column_type.item_field))
    return column_type


def _durations(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Return a column of intervals as durations, unless one has months; other columns unchanged."""
    import pyarrow as pa  # noqa: PLC0415

    if not pa.types.is_interval(column.type):
        return column
    values = column.to_pylist()
    if any(value is not None and value.months for value in values):
        return column
    lengths = [
        None if value is None else value.days * _DAY_US + value.nanoseconds // 1_000
        for value in values
    ]
    return pa.chunked_array([pa.array(lengths, pa.int64()).cast(pa.duration("us"))])


class Column(msgspec.Struct, frozen=True):
    """A column of a result; `type` is the SQL view's name of its type."""

    name: str
    type: str


class Rows(msgspec.Struct, frozen=True):
    """Rows of a result, in order, all of one epoch.

    Attributes:
        epoch: The committed epoch that the query read.
        columns: Names and types.
        rows: A tuple of Python values for each row; `sql_values` lists their types.
    """

    epoch: Annotated[Epoch, EPOCH_SCHEMA]
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dictionary from column names to values."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


_TIME: Final = msgspec.Meta(extra_json_schema={"format": "date-time"})
_KINDS: Final = msgspec.Meta(extra_json_schema={"enum": ["create", "update", "delete"]})


class Change(msgspec.Struct, frozen=True):
    """The change of an entity in one epoch.

    Attributes:
        epoch: The epoch.
        time: The time of its commit.
        key: The entity's key.
        kind: `create`, `update` or `delete`.
        before: The attributes with the key before the epoch, as Python values of the types that
            `sql_values` lists; None if the entity did not exist.
        after: The same after the epoch.
    """

    epoch: Annotated[Epoch, EPOCH_SCHEMA]
    time: Annotated[datetime, _TIME]
    key: Any
    kind: Annotated[str, _KINDS]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """The body of `POST /sql`.

    Attributes:
        query: The SELECT.
        parameters: The values for its `?` by position, or for its `$name` by name.
        rows_max: A result with more rows is refused; None: the server's limit.
        as_of: The epoch or the instant to query; None: the newest.
    """

    query: str
    parameters: Any
    rows_max: int | None = None
    as_of: int | datetime | None = None

    def body(self, min_epoch: Epoch) -> dict[str, Any]:
        """Return the JSON object; the view first waits for `min_epoch`, if that is 0 or more."""
        body: dict[str, Any] = {"query": self.query, "parameters": self.parameters}
        if self.rows_max is not None:
            body["rows_max"] = self.rows_max
        if min_epoch >= 0:
            body["min_epoch"] = min_epoch
        match self.as_of:
            case None:
                pass
            case datetime():
                body["as_of"] = {"timestamp": self.as_of.isoformat()}
            case _:
                body["as_of"] = {"epoch": self.as_of}
        return body


def rows_of(response: HttpResponse) -> Rows:
    """Return the rows of a response, with Python values.

    Raises:
        OperationalError: The response cannot be read.
    """
    try:
        result = msgspec.json.decode(response.content, type=Rows)
        rows = typed_rows([column.type for column in result.columns], result.rows)
        return msgspec.structs.replace(result, rows=rows)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the result of the query cannot be read: {error}") from error


def changes_of(response: HttpResponse) -> list[Change]:
    """Return the changes of a response, with Python values.

    Raises:
        OperationalError: The response cannot be read.
    """
    try:
        return msgspec.convert(rows_of(response).dicts(), list[Change])
    except msgspec.ValidationError as error:
        raise OperationalError(f"the feed of changes cannot be read: {error}") from error


def object_of(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of a response.

    Raises:
        OperationalError: The response cannot be read.
    """
    try:
        return msgspec.json.decode(response.content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the response cannot be read: {error}") from error


def require_arrow() -> None:
    """Check that Arrow tables can be read, before a query is sent.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow.ipc  # noqa: F401, PLC0415 -- 100 MB that only tables need
    except ImportError as error:
        raise ConfigError(
            "sql() returns an Arrow table and needs pyarrow, which is not installed; "
            "install pyarrow, or call rows(), which returns plain values"
        ) from error


def table_of(response: HttpResponse, epoch: Epoch) -> "pa.Table":
    """Return the Arrow table of a response; its schema's metadata names the epoch.

    Raises:
        OperationalError: The response cannot be read.
    """
    import pyarrow as pa  # noqa: PLC0415 -- see `require_arrow`
    import pyarrow.ipc  # noqa: PLC0415

    try:
        table = python_types(pyarrow.ipc.open_stream(response.content).read_all())
    except pa.ArrowInvalid as error:
        raise OperationalError(f"the result of the query cannot be read: {error}") from error
    named = {**(table.schema.metadata or {}), EPOCH_KEY: str(epoch).encode()}
    return table.replace_schema_metadata(named)
