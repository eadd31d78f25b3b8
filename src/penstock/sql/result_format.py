"""Formats: an answer's rows as JSON, JSON lines, CSV or an Arrow stream.

Arrow is lossless and has DuckDB's own types. JSON and CSV write what JavaScript would spoil as text:
integers beyond ±(2^53 - 1), every DECIMAL, and NaN and the infinities (`"NaN"`, `"Infinity"`). BLOB
is base64, INTERVAL and instants are ISO 8601, STRUCT is an object, and MAP an object where its keys
are text, else a list of pairs. In CSV, what is nested is JSON, NULL is empty, and empty text is `""`.
"""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import csv

from penstock.base import http
from penstock.errors import QueryError
from penstock.snapshots.text import json_text
from penstock.sql.query import QueryResult

EPOCH: Final = b"penstock.epoch"
"""In the metadata of an Arrow stream's schema."""

_SAFE: Final = (1 << 53) - 1
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
Plain = Callable[[Any], Any]


class ResultFormat(StrEnum):
    """What an answer can be, by its media type."""

    JSON = http.JSON
    LINES = http.NDJSON
    CSV = http.CSV
    ARROW = http.ARROW


def accepted_format(accept: str) -> ResultFormat:
    """Return the first format that an `Accept` header names; JSON where it names none."""
    for one in accept.split(","):
        media = http.media_type_of(one)
        if media in set(ResultFormat):
            return ResultFormat(media)
    return ResultFormat.JSON


def encode_result(answer: QueryResult, chosen: ResultFormat) -> bytes:
    """Return an answer's body.

    Raises:
        QueryError: Arrow is not chosen, and a date lies outside of the years 1 to 9999.
    """
    match chosen:
        case ResultFormat.JSON:
            return _json(answer)
        case ResultFormat.LINES:
            return _lines(answer.table)
        case ResultFormat.CSV:
            return _csv(answer.table)
        case ResultFormat.ARROW:
            return _arrow(answer)


def json_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows whose values JSON can hold.

    Raises:
        QueryError: A date lies outside of the years 1 to 9999, or is infinite.
    """
    columns = map(_plain_column, table.column_names, table.columns)
    return list(zip(*columns, strict=True))


def _json(answer: QueryResult) -> bytes:
    columns = [
        {"name": name, "type": type_}
        for name, type_ in zip(answer.table.column_names, answer.types, strict=True)
    ]
    return _encode({"epoch": answer.epoch, "columns": columns, "rows": json_rows(answer.table)})


def _lines(table: pa.Table) -> bytes:
    names = table.column_names
    lines = (_encode(dict(zip(names, row, strict=True))) + b"\n" for row in json_rows(table))
    return b"".join(lines)


def _csv(table: pa.Table) -> bytes:
    columns = list(map(_csv_column, table.column_names, table.columns))
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.Table.from_arrays(columns, names=table.column_names), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _arrow(answer: QueryResult) -> bytes:
    metadata = {**(answer.table.schema.metadata or {}), EPOCH: str(answer.epoch).encode()}
    table = answer.table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _plain_column(name: str, column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    plain = _plain_of(column.type)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise QueryError(
            f"{name} holds a time that JSON and CSV cannot show ({error}); "
            "cast it to VARCHAR, or ask for Arrow"
        ) from error
    return values if plain is None else [None if one is None else plain(one) for one in values]


def _csv_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind):
        return column
    texts = [None if one is None else _text(one) for one in _plain_column(name, column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value).strip('"')


def _plain_of(kind: pa.DataType) -> Plain | None:
    """Return what makes a value of an Arrow type fit JSON; None where it does already."""
    for is_kind, make in _MAKERS:
        if is_kind(kind):
            return make(kind)
    return None


def _integer(value: int) -> int | str:
    return value if -_SAFE <= value <= _SAFE else str(value)


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _decimal(kind: pa.DataType) -> Plain:
    """HUGEINT arrives as a decimal of 38 digits without a fraction."""
    if kind.precision == 38 and kind.scale == 0:
        return lambda value: _integer(int(value))
    return lambda value: format(value if isinstance(value, Decimal) else Decimal(value), "f")


def _interval(value: Any) -> str:
    seconds = Decimal(value.nanoseconds) / 1_000_000_000
    return f"P{value.months}M{value.days}DT{seconds.normalize():f}S"


def _list(kind: pa.DataType) -> Plain | None:
    inner = _plain_of(kind.value_type)
    if inner is None:
        return None
    return lambda value: [None if one is None else inner(one) for one in value]


def _struct(kind: pa.DataType) -> Plain | None:
    plains = {field.name: plain for field in kind if (plain := _plain_of(field.type)) is not None}
    if not plains:
        return None

    def make(value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: plains[name](one) if name in plains and one is not None else one
            for name, one in value.items()
        }

    return make


def _map(kind: pa.DataType) -> Plain:
    key, inner = _plain_of(kind.key_type), _plain_of(kind.item_type)

    def make(value: list[tuple[Any, Any]]) -> Any:
        pairs = [
            (key(name) if key else name, inner(one) if inner and one is not None else one)
            for name, one in value
        ]
        return dict(pairs) if pa.types.is_string(kind.key_type) else pairs

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
