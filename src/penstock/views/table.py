"""The tables of a view: one for each entity class, and Penstock's own.

Promises rows that fit the tables they are for, from what the journal holds. Leaves to `column` how
values become columns, and to `store` how rows get into tables.

An entity's table is named as its class, its columns as the key and the attributes, in the order of
declaration; names that differ only by case, which SQL ignores, are numbered (`price`, `Price_2`).
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.base.ids import fingerprint_of
from penstock.errors import Diverged
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.views.column import Column, column_of, distinct, json_text, keys_of, quoted

SYSTEM: Final = "penstock"
"""The schema of Penstock's own tables."""

_VERSION: Final = 2
"""Of all tables together: a view made with another one is rebuilt."""

_INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
SYSTEM_TABLES: Final[Mapping[str, str]] = {
    "requests": f"epoch BIGINT, lsn BIGINT, request_id VARCHAR, time {_INSTANT}, entity VARCHAR, "
    "key VARCHAR, method VARCHAR, arguments VARCHAR",
    "replies": "epoch BIGINT, lsn BIGINT, request_id VARCHAR, error VARCHAR, kind VARCHAR, "
    "message VARCHAR, value VARCHAR",
    "epochs": f"epoch BIGINT, time {_INSTANT}, records BIGINT",
}
"""Name to columns."""

_INSTANTS: Final = pa.timestamp("us", "UTC")


class EntityTable:
    """The table of one entity class."""

    def __init__(self, kind: EntityType, name: str, *, wide: bool) -> None:
        self.kind = kind
        self.name = name
        self.wide = wide
        self.columns: list[tuple[str, Column]] = [
            (column_name, column)
            for column_name, column in zip(
                distinct([kind.key_name, *kind.attributes]),
                [
                    column_of(kind.key_annotation, wide=wide),
                    *(column_of(one, wide=wide) for one in kind.attributes.values()),
                ],
                strict=True,
            )
        ]
        self.key = self.columns[0][0]
        self._keys = None if kind.key_is_text else list[kind.key_annotation]  # type: ignore[name-defined]
        wires = tuple(column.wire for _, column in self.columns[1:])
        row: Any = tuple[wires] if wires else tuple[()]  # type: ignore[valid-type]
        self._decode = msgspec.msgpack.Decoder(list[row]).decode

    @property
    def definition(self) -> str:
        """The columns, as CREATE TABLE wants them."""
        return ", ".join(f"{quoted(name)} {column.sql}" for name, column in self.columns)

    def keys(self, texts: Sequence[str]) -> pa.Table:
        """Return a table of keys, from their texts."""
        column = self.columns[0][1]
        return pa.table({self.key: column.build(keys_of(texts, self._keys))})

    def rows(self, texts: Sequence[str], states: Sequence[bytes]) -> pa.Table:
        """Return rows from keys' texts and states as the journal has them.

        Raises:
            TooNarrow: A value wants the wide types.
            Diverged: A state is not of this class as it is declared now.
        """
        try:
            decoded = self._decode(_array_header(len(states)) + b"".join(states))
        except msgspec.MsgspecError as error:
            raise Diverged(
                f"the journal holds a {self.kind.name} that does not fit its class: {error}"
            ) from error
        parts: Iterable[Sequence[Any]] = zip(*decoded, strict=True)
        values = [keys_of(texts, self._keys), *parts]
        arrays = [
            column.build(part) for (_, column), part in zip(self.columns, values, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=[name for name, _ in self.columns])


def tables_of(app: App, wide: Iterable[str] = ()) -> dict[str, EntityTable]:
    """Return the tables of an application by class name; `wide` names the wide classes."""
    chosen = frozenset(wide)
    names = distinct(list(app.entities))
    return {
        kind.name: EntityTable(kind, name, wide=kind.name in chosen)
        for kind, name in zip(app.entities.values(), names, strict=True)
    }


def layout_of(app: App) -> str:
    """Return what changes when tables must be made anew, because classes are declared otherwise."""
    tables = [f"{one.name}({one.definition})" for one in tables_of(app).values()]
    system = [f"{name}({columns})" for name, columns in SYSTEM_TABLES.items()]
    return f"{fingerprint_of('; '.join([str(_VERSION), *tables, *system])):016x}"


class _Call(msgspec.Struct, frozen=True, array_like=True):
    entity: str
    key: str | None
    method: str
    positional: list[Any]
    named: dict[str, Any]


_decode_calls: Final = msgspec.msgpack.Decoder(list[_Call]).decode
_decode_call: Final = msgspec.msgpack.Decoder(_Call).decode
_decode_values: Final = msgspec.msgpack.Decoder(list[Any]).decode
_NO_CALL: Final = _Call("", None, "", [], {})


def request_rows(transactions: pa.Table) -> pa.Table:
    """Return rows of `requests` from rows of the journal's transactions."""
    calls = _calls(transactions["request"].to_pylist())
    named = [
        transactions["epoch"],
        transactions["lsn"],
        transactions["request_id"],
        transactions["time_us"].cast(_INSTANTS),
        pa.array([one.entity or None for one in calls], pa.string()),
        pa.array([one.key for one in calls], pa.string()),
        pa.array([one.method for one in calls], pa.string()),
        pa.array([json_text(_arguments(one)) for one in calls], pa.string()),
    ]
    names = ["epoch", "lsn", "request_id", "time", "entity", "key", "method", "arguments"]
    return pa.Table.from_arrays(named, names=names)


def reply_rows(transactions: pa.Table) -> pa.Table:
    """Return rows of `replies` from rows of the journal's transactions."""
    replies = transactions["reply"].to_pylist()
    decoded = _decode_values(_array_header(len(replies)) + b"".join(replies))
    errors = transactions["error"].to_pylist()
    failures = [
        value if error is not None else (None, None, None)
        for error, value in zip(errors, decoded, strict=True)
    ]
    values = [
        None if error is not None else json_text(value)
        for error, value in zip(errors, decoded, strict=True)
    ]
    columns = [
        transactions["epoch"],
        transactions["lsn"],
        transactions["request_id"],
        transactions["error"],
        pa.array([one[1] for one in failures], pa.string()),
        pa.array([one[2] for one in failures], pa.string()),
        pa.array(values, pa.string()),
    ]
    names = ["epoch", "lsn", "request_id", "error", "kind", "message", "value"]
    return pa.Table.from_arrays(columns, names=names)


def epoch_rows(epochs: Sequence[tuple[int, int, int]]) -> pa.Table:
    """Return rows of `epochs` from (epoch, microseconds, records)."""
    numbers, times, records = zip(*epochs, strict=True)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array(times, pa.int64()).cast(_INSTANTS),
        pa.array(records, pa.int64()),
    ]
    return pa.Table.from_arrays(columns, names=["epoch", "time", "records"])


def _calls(bodies: Sequence[bytes]) -> list[_Call]:
    try:
        return _decode_calls(_array_header(len(bodies)) + b"".join(bodies))
    except msgspec.MsgspecError:
        return [_call(one) for one in bodies]


def _call(body: bytes) -> _Call:
    """Read a body; one that is no request was answered with an error, and is listed empty."""
    try:
        return _decode_call(body)
    except msgspec.MsgspecError:
        return _NO_CALL


def _arguments(call: _Call) -> object:
    """Return arguments as they are sent over HTTP: an array, or an object where all have names."""
    if call.positional and call.named:
        return {"positional": call.positional, "named": call.named}
    return call.named or call.positional


def _array_header(count: int) -> bytes:
    """Begin a MessagePack array, so that many values are decoded by one call."""
    return struct.pack(">BI", 0xDD, count)
