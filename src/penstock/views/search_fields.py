"""The fields of a search index: how the columns of a view's tables become fields of tantivy, and rows documents.

All tables of a view are in one index. A row is a document with its owner, its table, its values as JSON, and a field for
each column that can be searched. A field has the name of its column, so that a query can name it; tables whose columns of
one name have different kinds have the fields `TABLE.COLUMN` instead. One more document holds the position of the view.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec
import tantivy
import xxhash

from penstock.base.json_keys import float_text
from penstock.views.target import (
    FAILED,
    KEY,
    UNSHOWN,
    ColumnShape,
    Kind,
    Owner,
    Position,
    Row,
    TableShape,
)

FORMAT: Final = 1
"""The version of this layout; another one is filled again."""

# No column has a field whose name begins with two equals signs.
TABLE: Final = "==table"
OWNER: Final = "==owner"
ROW: Final = "==row"
_EXACT: Final = "="

POSITION_OWNER: Final = "position"
"""The owner of the document with the position; the owners of rows contain a NUL."""
NO_OWNER: Final = ""
"""An owner that no document has."""

WORDS: Final = "words"
"""The name of the tokenizer: words of letters and digits, in lower case, without accents."""

_WORD_BYTES_MAX: Final = 100
_TERM_BYTES_MAX: Final = 1_000
"""A longer text is found as a whole by its first characters with a hash, because tantivy ignores terms over 64 KB."""

_NULL: Final = "it is null in JSON, which looks as if it were absent"
_INTEGER_MAX: Final = (1 << 63) - 1
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Contents(msgspec.Struct, frozen=True):
    """The contents of an index: its document with the position.

    Attributes:
        text: The columns whose words are found.
        facets: The columns whose values are counted.
    """

    format: int
    position: Position
    shapes: tuple[TableShape, ...]
    text: tuple[str, ...]
    facets: tuple[str, ...]


class Use(Enum):
    """The part of a value that a field holds.

    WORDS: The words of a text. TERM: A text as a whole. INTEGER, FLOAT, BOOLEAN: A number or a truth. DATE: A time, in
    whole seconds.
    """

    WORDS = tantivy.FieldType.Text
    TERM = "term"
    INTEGER = tantivy.FieldType.Integer
    FLOAT = tantivy.FieldType.Float
    BOOLEAN = tantivy.FieldType.Boolean
    DATE = tantivy.FieldType.Date


class Field(NamedTuple):
    """A field of the index.

    Attributes:
        is_indexed: Whether queries of users can name it; otherwise only conditions do.
        is_counted: Whether its values are counted.
    """

    name: str
    use: Use
    is_indexed: bool = True
    is_counted: bool = False


class ColumnFields(NamedTuple):
    """The fields of a column.

    Attributes:
        named: The field that queries of users name; None without one.
        exact: The field that conditions compare; None: the column cannot be compared.
    """

    column: ColumnShape
    named: Field | None
    exact: Field | None


_EXACT_USES: Final = {
    Kind.TEXT: Use.TERM,
    Kind.UUID: Use.TERM,
    Kind.JSON: Use.TERM,
    Kind.INTEGER: Use.INTEGER,
    Kind.FLOAT: Use.FLOAT,
    Kind.DECIMAL: Use.FLOAT,
    Kind.BOOLEAN: Use.BOOLEAN,
    Kind.DATE: Use.INTEGER,
    Kind.TIMESTAMP: Use.INTEGER,
    Kind.TIME: Use.INTEGER,
    Kind.DURATION: Use.INTEGER,
}
_TIMES: Final = frozenset({Kind.DATE, Kind.TIMESTAMP})
_UNNAMED: Final = frozenset({Kind.TIME, Kind.DURATION})


class TableFields:
    """The fields of one table, and its rows as documents."""

    def __init__(self, shape: TableShape, columns: Sequence[ColumnFields]) -> None:
        self.shape = shape
        self.columns = {each.column.name: each for each in columns}
        self._writes = [
            (at, _write_of(each.column.kind, field))
            for at, each in enumerate(columns)
            for field in dict.fromkeys((each.named, each.exact))
            if field is not None
        ]
        self._encoded = [
            (each.name, _JSON_VALUES.get(each.kind) if each.name != UNSHOWN else None)
            for each in shape.columns
        ]

        self._nested = [
            (at, each.name) for at, each in enumerate(shape.columns[:-1]) if each.kind == Kind.JSON
        ]

    def document(self, row: Row) -> tantivy.Document:
        """Return the document of a row."""
        document = tantivy.Document()
        document.add_text(TABLE, self.shape.name)
        document.add_text(OWNER, owner_term(self.shape.name, row[0]))
        document.add_bytes(ROW, self._json(row))
        for at, write in self._writes:
            if row[at] is not None:
                write(document, row[at])
        return document

    def _json(self, row: Row) -> bytes:
        shown = {
            name: value if encode is None or value is None else encode(value)
            for (name, encode), value in zip(self._encoded, row, strict=True)
        }
        absent = {name: _NULL for at, name in self._nested if row[at] == "null"}
        if absent:
            shown[UNSHOWN] = {**(shown[UNSHOWN] or {}), **absent}
        return _encode((self.shape.name, shown))


class IndexFields:
    """The fields of all tables of a view.

    Attributes:
        tables: The tables by name.
    """

    def __init__(
        self, shapes: Sequence[TableShape], text: Sequence[str], facets: Sequence[str]
    ) -> None:
        kinds: dict[str, set[Kind]] = {}
        for shape in shapes:
            for column in shape.columns:
                kinds.setdefault(column.name, set()).add(column.kind)
        self.tables: Mapping[str, TableFields] = {
            shape.name: TableFields(
                shape,
                [
                    _fields_of(
                        column,
                        _field_name(shape.name, column.name, is_shared=len(kinds[column.name]) > 1),
                        is_text=_is_text(column, () if shape.name == FAILED else text),
                        is_counted=column.name in facets,
                    )
                    for column in shape.columns
                    if column.name != UNSHOWN
                ],
            )
            for shape in shapes
        }

    def schema(self) -> tantivy.Schema:
        """Return the schema of an index with these fields."""
        builder = tantivy.SchemaBuilder()
        builder.add_text_field(TABLE, tokenizer_name="raw", index_option="basic")
        builder.add_text_field(OWNER, tokenizer_name="raw", index_option="basic")
        builder.add_bytes_field(ROW, stored=True)
        for field in dict.fromkeys(self._all()):
            _ADD[field.use](builder, field)
        return builder.build()

    def _all(self) -> Iterator[Field]:
        for table in self.tables.values():
            for each in table.columns.values():
                yield from (field for field in (each.named, each.exact) if field is not None)


def word_analyzer() -> tantivy.TextAnalyzer:
    """Return the analyzer that divides a text into words, as the index does."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for each in (
        tantivy.Filter.remove_long(_WORD_BYTES_MAX),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
    ):
        builder = builder.filter(each)
    return builder.build()


def owner_term(table: str, owner: Owner) -> str:
    """Return the term by which the documents of an owner are deleted."""
    return term_of(f"{table}\0{owner}")


def term_of(text: str) -> str:
    """Return a text as a term, which is equal for equal texts only."""
    if len(text) * 4 <= _TERM_BYTES_MAX or len(text.encode()) <= _TERM_BYTES_MAX:
        return text
    # It is longer than every text that is its own term.
    return text[:_TERM_BYTES_MAX] + "…" + xxhash.xxh3_128_hexdigest(text.encode())


def position_document(contents: Contents) -> tantivy.Document:
    """Return the document with the position."""
    document = tantivy.Document()
    document.add_text(OWNER, POSITION_OWNER)
    document.add_bytes(ROW, msgspec.json.encode(contents))
    return document


def whole_number_of(value: date | datetime | time | timedelta | int) -> int:
    """Return a time as the number by which it is compared: microseconds, or the days of a date."""
    match value:
        case datetime():
            return (value - _BEGIN) // _MICROSECOND
        case date():
            return value.toordinal()
        case time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return seconds * 1_000_000 + value.microsecond
        case timedelta():
            # Durations of more than 292,000 years are compared as equal.
            return max(-_INTEGER_MAX, min(_INTEGER_MAX, value // _MICROSECOND))
        case _:
            return int(value)


def float_of(value: float | Decimal) -> float:
    """Return a number as the float by which it is compared."""
    return math.nan if isinstance(value, Decimal) and value.is_snan() else float(value)


def _is_text(column: ColumnShape, text: Sequence[str]) -> bool:
    if column.kind not in (Kind.TEXT, Kind.JSON):
        return False
    return column.name in text if text else column.kind == Kind.TEXT and column.name != KEY


def _field_name(table: str, column: str, *, is_shared: bool) -> str:
    name = f"{table}.{column}" if is_shared else column
    is_usable = tantivy.SchemaBuilder.is_valid_field_name(name) and name[0] not in "=@"
    return name if is_usable else f"@{name}"


def _fields_of(column: ColumnShape, name: str, *, is_text: bool, is_counted: bool) -> ColumnFields:
    use = _EXACT_USES.get(column.kind)
    if use is None:
        return ColumnFields(column, None, None)
    own = Field(_EXACT + name, use, is_indexed=False, is_counted=is_counted)
    if is_text:
        return ColumnFields(column, Field(name, Use.WORDS), own)
    if column.kind in _TIMES:
        return ColumnFields(column, Field(name, Use.DATE), own)
    if column.kind in _UNNAMED:
        return ColumnFields(column, None, own)
    both = Field(name, use, is_counted=is_counted)
    return ColumnFields(column, both, both)


def _add_text(builder: tantivy.SchemaBuilder, field: Field) -> None:
    builder.add_text_field(
        field.name, fast=field.is_counted, tokenizer_name="raw", index_option="basic"
    )


_ADD: Final[Mapping[Use, Callable[[tantivy.SchemaBuilder, Field], object]]] = {
    Use.WORDS: lambda builder, field: builder.add_text_field(field.name, tokenizer_name=WORDS),
    Use.TERM: _add_text,
    Use.INTEGER: lambda builder, field: builder.add_integer_field(
        field.name, indexed=field.is_indexed, fast=True
    ),
    Use.FLOAT: lambda builder, field: builder.add_float_field(field.name, indexed=True, fast=True),
    Use.BOOLEAN: lambda builder, field: builder.add_boolean_field(
        field.name, indexed=True, fast=True
    ),
    Use.DATE: lambda builder, field: builder.add_date_field(field.name, indexed=True, fast=True),
}


def _write_of(column_kind: Kind, field: Field) -> Callable[[tantivy.Document, Any], None]:
    """Return a function that adds a value of a column to a document."""
    name, write = field.name, _WRITES[field.use]
    if column_kind != Kind.JSON:
        return lambda document, value: write(document, name, value)

    def write_each(document: tantivy.Document, text: str) -> None:
        for each in texts_in(msgspec.json.decode(text)):
            write(document, name, each)

    return write_each


def _add_date(document: tantivy.Document, name: str, value: date) -> None:
    when = value
    if not isinstance(when, datetime):
        when = datetime(value.year, value.month, value.day, tzinfo=UTC)
    # Conditions compare the other field of the column, which has each time.
    if tantivy.MIN_DATETIME <= when <= tantivy.MAX_DATETIME:
        document.add_date(name, when)


_WRITES: Final[Mapping[Use, Callable[[tantivy.Document, str, Any], None]]] = {
    Use.WORDS: lambda document, name, value: document.add_text(name, value),
    Use.TERM: lambda document, name, value: document.add_text(name, term_of(str(value))),
    Use.INTEGER: lambda document, name, value: document.add_integer(name, whole_number_of(value)),
    Use.FLOAT: lambda document, name, value: document.add_float(name, float_of(value)),
    Use.BOOLEAN: lambda document, name, value: document.add_boolean(name, value),
    Use.DATE: _add_date,
}


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a decoded JSON value; those of a dictionary without its keys."""
    match value:
        case str():
            yield value
        case bool():
            yield "true" if value else "false"
        case int() | float():
            yield str(value)
        case list():
            for each in value:
                yield from texts_in(each)
        case dict():
            for each in value.values():
                yield from texts_in(each)
        case _:  # null
            pass


_encode: Final = msgspec.json.Encoder().encode


def _float_value(value: float) -> float | str:
    return value if math.isfinite(value) else float_text(value)


_JSON_VALUES: Final[Mapping[Kind, Callable[[Any], Any]]] = {
    Kind.FLOAT: _float_value,
    Kind.JSON: lambda text: msgspec.Raw(text.encode()),
}
