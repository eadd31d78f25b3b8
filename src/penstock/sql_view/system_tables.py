"""The system tables of a view: requests, replies, epochs, effects.

This module computes their rows from the journal's rows. `snapshots.table` describes the tables of
entities, and `view_store` writes rows into tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import DERIVED_MARK, fingerprint_of
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.request import NAMES, THEN, encode_request
from penstock.model.sealed_value import PERSONAL
from penstock.model.waiting_effect import SETTLE, decode_waiting_effect
from penstock.snapshots.column import Column, quoted, unambiguous
from penstock.snapshots.event_table import EventTable
from penstock.snapshots.table import UNSHOWN, EntityTable, array_header, tables_of, written_name
from penstock.snapshots.text import Unshowable, json_text

if TYPE_CHECKING:
    import duckdb


SYSTEM: Final = "penstock"
"""The schema of the system tables."""

_VERSION: Final = 7
"""The version of all tables; a view of another version is rebuilt."""

_INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
SYSTEM_TABLES: Final[Mapping[str, str]] = {
    "requests": f"epoch BIGINT, lsn BIGINT, request_id VARCHAR, time {_INSTANT}, entity VARCHAR, "
    "key VARCHAR, method VARCHAR, arguments VARCHAR, parent VARCHAR",
    "replies": "epoch BIGINT, lsn BIGINT, request_id VARCHAR, error VARCHAR, kind VARCHAR, "
    "message VARCHAR, value VARCHAR",
    "epochs": f"epoch BIGINT, time {_INSTANT}, records BIGINT",
    "effects": f"id VARCHAR, function VARCHAR, request VARCHAR, state VARCHAR, tries BIGINT, error VARCHAR, "
    f"arguments VARCHAR, sent {_INSTANT}, ended {_INSTANT}",
}
"""By table name, the column definitions. `effects` is computed from the rows of effects, requests and replies."""

_EFFECT_ROWS: Final = (
    "row VARCHAR, id VARCHAR, function VARCHAR, state VARCHAR, tries BIGINT, error VARCHAR, "
    f"arguments VARCHAR, sent {_INSTANT}"
)
"""The columns of the effects that wait or are dead letters; `row` is the key of the row."""

_EFFECTS_FROM: Final = ("effect_rows", "requests", "replies")
"""The tables that `effects` needs in its schema."""

_HIDDEN: Final = (NAMES, THEN)
"""Names of arguments that Penstock itself gives."""

_TOO_DEEP: Final = "it is nested too deeply"
_INSTANTS: Final = pa.timestamp("us", "UTC")


def schema_fingerprint(app: App) -> str:
    """Return a fingerprint of all tables; the view is rebuilt when it differs."""
    tables = [
        f"{table.written}({table.definition}){versions_text(table.entity_type)}"
        for table in tables_of(app).values()
    ]
    streams = [
        f"{name}({EventTable(stream, wide=False).definition})"
        for name, stream in app.topology.streams.items()
    ]
    system = [f"{name}({columns})" for name, columns in SYSTEM_TABLES.items()]
    return f"{fingerprint_of('; '.join([str(_VERSION), *tables, *streams, *system])):016x}"


def versions_text(entity_type: EntityType) -> str:
    """Return the steps that lead to the rows of a class; empty for a class with a single version."""
    steps = [
        (version.number, version.shape.tag, version.origins, version.migrated)
        for version in entity_type.versions[1:]
    ]
    return msgspec.json.encode(steps).decode() if steps else ""


def create_system_tables(
    connection: "duckdb.DuckDBPyConnection", tables: Iterable[EntityTable]
) -> None:
    """Create the system tables; a query may omit their schema, unless a class has the name."""
    taken = {table.written.casefold() for table in tables}
    for name in SYSTEM_TABLES:
        create_system_table(connection, SYSTEM, name)
        if quoted(name) not in taken:
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {SYSTEM}.{name}")


def create_system_table(
    connection: "duckdb.DuckDBPyConnection", schema: str, name: str
) -> tuple[str, ...]:
    """Create a system table without rows, and return the names of the tables of the schema that its rows are from.

    Args:
        schema: The schema; if `effects` is created, `requests` and `replies` must be there, or are created, too.
    """
    if name != "effects":
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.{name}({SYSTEM_TABLES[name]})"
        )
        return (name,)
    create_system_table(connection, schema, "requests")
    create_system_table(connection, schema, "replies")
    own = quoted(schema)
    connection.execute(f"CREATE TABLE {own}.effect_rows({_EFFECT_ROWS})")
    # Of an effect that has ended, its record has the outcome, and the request that has sent it has function and arguments.
    connection.execute(f"""
        CREATE VIEW {own}.effects AS
        SELECT id, function, split_part(id, '{DERIVED_MARK}', 1) AS request, state, tries, error, arguments, sent,
            CAST(NULL AS {_INSTANT}) AS ended
        FROM {own}.effect_rows
        UNION ALL
        SELECT ended.id, sending.method, split_part(ended.id, '{DERIVED_MARK}', 1), ended.state, ended.tries, '',
            sending.arguments, sending.time, ended.time
        FROM (
            SELECT regexp_replace(request_id, '{DERIVED_MARK}[od][0-9]+$', '') AS id, record.time,
                CASE reply.value ->> 0 WHEN 'discard' THEN 'discarded' ELSE 'done' END AS state,
                TRY_CAST(record.arguments ->> 5 AS BIGINT) AS tries
            FROM {own}.requests AS record JOIN {own}.replies AS reply USING (epoch, lsn, request_id)
            WHERE record.method = '{SETTLE}' AND record.entity IS NULL
                AND coalesce(reply.value ->> 0, 'done') IN ('done', 'discard')
        ) AS ended LEFT JOIN {own}.requests AS sending ON sending.request_id = ended.id""")
    return _EFFECTS_FROM


def effect_rows(states: Mapping[str, bytes]) -> pa.Table:
    """Return the rows of effects that wait or are dead letters, by the keys of their rows."""
    rows = []
    for key, state in states.items():
        effect = decode_waiting_effect(state)
        call = recorded_call(encode_request(effect.request))
        error = effect.error if effect.state == "dead" else ""
        text = arguments_text(call)
        rows.append(
            (
                key,
                effect.id,
                effect.function,
                effect.state,
                effect.tries,
                error,
                text,
                effect.time_us,
            )
        )
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(8)]
    types = [pa.string()] * 4 + [pa.int64()] + [pa.string()] * 2 + [pa.int64()]
    arrays = [pa.array(values, each) for values, each in zip(columns, types, strict=True)]
    arrays[-1] = arrays[-1].cast(_INSTANTS)
    names = [definition.split()[0] for definition in _EFFECT_ROWS.split(", ")]
    return pa.Table.from_arrays(arrays, names=names)


class TypedTable(Protocol):
    """A table with typed columns: of a class, a task or a stream."""

    columns: list[tuple[str, Column]]


def select_list(table: TypedTable, count: int | None = None) -> str:
    """Return the SELECT list from built columns to a table's columns, or to its first `count`."""
    expressions = []
    for name, column in table.columns[:count]:
        value = f"CAST({quoted(name)} AS {column.sql})" if column.cast else quoted(name)
        value = f"list_sort({value})" if column.ordered else value
        expressions.append(f"{value} AS {quoted(name)}")
    return ", ".join(expressions)


def widening_select_list(table: TypedTable, wide: TypedTable) -> str:
    """Return the SELECT list from a table to the wide table of the same class or stream."""
    columns = dict(table.columns)
    expressions = []
    for name, column in wide.columns:
        value = column.widened(quoted(name)) if name in columns else f"CAST(NULL AS {column.sql})"
        value = f"list_sort({value})" if column.ordered else value
        expressions.append(f"{value} AS {quoted(name)}")
    return ", ".join(expressions)


class RecordedCall(msgspec.Struct, frozen=True, array_like=True):
    """A request's body, with arguments of any type."""

    entity: str
    key: str | None
    method: str
    positional: Any  # a list, or the sealed arguments of a request that concerns a subject
    named: dict[str, Any]


_decode_calls: Final = msgspec.msgpack.Decoder(list[RecordedCall]).decode
_decode_call: Final = msgspec.msgpack.Decoder(RecordedCall).decode
_decode_values: Final = msgspec.msgpack.Decoder(list[Any]).decode
_NO_CALL: Final = RecordedCall("", None, "", [], {})


def request_rows(transactions: pa.Table) -> pa.Table:
    """Return the rows of `requests` for processed requests, which are as `REQUESTS`."""
    calls = _calls(transactions["request"].to_pylist())
    columns = [
        transactions["epoch"],
        transactions["lsn"],
        transactions["request_id"],
        transactions["time_us"].cast(_INSTANTS),
        pa.array([call.entity or None for call in calls], pa.string()),
        pa.array([call.key for call in calls], pa.string()),
        pa.array([call.method for call in calls], pa.string()),
        pa.array([arguments_text(call) for call in calls], pa.string()),
        transactions["parent"],
    ]
    names = ["epoch", "lsn", "request_id", "time", "entity", "key", "method", "arguments", "parent"]
    return pa.Table.from_arrays(columns, names=names)


def without_large(rows: pa.Table, cell_bytes_max: int | None) -> pa.Table:
    """Replace texts of more than `cell_bytes_max` bytes by NULL; None replaces nothing."""
    if cell_bytes_max is None:
        return rows
    for place, field in enumerate(rows.schema):
        if field.type == pa.string():
            large = pc.greater(pc.binary_length(rows[place]), cell_bytes_max)
            kept = pc.if_else(pc.fill_null(large, False), None, rows[place])  # noqa: FBT003
            rows = rows.set_column(place, field, kept)
    return rows


def reply_rows(transactions: pa.Table) -> pa.Table:
    """Return the rows of `replies` for processed requests."""
    replies = transactions["reply"].to_pylist()
    decoded = _values(replies)
    errors = transactions["error"].to_pylist()
    failures = [
        value if error is not None else (None, None, None)
        for error, value in zip(errors, decoded, strict=True)
    ]
    values = [
        None if error is not None else _text(value)
        for error, value in zip(errors, decoded, strict=True)
    ]
    columns = [
        transactions["epoch"],
        transactions["lsn"],
        transactions["request_id"],
        transactions["error"],
        pa.array([failure[1] for failure in failures], pa.string()),
        pa.array([failure[2] for failure in failures], pa.string()),
        pa.array(values, pa.string()),
    ]
    names = ["epoch", "lsn", "request_id", "error", "kind", "message", "value"]
    return pa.Table.from_arrays(columns, names=names)


def epoch_rows(epochs: Sequence[tuple[int, int, int]]) -> pa.Table:
    """Return the rows of `epochs`; the input has epoch, commit time in microseconds and requests."""
    columns = [
        pa.array([number for number, _, _ in epochs], pa.int64()),
        pa.array([time_us for _, time_us, _ in epochs], pa.int64()).cast(_INSTANTS),
        pa.array([records for _, _, records in epochs], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, names=["epoch", "time", "records"])


def _calls(bodies: Sequence[bytes]) -> list[RecordedCall]:
    try:
        return _decode_calls(array_header(len(bodies)) + b"".join(bodies))
    except (msgspec.MsgspecError, RecursionError):
        return [recorded_call(body) for body in bodies]


def recorded_call(body: bytes) -> RecordedCall:
    """Decode a request's body; an invalid body was answered with an error, and gives an empty call."""
    try:
        return _decode_call(body)
    except (msgspec.MsgspecError, RecursionError):
        return _NO_CALL


def _values(replies: Sequence[bytes]) -> list[Any]:
    try:
        return _decode_values(array_header(len(replies)) + b"".join(replies))
    except RecursionError:
        return [_value(reply) for reply in replies]


def _value(reply: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(reply)
    except RecursionError:
        return {UNSHOWN: _TOO_DEEP}


def _text(value: object) -> str:
    """Return the JSON of a value, or of the reason why it has none."""
    try:
        return json_text(value)
    except (RecursionError, Unshowable) as error:
        return json_text({UNSHOWN: str(error) if isinstance(error, Unshowable) else _TOO_DEEP})


def arguments_text(call: RecordedCall) -> str:
    """Return the JSON of the arguments, as in an HTTP body: an array, or an object if all have names."""
    if isinstance(call.positional, msgspec.msgpack.Ext):
        return _text([PERSONAL])
    named = {name: value for name, value in call.named.items() if name not in _HIDDEN}
    if call.positional and named:
        return _text({"positional": call.positional, "named": named})
    return _text(named or call.positional)


STREAMS: Final = "streams"
"""The schema of the tables of streams."""


def names_of(app: App, tables: Iterable[EntityTable]) -> list[str]:
    """Return the names of all tables of an application as queries write them."""
    streams = [written_name(STREAMS, name) for name in stream_names(app).values()]
    return [*(table.query_name for table in tables), *streams, *SYSTEM_TABLES]


def stream_names(app: App) -> dict[str, str]:
    """Return the name of each stream's table in the schema `streams`, by the name of the stream."""
    streams = list(app.topology.streams)
    return dict(zip(streams, unambiguous(streams), strict=True))
