"""Results of reads: rows as plain values or as an Arrow table, changes, hits of a search, and their epochs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from penstock.base.decimals import DECIMAL_PLACES
from penstock.base.http import EPOCH_SCHEMA
from penstock.base.ids import Epoch
from penstock.base.json_keys import json_bytes
from penstock.base.lowering import lower_reply
from penstock.client.encoding import encode_json
from penstock.client.operation import HttpResponse
from penstock.client.sql_values import typed_rows
from penstock.errors import ConfigError, OperationalError, RequestError, Unencodable

if TYPE_CHECKING:
    import pyarrow as pa

_DAY_US: Final = 86_400_000_000

EPOCH_KEY: Final = b"penstock.epoch"
"""The key in the metadata of an Arrow schema; its value is the epoch in decimal digits."""


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


class Hit(msgspec.Struct, frozen=True):
    """A row that was found.

    Attributes:
        score: How well it fits; only to compare hits of one answer.
        row: The row as a dictionary from the names of its columns to values of JSON.
        highlights: For each column with words that were found, its text in parts: the first and each second one are
            plain, the others were found.
    """

    score: float
    table: str
    row: Any
    highlights: dict[str, list[str]] = {}


class FacetCount(msgspec.Struct, frozen=True):
    """A value of a column, and the number of hits that have it."""

    value: Any
    count: int


class SearchAnswer(msgspec.Struct, frozen=True):
    """The answer of a search index, of exactly one epoch.

    Attributes:
        epoch: The epoch.
        total: The number of all hits.
        hits: The best hits, the best first.
        facets: For each column that was asked for, its most frequent values.
    """

    epoch: Annotated[Epoch, EPOCH_SCHEMA]
    total: int
    hits: list[Hit]
    facets: dict[str, list[FacetCount]] = {}


class ViewAnswer(msgspec.Struct, frozen=True):
    """The answer of one view: rows, or what a search has found.

    Attributes:
        columns: The names of the columns.
        rows: The values of each row, as JSON has them.
        search: The answer of a search index; None for a query.
    """

    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    search: SearchAnswer | None = None

    def dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dictionary from column names to values."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class PointAnswer(msgspec.Struct, frozen=True):
    """The answers of several views, all of one epoch.

    Attributes:
        epoch: The epoch.
        answers: An answer for each question, in order.
        session: The id of the session that the answers belong to; None without one.
    """

    epoch: Annotated[Epoch, EPOCH_SCHEMA]
    answers: list[ViewAnswer]
    session: str | None = None


@dataclass(frozen=True, slots=True)
class ViewSearch:
    """The fields of `GET /search/{view}`; `AsyncClient.search` describes them."""

    view: str
    query: str
    table: str | None
    limit: int
    offset: int
    filters: Mapping[str, Any]
    facets: Sequence[str]
    highlight: bool
    lenient: bool

    def fields(self) -> dict[str, str]:
        """Return the query string's fields; the conditions are JSON.

        Raises:
            RequestError: A value of the conditions has no JSON.
        """
        fields = {"q": self.query, "limit": str(self.limit), "offset": str(self.offset)}
        if self.table is not None:
            fields["table"] = self.table
        if self.facets:
            fields["facet"] = ",".join(self.facets)
        if self.filters:
            try:
                fields["filter"] = json_bytes(encode_json, lower_reply(dict(self.filters))).decode()
            except (Unencodable, TypeError, ValueError, RecursionError) as error:
                raise RequestError(f"the conditions cannot be sent: {error}") from error
        return fields | {
            name: "true"
            for name, is_wanted in (("highlight", self.highlight), ("lenient", self.lenient))
            if is_wanted
        }


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


def search_answer_of(response: HttpResponse) -> SearchAnswer:
    """Return the answer of a search index.

    Raises:
        OperationalError: The response cannot be read.
    """
    try:
        return msgspec.json.decode(response.content, type=SearchAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the answer of the search cannot be read: {error}") from error


def point_answer_of(response: HttpResponse) -> PointAnswer:
    """Return the answers of several views.

    Raises:
        OperationalError: The response cannot be read.
    """
    try:
        return msgspec.json.decode(response.content, type=PointAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the answers cannot be read: {error}") from error


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


def python_types(table: "pa.Table") -> "pa.Table":
    """Return a table with equal values, whose types Python shows as people write the values.

    A column of decimals has as many places as its values need. A column of intervals without months is
    a column of durations.
    """
    # SQL gives every `Decimal` attribute 12 places, so that Arrow would show 12.500000000000.
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
