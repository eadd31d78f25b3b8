"""Cells: one value of an attribute in a file, and the value that the attribute has.

A file has a column for the key and for each attribute. A cell of JSON lines is the JSON of the value, as the HTTP API
gives and takes it. A cell of a table (CSV, Parquet, PostgreSQL) depends on the declared type:

- `str`: the text.
- types whose JSON is a text, such as dates, decimals, enumerations of texts and references: this text, or the value
  that the table itself has, such as a date.
- `int`, `float`, `bool`: the number, or its text.
- all other types: the JSON of the value; Parquet and PostgreSQL may also have lists, structs and JSON documents.

No value stands for None. A value that is written here is read here as the same value, of every type that can be stored.
"""

import enum
import types
import typing
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa

from penstock.base.given_type import GivenType
from penstock.base.json_keys import as_text, json_bytes
from penstock.base.record import simplified
from penstock.base.schema import is_enum, name_of, reference_type

_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode
_TEXTUAL: Final = frozenset({date, datetime, time, timedelta, Decimal, UUID, bytes})
_NUMBERS: Final = frozenset({int, float, bool})
_ARROW: Final[dict[Any, pa.DataType]] = {
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    time: pa.time64("us"),
    datetime: pa.timestamp("us", "UTC"),
}
"""The types of Arrow that have each value of a type; all other values are texts, which lose nothing."""

_INT64: Final = range(-(2**63), 2**63)
_SHOWN: Final = 80
_FLOATS: Final = ("NaN", "Infinity", "-Infinity")


class CellForm(Enum):
    """How a table has the values of a type."""

    TEXT = auto()
    TEXTUAL = auto()
    NUMBER = auto()
    JSON = auto()


class Misread(ValueError):
    """A cell does not fit the type of its attribute; the message says why."""


class Cells:
    """The cells of one attribute.

    Attributes:
        name: The name of the attribute, and of the column.
        annotation: The declared type, with its constraints.
        form: How a table has the values.
    """

    def __init__(self, name: str, annotation: Any, *, is_csv: bool = False) -> None:
        """Describe an attribute.

        Args:
            is_csv: Whether the cells are those of CSV, where most programs write an empty text without quotes.
        """
        self.name = name
        self.annotation = annotation
        self._is_csv = is_csv
        plain, self._may_be_none = without_none(simplified(annotation))
        self._plain = plain
        self.form = _form_of(plain)
        self._given = GivenType(annotation)
        self._every = GivenType(list.__class_getitem__(annotation))
        # An integer that fits is a number in Parquet; a column with a larger one is text.
        self.arrow: pa.DataType = pa.int64() if plain is int else _ARROW.get(plain, pa.string())

    @property
    def type_name(self) -> str:
        """The type in messages."""
        return name_of(simplified(self.annotation))

    def read(self, cells: Sequence[Any], *, is_text: bool) -> list[Any]:
        """Return the values of the cells of a table, all at once, which takes a tenth of the time.

        Args:
            is_text: Whether the cells are texts and None, and not the values that the table has.

        Raises:
            Exception: A cell does not fit; `read_one` finds it.
        """
        if self.form is CellForm.JSON or (self._plain is float and is_text):
            return [self.read_one(cell, is_text=is_text) for cell in cells]
        if self.form is CellForm.TEXT and self._is_csv and not self._may_be_none:
            cells = ["" if cell is None else cell for cell in cells]
        is_strict = self.form is not CellForm.NUMBER or not is_text
        if self._plain is float and any(map(_is_rounded, cells)):
            raise Misread("a float cannot hold a cell")
        made: list[Any] = self._every.converted(cells, strict=is_strict)
        return made

    def read_one(self, cell: Any, *, is_text: bool) -> Any:
        """Return the value of a cell of a table.

        Raises:
            Misread: It does not fit.
        """
        if cell is None and self.form is CellForm.TEXT and self._is_csv and not self._may_be_none:
            cell = ""
        if self._plain is float and _is_rounded(cell):
            raise Misread(f"a float cannot hold {cell}, only {float(cell)!r}")
        is_strange = self._plain is float and cell in _FLOATS
        if isinstance(cell, str) and (self.form is CellForm.JSON or is_strange):
            return self.of_json(_encode(cell) if is_strange else cell.encode())
        is_strict = self.form is not CellForm.NUMBER or not is_text
        return _fitting(lambda: self._given.converted(cell, strict=is_strict))

    def of_json(self, raw: bytes | msgspec.Raw) -> Any:
        """Return the value of a piece of JSON.

        Raises:
            Misread: It does not fit.
        """
        return _fitting(lambda: self._given.of_json(raw))

    def read_json(self, cells: Sequence[msgspec.Raw]) -> list[Any]:
        """Return the values of pieces of JSON, all at once; raises as `read`."""
        made: list[Any] = self._every.of_json(b"[%s]" % b",".join(map(bytes, cells)))
        return made

    def texts(self, values: Sequence[Any]) -> list[str | None]:
        """Return the cells of CSV of values as MessagePack has them, see `EntityType.plain`."""
        if self.form is CellForm.JSON:
            return [
                None if value is None and self._may_be_none else _json(value) for value in values
            ]
        return [None if value is None else _text(value) for value in values]

    def array(self, values: Sequence[Any], *, wide: bool) -> pa.Array:
        """Return the cells of Parquet of values as MessagePack has them.

        Args:
            wide: Whether whole numbers are texts.

        Raises:
            OverflowError: A whole number needs `wide`.
        """
        if self.arrow == pa.int64():
            if not wide:
                return pa.array(values, pa.int64())
            return pa.array([None if each is None else str(each) for each in values], pa.string())
        if self.arrow == pa.string():
            return pa.array(self.texts(values), pa.string())
        plain = _FROM_WIRE.get(self._plain)
        return pa.array(values if plain is None else list(map(plain, values)), self.arrow)

    def field(self, *, wide: bool) -> pa.Field:
        """Return the column of Parquet."""
        is_number = self.arrow == pa.int64()
        return pa.field(self.name, pa.string() if wide and is_number else self.arrow)


def _is_rounded(cell: Any) -> bool:
    """Say whether a cell is an integer that no float equals; a column of integers has a type, unlike a number of JSON or CSV."""
    return type(cell) is int and float(cell) != cell


def shown(cell: Any) -> str:
    """Return a cell as text for a message, shortened."""
    if isinstance(cell, msgspec.Raw):
        text = bytes(cell).decode(errors="replace")
    else:
        try:
            text = repr(cell)
        except Exception:  # noqa: BLE001 -- of an object of a library
            text = f"a value of type {type(cell).__qualname__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _form_of(annotation: Any) -> CellForm:
    if annotation is str:
        return CellForm.TEXT
    if annotation in _NUMBERS:
        return CellForm.NUMBER
    if annotation in _TEXTUAL or reference_type(annotation) is not None:
        return CellForm.TEXTUAL
    values: list[Any] = []
    if typing.get_origin(annotation) is typing.Literal:
        values = list(typing.get_args(annotation))
    elif is_enum(annotation) and not issubclass(annotation, enum.Flag):
        values = [member.value for member in annotation]
    if values and all(type(value) is str for value in values):
        return CellForm.TEXTUAL
    return CellForm.JSON


def without_none(annotation: Any) -> tuple[Any, bool]:
    """Return a type without None, and whether it had it."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, annotation is type(None) or annotation is Any
    members = [each for each in typing.get_args(annotation) if each is not type(None)]
    if len(members) == len(typing.get_args(annotation)):
        return annotation, False
    return (members[0] if len(members) == 1 else annotation), True


def _fitting(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RecursionError as error:
        raise Misread("it is nested too deeply") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the code of a record, which is a user's, raises anything
        raise Misread(reason_of_misfit(error)) from error


def reason_of_misfit(error: BaseException) -> str:
    """Return the first line of an error, whose text code of a user may make."""
    try:
        text = str(error).partition("\n")[0]
    except Exception:  # noqa: BLE001 -- see above
        text = ""
    return text or type(error).__qualname__


def _json(value: Any) -> str:
    return json_bytes(_encode, value).decode()


def _text(value: Any) -> str:
    return value if type(value) is str else _json(value).strip('"')


def _instant(value: Any) -> Any:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _or_none(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: read(value) if isinstance(value, str) else value


_FROM_WIRE: Final[dict[Any, Callable[[Any], Any]]] = {
    date: _or_none(date.fromisoformat),
    time: _or_none(time.fromisoformat),
    datetime: _instant,
}
"""Makes the values of Arrow of those of MessagePack, by type."""


def needs_wide(values: Sequence[Any]) -> bool:
    """Say whether a whole number of these needs more than 64 bits with a sign."""
    return any(value is not None and value not in _INT64 for value in values)
