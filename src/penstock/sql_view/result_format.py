"""The formats of results: JSON, JSON lines, CSV, Arrow streams and Parquet.

Arrow and Parquet are lossless and have DuckDB's types. JSON and CSV write values that JavaScript would change as text:
integers beyond ±(2^53 - 1), every DECIMAL, and NaN and the infinities (`"NaN"`, `"Infinity"`). BLOB
is base64, INTERVAL and timestamps are ISO 8601, and STRUCT is an object. MAP is an object if its keys
are text, else a list of pairs. In CSV, nested values are JSON, NULL is empty, and empty text is `""`.
A DECIMAL with the places of an attribute, or with more, has no zeros at its end: 12.5 and not
12.500000000000. A DECIMAL with fewer places shows all of them, because the query has chosen them.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import csv, parquet

from penstock.base import http
from penstock.base.decimals import DECIMAL_PLACES, short_decimal
from penstock.base.json_keys import float_text
from penstock.errors import QueryError
from penstock.snapshots.text import interval_text, json_text

if TYPE_CHECKING:  # a program that only asks loads no DuckDB
    from penstock.sql_view.query import QueryResult

EPOCH: Final = b"penstock.epoch"
"""The key of the epoch in the metadata of an Arrow schema."""

_SAFE: Final = (1 << 53) - 1
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
Plain = Callable[[Any], Any]


class ResultFormat(StrEnum):
    """The formats, by media type."""

    JSON = http.JSON
    LINES = http.NDJSON
    CSV = http.CSV
    ARROW = http.ARROW
    PARQUET = http.PARQUET


def accepted_format(accept: str) -> ResultFormat:
    """Return the first format that an `Accept` header names, or JSON."""
    for media_range in accept.split(","):
        media = http.media_type_of(media_range)
        if media in set(ResultFormat):
            return ResultFormat(media)
    return ResultFormat.JSON


def encode_result(result: "QueryResult", result_format: ResultFormat) -> bytes:
    """Return the body of a result."""
    match result_format:
        case ResultFormat.JSON:
            return _json(result)
        case ResultFormat.LINES:
            return _lines(result.table)
        case ResultFormat.CSV:
            return _csv(result.table)
        case ResultFormat.ARROW:
            return _arrow(result)
        case ResultFormat.PARQUET:
            return _parquet(result)


def json_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows with values that JSON can represent."""
    columns = map(_plain_column, table.column_names, table.columns)
    return list(zip(*columns, strict=True))


def _json(result: "QueryResult") -> bytes:
    columns = [
        {"name": name, "type": type_}
        for name, type_ in zip(result.table.column_names, result.types, strict=True)
    ]
    return _encode({"epoch": result.epoch, "columns": columns, "rows": json_rows(result.table)})


def _lines(table: pa.Table) -> bytes:
    names = table.column_names
    lines = (_encode(dict(zip(names, row, strict=True))) + b"\n" for row in json_rows(table))
    return b"".join(lines)


def _csv(table: pa.Table) -> bytes:
    columns = list(map(_csv_column, table.column_names, table.columns))
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.Table.from_arrays(columns, names=table.column_names), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _arrow(result: "QueryResult") -> bytes:
    metadata = {**(result.table.schema.metadata or {}), EPOCH: str(result.epoch).encode()}
    table = result.table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _parquet(result: "QueryResult") -> bytes:
    metadata = {**(result.table.schema.metadata or {}), EPOCH: str(result.epoch).encode()}
    sink = pa.BufferOutputStream()
    parquet.write_table(result.table.replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _plain_column(name: str, column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    plain = _plain_of(column.type)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise QueryError(
            f"the column {name} has a time that JSON and CSV cannot represent ({error}); cast it to "
            "VARCHAR, or use Arrow"
        ) from error
    return (
        values if plain is None else [None if value is None else plain(value) for value in values]
    )


def _csv_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    arrow_type = column.type
    if (
        pa.types.is_boolean(arrow_type)
        or pa.types.is_integer(arrow_type)
        or pa.types.is_string(arrow_type)
    ):
        return column
    texts = [None if value is None else _text(value) for value in _plain_column(name, column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value).strip('"')


def _plain_of(arrow_type: pa.DataType) -> Plain | None:
    """Return the conversion of an Arrow type's values for JSON; None if they need none."""
    for is_kind, make in _MAKERS:
        if is_kind(arrow_type):
            return make(arrow_type)
    return None


def _integer(value: int) -> int | str:
    return value if -_SAFE <= value <= _SAFE else str(value)


def _float(value: float) -> float | str:
    return value if math.isfinite(value) else float_text(value)


def _decimal(arrow_type: pa.DataType) -> Plain:
    """Return the conversion of decimals; HUGEINT is a decimal of 38 digits without a fraction."""
    if arrow_type.precision == 38 and arrow_type.scale == 0:
        return lambda value: _integer(int(value))
    if arrow_type.scale >= DECIMAL_PLACES:
        return short_decimal
    return lambda value: format(value, "f")


def _interval(value: Any) -> str:
    return interval_text(value.months, value.days, value.nanoseconds)


def _list(arrow_type: pa.DataType) -> Plain | None:
    inner = _plain_of(arrow_type.value_type)
    if inner is None:
        return None
    return lambda value: [None if item is None else inner(item) for item in value]


def _struct(arrow_type: pa.DataType) -> Plain | None:
    plains = {
        field.name: plain for field in arrow_type if (plain := _plain_of(field.type)) is not None
    }
    if not plains:
        return None

    def make(value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: plains[name](item) if name in plains and item is not None else item
            for name, item in value.items()
        }

    return make


def _map(arrow_type: pa.DataType) -> Plain:
    key, inner = _plain_of(arrow_type.key_type), _plain_of(arrow_type.item_type)

    def make(value: list[tuple[Any, Any]]) -> Any:
        pairs = [
            (key(name) if key else name, inner(item) if inner and item is not None else item)
            for name, item in value
        ]
        return dict(pairs) if pa.types.is_string(arrow_type.key_type) else pairs

    return make


_MAKERS: Final[
    list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Plain | None]]]
] = [
    (pa.types.is_int64, lambda _kind: _integer),
    (pa.types.is_uint64, lambda _kind: _integer),
    (pa.types.is_floating, lambda _kind: _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_interval, lambda _kind: _interval),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_fixed_size_list, _list),
    (pa.types.is_struct, _struct),
]
