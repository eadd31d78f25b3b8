"""`TableForm`: how the columns of a table become the fields of a record, checked before a row is taken.

A column may be taken if every value that it can have is a value of the field's type. Where this is not so, the message
names column, field and remedy. A field of type `str` takes the text of any column.
"""

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

from penstock.base.record import fields_of, simplified, tag_of_record
from penstock.base.schema import is_enum, name_of, reference_type
from penstock.captures.pgoutput import UNCHANGED, Values
from penstock.exchange.cells import CellForm, Cells, without_none

_TEXT: Final = 25
_INTEGERS: Final = frozenset({20, 21, 23, 26})
_TEXTS: Final = frozenset({18, 19, 25, 1042, 1043})
_JSON: Final = frozenset({114, 3802})
_NAIVE: Final = 1114
_UUID: Final = 2950
_KEYS: Final = frozenset({*_INTEGERS, _UUID})

_SOURCES: Final[dict[Any, frozenset[int]]] = {
    int: _INTEGERS,
    float: frozenset({700, 701}),
    bool: frozenset({16}),
    Decimal: frozenset({1700, *_INTEGERS}),
    bytes: frozenset({17}),
    date: frozenset({1082}),
    time: frozenset({1083}),
    datetime: frozenset({1184}),
    UUID: frozenset({_UUID}),
}
"""The types of columns that a field of a type takes; their numbers are fixed in PostgreSQL."""


class SourceColumn(NamedTuple):
    """A column, as the catalog of the database has it.

    Attributes:
        own_oid: The number of its type, as messages have it.
        type_oid: That number, or of a domain that of the type below it.
        type_name: The type as PostgreSQL writes it.
        category: `E` for an enumeration, `A` for an array, and so on.
        is_null: Whether it may be NULL, as far as it is known.
        is_long: Whether a long value is stored apart from its row, so that an update does not send it again.
    """

    name: str
    own_oid: int
    type_oid: int
    type_name: str
    category: str
    is_null: bool
    is_long: bool


class Unfit(Exception):
    """A row that its record cannot hold; the message says why, without the value."""


class TableForm:
    """The fields that a table gives a record.

    Attributes:
        table: The name of the table.
        key: The names of the columns of its primary key.
        untaken: The columns that no field takes.
        complaints: Why rows cannot be taken, each with the remedy; empty if they can.
    """

    def __init__(
        self,
        table: str,
        record: Any,
        columns: Sequence[SourceColumn],
        key: Sequence[str],
        connection: psycopg.Connection[Any],
    ) -> None:
        self.table = table
        self.key = tuple(key)
        self.columns = tuple(columns)
        self._loads = Transformer(connection)
        tag = tag_of_record(record)
        self._tag: dict[str, Any] = {} if tag is None else dict([tag])
        self._places: list[int] = []
        self._wires: list[str] = []
        self.complaints: list[str] = []
        known = {column.name: place for place, column in enumerate(columns)}
        fields = fields_of(record)
        oids: list[int] = []
        for field in fields:
            wire = field.member.wire
            if wire not in known:
                names = ", ".join(known)
                self.complaints.append(
                    f"{table} has no column {wire}, which the field of {name_of(record)} takes (it has {names}); deploy the "
                    "record without the field, or give it the name of a column"
                )
                continue
            column = columns[known[wire]]
            oid = self._loaded_as(column, field.annotation, f"{name_of(record)}.{wire}")
            if oid is not None:
                self._places.append(known[wire])
                self._wires.append(wire)
                oids.append(oid)
        self.untaken = tuple(column.name for column in columns if column.name not in self._wires)
        self.long = tuple(
            column.name
            for column in columns
            if column.is_long and column.name in self._wires and column.name not in self.key
        )
        self._oids = oids
        self._loads.set_loader_types(oids, Format.TEXT)
        self._key_places = [known[name] for name in key if name in known]

    def _loaded_as(self, column: SourceColumn, annotation: Any, field: str) -> int | None:
        """Return the type that a value is read as; None after a complaint."""
        plain, may_be_none = without_none(simplified(annotation))
        if column.is_null and not may_be_none:
            self.complaints.append(
                f"column {column.name} of {self.table} may be NULL, and {field} is {name_of(plain)}; declare {name_of(plain)} "
                f"| None, or ALTER TABLE {self.table} ALTER COLUMN {column.name} SET NOT NULL"
            )
            return None
        oid = _read_as(column, plain, annotation)
        if oid is None:
            hint = (
                "a time needs a zone to be an instant: declare str, or ALTER COLUMN … TYPE timestamptz"
                if column.type_oid == _NAIVE and plain is datetime
                else "declare the type of the column, or str for its text"
            )
            self.complaints.append(
                f"column {column.name} of {self.table} is {column.type_name}, and {field} is {name_of(plain)}; {hint}"
            )
        return oid

    def key_of(self, values: Values) -> str:
        """Return the text of the primary key in the values of a row: of several columns, as JSON of a list of texts."""
        texts = [values[place] for place in self._key_places]
        if len(texts) == 1:
            return (texts[0] or b"").decode()
        return msgspec.json.encode([(text or b"").decode() for text in texts]).decode()

    def row(self, values: Values) -> dict[str, Any]:
        """Return the fields of a row.

        Raises:
            Unfit: A value cannot be read, such as an infinite date.
        """
        taken = [values[place] for place in self._places]
        if UNCHANGED in taken:
            names = ", ".join(
                self._wires[place] for place, value in enumerate(taken) if value is UNCHANGED
            )
            raise Unfit(
                f"PostgreSQL has not sent {names}, which the update did not touch; ALTER TABLE {self.table} REPLICA IDENTITY FULL"
            )
        try:
            row = dict(zip(self._wires, self._loads.load_sequence(taken), strict=True))
        except (psycopg.Error, ValueError, ArithmeticError, RecursionError):
            raise Unfit(self._unread(taken)) from None
        row |= self._tag
        return row

    def _unread(self, taken: Values) -> str:
        """Return the name of the value that cannot be read."""
        for wire, oid, value in zip(self._wires, self._oids, taken, strict=True):
            try:
                loader = Transformer()
                loader.set_loader_types([oid], Format.TEXT)
                loader.load_sequence([value])
            except (psycopg.Error, ValueError, ArithmeticError, RecursionError):
                return f"column {wire}: Python has no such value"
        return "a column has a value that Python does not have"


def _read_as(column: SourceColumn, plain: Any, annotation: Any) -> int | None:
    """Return the type that the values of a column are read as; None if the field cannot take them."""
    oid, is_textual = column.type_oid, False
    is_text = column.type_oid in _TEXTS or column.category == "E"
    if plain is str:
        fits = is_textual = True
    elif plain in _SOURCES:
        fits = oid in _SOURCES[plain]
    elif reference_type(plain) is not None:
        fits, is_textual = is_text or oid in _KEYS, True
    elif Cells("", annotation).form is CellForm.TEXTUAL:
        fits, is_textual = is_text, True
    elif is_enum(plain):
        fits = oid in _INTEGERS
    else:
        fits = oid in _JSON or column.category == "A"
    if not fits:
        return None
    return _TEXT if is_textual else oid


def merged(old: Values | None, new: Values) -> Values:
    """Return a row whose unchanged values are those of the former row, as far as it is known."""
    if old is None or UNCHANGED not in new:
        return new
    return [before if after is UNCHANGED else after for before, after in zip(old, new, strict=True)]
