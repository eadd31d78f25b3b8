"""The tables of an application's entities: one for each class, typed, in SQL and in Arrow.

Promises rows that fit the tables they are for, from what the journal holds. Leaves to `column` how
values become columns.

An entity's table is named as its class, its columns as the key and the attributes, in the order of
declaration; names that differ only by case, which SQL ignores, are numbered (`price`, `Price_2`).
"""

import struct
import types
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec
import pyarrow as pa

from penstock.errors import Diverged
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.state.column import Column, column_of, distinct, keys_of, quoted


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
        row: Any = types.GenericAlias(tuple, (Literal[kind.shape.tag], *wires))
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
            Diverged: A state is of another shape than this class, or does not fit it.
        """
        try:
            decoded = self._decode(array_header(len(states)) + b"".join(states))
        except msgspec.MsgspecError as error:
            for text, state in zip(texts, states, strict=True):
                self.kind.check_shape(text, state)
            raise Diverged(
                f"the journal holds a {self.kind.name} that does not fit its class: {error}"
            ) from error
        parts: Iterable[Sequence[Any]] = islice(zip(*decoded, strict=True), 1, None)  # no tags
        if not decoded:
            parts = [()] * len(self.kind.attributes)
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


def array_header(count: int) -> bytes:
    """Begin a MessagePack array, so that many values are decoded by one call."""
    return struct.pack(">BI", 0xDD, count)
