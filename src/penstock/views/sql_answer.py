"""`SqlAnswer`: the answer of the query of one table of a view: its rows as targets have them, and the difference to the next one.

The rows may lie in a file that is read in place, and they are compared in slices. So the memory does not grow with the
answer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import duckdb
import msgspec
import pyarrow as pa

from penstock.base.decimals import DECIMAL_PLACES, short_decimal
from penstock.model.views.view import QueryTable
from penstock.snapshots.column import quoted
from penstock.snapshots.text import exact_json, interval_text
from penstock.sql_view.connection import close_to_outside, open_isolated
from penstock.sql_view.result_diff import SLICE, differing_rows
from penstock.views.tables import FAILED_SHAPE, KEY_COLUMN, UNSHOWN_COLUMN, ReadColumn, joined_rows
from penstock.views.target import (
    KEY,
    UNSHOWN,
    ColumnShape,
    Kind,
    Refused,
    Row,
    TableChange,
    TableShape,
    TargetProblem,
)

FAILED_MAX: Final = 1_000
"""The most keys of one table that are listed because several rows have them."""

_STEP: Final = 20_000
_MEMORY_MB: Final = 192
"""The memory of DuckDB for one slice."""

_PRESENT: Final = "present_answer"
_FORMER: Final = "former_answer"
_MICROSECOND_NS: Final = 1_000
DEPLOY: Final = "correct the query, and deploy it"
"""The remedy for a query that cannot be shown."""

_decode_reasons: Final = msgspec.json.Decoder(dict[str, str]).decode
_HUGEINT_DIGITS: Final = 38
_KEY_KINDS: Final = frozenset(
    {
        *(Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.UUID, Kind.DECIMAL),
        *(Kind.DATE, Kind.TIME, Kind.TIMESTAMP),
    }
)
_KINDS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint"), Kind.INTEGER),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint", "hugeint"), Kind.INTEGER),
    **dict.fromkeys(("float", "double"), Kind.FLOAT),
    **dict.fromkeys(("varchar", "enum"), Kind.TEXT),
    **dict.fromkeys(("list", "array", "struct", "map"), Kind.JSON),
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms"), Kind.TIMESTAMP),
    "timestamp with time zone": Kind.TIMESTAMP,
    "boolean": Kind.BOOLEAN,
    "decimal": Kind.DECIMAL,
    "blob": Kind.BYTES,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "interval": Kind.DURATION,
    "uuid": Kind.UUID,
}
"""The kind of a column, by the id of its type in DuckDB."""


class SqlAnswer:
    """The answer of the query of one table.

    Attributes:
        shape: The table as targets have it.

    Args:
        rows: The rows, which may be in a file that is read in place.
        types: The SQL type of each column.

    Raises:
        Refused: No target can show it, or it lacks the key.
    """

    def __init__(self, table: QueryTable, rows: pa.Table, types: Sequence[str]) -> None:
        self.name = table.name
        self.key = table.key
        self.table = rows
        self._cells = [
            _read_column(column, sql_type, rows.schema.field(place).type)
            for place, (column, sql_type) in enumerate(zip(rows.column_names, types, strict=True))
            if column != UNSHOWN
        ]
        shapes = tuple(cells.shape for cells in self._cells)
        self.shape = TableShape(table.name, 1, (KEY_COLUMN, *shapes, UNSHOWN_COLUMN))
        kinds = {shape.name: shape.kind for shape in shapes}
        for name in self.key:
            if kinds.get(name) not in _KEY_KINDS:
                has = f"is of the kind {kinds[name]}" if name in kinds else "is not in the answer"
                raise Refused(f"table {table.name}: the key {name} {has}", DEPLOY)

    @property
    def key_text(self) -> str:
        """The SQL expression of the text of a row's key: that of a single column, or a list of such texts as JSON."""
        texts = [f"CAST({quoted(name)} AS VARCHAR)" for name in self.key]
        return texts[0] if len(texts) == 1 else f"CAST(to_json([{', '.join(texts)}]) AS VARCHAR)"

    def filling(self) -> Iterator[TableChange]:
        """Yield all rows in parts, and the absent ones.

        Raises:
            TargetProblem: DuckDB fails.
        """
        with _translating_errors(self.name), closing(_Comparison(self)) as comparison:
            yield from comparison.rows()

    def changes_since(self, former: "SqlAnswer") -> Iterator[TableChange]:
        """Yield the changes from an answer of the same form, in slices; raises as `filling`."""
        with _translating_errors(self.name), closing(_Comparison(self, former)) as comparison:
            yield from comparison.changes()

    def has_form_of(self, other: "SqlAnswer") -> bool:
        """Say whether the columns have the same names and types."""
        schemas = (each.table.schema.remove_metadata() for each in (self, other))
        return bool(next(schemas) == next(schemas))

    def rows(self, part: pa.Table) -> list[Row]:
        """Return some rows as targets have them; the first column of the part is the text of the key."""
        if not part.num_rows:
            return []
        keys, *columns = part.columns
        parts = [_values(column) for column in columns]
        reasons: list[dict[str, str]] | None = None
        if UNSHOWN in self.table.column_names:
            # `SELECT *` gives it, when the SQL view itself cannot show a value of the class.
            known = parts.pop(self.table.column_names.index(UNSHOWN))
            reasons = [_decode_reasons(each) if each else {} for each in known]
        return joined_rows([keys.to_pylist()], self._cells, parts, reasons)

    def differs(self) -> Iterator[str]:
        """Yield the conditions of which one is true if two rows with the same key are not the same."""
        for field in self.table.schema:
            former, present = (f"{row}.{quoted(field.name)}" for row in ("former", "present"))
            yield f"{former} IS DISTINCT FROM {present}"
            # Some equal values are not the same: 0.0 and -0.0, 30 days and a month.
            if _has_twins(field.type):
                texts = [f"CAST({value} AS VARCHAR)" for value in (former, present)]
                yield f"{texts[0]} IS DISTINCT FROM {texts[1]}"


class _Unreadable:
    """A value that Python does not have, such as a time behind the year 9999."""


_UNREADABLE: Final = _Unreadable()


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_value(each) for each in column]
    return values


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _UNREADABLE


def _read_column(name: str, sql_type: str, arrow: pa.DataType) -> ReadColumn:
    column_kind = Kind.JSON if sql_type == "JSON" else _KINDS.get(duckdb.sqltype(sql_type).id)
    if column_kind is None:
        raise Refused(f"no target holds the column {name} of the type {sql_type}", DEPLOY)
    convert: Callable[[Any], Any]
    match column_kind:
        case Kind.JSON if sql_type != "JSON":
            convert = _json_of(arrow)
        case Kind.INTEGER if pa.types.is_decimal(arrow) or pa.types.is_uint64(arrow):
            convert = _small_integer
        case Kind.DECIMAL if arrow.scale >= DECIMAL_PLACES:
            # As a decimal attribute of a class is shown: without the zeros that SQL has added.
            convert = _short
        case Kind.TIMESTAMP:
            convert = _instant
        case Kind.DURATION:
            convert = _duration
        case Kind.UUID:
            convert = UUID
        case _:
            convert = _same
    return ReadColumn(
        ColumnShape(name, column_kind),
        lambda values: [_converted(convert, each) for each in values],
    )


def _converted(convert: Callable[[Any], Any], value: Any) -> Any:
    if value is None:
        return None
    if value is _UNREADABLE:
        raise ValueError("it is infinite, or outside of the years 1 to 9999")
    return convert(value)


def _same(value: Any) -> Any:
    return value


def _small_integer(value: Any) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("it needs more than 64 bits")
    return number


def _short(value: Decimal) -> Decimal:
    return Decimal(short_decimal(value))


def _instant(value: datetime) -> datetime:
    # A time without a zone is one in UTC, as in SQL.
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def _duration(value: Any) -> timedelta:
    if value.months:
        raise ValueError("it has months, whose length differs")
    return timedelta(days=value.days, microseconds=value.nanoseconds // _MICROSECOND_NS)


def _json_of(arrow: pa.DataType) -> Callable[[Any], str]:
    plain = _plain_of(arrow)
    return lambda value: exact_json(plain(value))


def _plain_of(arrow: pa.DataType) -> Callable[[Any], Any]:  # noqa: PLR0911 -- one return for each type
    """Return the conversion of a nested value to one that JSON shows as it shows the attribute of a class."""
    if pa.types.is_map(arrow):
        key, item = _plain_of(arrow.key_type), _plain_of(arrow.item_type)
        return lambda pairs: _mapping([(key(name), _inner(item, each)) for name, each in pairs])
    if pa.types.is_struct(arrow):
        fields = {field.name: _plain_of(field.type) for field in arrow}
        return lambda value: {name: _inner(fields[name], each) for name, each in value.items()}
    if pa.types.is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        inside = _plain_of(arrow.value_type)
        return lambda values: [_inner(inside, each) for each in values]
    if pa.types.is_interval(arrow):
        return lambda value: interval_text(value.months, value.days, value.nanoseconds)
    if pa.types.is_decimal(arrow) and arrow.scale >= DECIMAL_PLACES:
        return short_decimal
    if pa.types.is_decimal(arrow) and arrow.scale == 0 and arrow.precision == _HUGEINT_DIGITS:
        return int
    return _same


def _inner(plain: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else plain(value)


def _mapping(pairs: list[tuple[Any, Any]]) -> Any:
    return dict(pairs) if all(isinstance(name, str) for name, _ in pairs) else pairs


def _has_twins(arrow: pa.DataType) -> bool:
    if pa.types.is_floating(arrow) or pa.types.is_interval(arrow):
        return True
    return any(_has_twins(arrow.field(place).type) for place in range(arrow.num_fields))


@contextmanager
def _translating_errors(name: str) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise TargetProblem(
            f"table {name}: the answer cannot be compared: {str(error).partition(chr(10))[0]}"
        ) from error


class _Comparison:
    """An answer in DuckDB, perhaps with the former one."""

    def __init__(self, present: SqlAnswer, former: SqlAnswer | None = None) -> None:
        self._present = present
        self._former = former
        self._connection = open_isolated(_MEMORY_MB)
        close_to_outside(self._connection)
        self._connection.register(_PRESENT, present.table)
        if former is not None:
            self._connection.register(_FORMER, former.table)

    def close(self) -> None:
        self._connection.close()

    def rows(self) -> Iterator[TableChange]:
        """Yield the rows of the present answer in parts, and those that are absent."""
        answer = self._present
        failed = self._failed(_PRESENT)
        reader: Iterator[pa.RecordBatch] = self._connection.sql(
            f"SELECT {answer.key_text}, * FROM {self._unique(_PRESENT, failed)}"
        ).to_arrow_reader(_STEP)
        for batch in reader:
            yield TableChange(answer.shape, (), answer.rows(pa.Table.from_batches([batch])))
        yield TableChange(FAILED_SHAPE, (), list(failed.values()))

    def changes(self) -> Iterator[TableChange]:
        """Yield the changes from the former answer to the present one, in slices."""
        assert self._former is not None
        answer = self._present
        failed, was_failed = self._failed(_PRESENT), self._failed(_FORMER)
        key = f"SELECT {answer.key_text} AS {quoted(KEY)}, *"
        pairs = differing_rows(
            self._connection,
            f"({key} FROM {self._unique(_FORMER, was_failed)})",
            f"({key} FROM {self._unique(_PRESENT, failed)})",
            answer.key,
            list(answer.differs()),
            rows=self._former.table.num_rows + answer.table.num_rows,
        )
        for gone, added in pairs:
            if touched := [*gone[KEY].to_pylist(), *added[KEY].to_pylist()]:
                yield TableChange(answer.shape, touched, answer.rows(added))
        differing = [own for own in failed | was_failed if failed.get(own) != was_failed.get(own)]
        if differing:
            rows = [failed[own] for own in differing if own in failed]
            yield TableChange(FAILED_SHAPE, differing, rows)

    def _unique(self, name: str, failed: dict[str, Row]) -> str:
        """Return the rows of an answer whose key is there, and of no other row."""
        if not failed:
            return name
        keys = [quoted(each) for each in self._present.key]
        present = " AND ".join(f"{each} IS NOT NULL" for each in keys)
        return (
            f"(SELECT * FROM {name} WHERE {present} "
            f"QUALIFY count(*) OVER (PARTITION BY {', '.join(keys)}) = 1)"
        )

    def _failed(self, name: str) -> dict[str, Row]:
        """Return the rows of the table of failed rows, by their key."""
        answer = self._present
        keys = [quoted(each) for each in answer.key]
        is_null = " OR ".join(f"{each} IS NULL" for each in keys)
        rows = (
            answer.table.num_rows
            if self._former is None or name == _PRESENT
            else self._former.table.num_rows
        )
        slices = max(1, -(-rows // SLICE))
        failed: dict[str, Row] = {}
        more = 0
        for at in range(slices):
            repeated = self._connection.execute(
                f"SELECT {answer.key_text}, count(*) FROM {name} WHERE NOT ({is_null}) "
                f"AND hash({', '.join(keys)}) % {slices} = {at} "
                f"GROUP BY {', '.join(keys)} HAVING count(*) > 1 ORDER BY 1"
            )
            while part := repeated.fetchmany(FAILED_MAX):
                for key, count in part:
                    if len(failed) < FAILED_MAX:
                        own = f"{answer.name}/{key}"
                        reason = f"{count} rows of the query have this key"
                        failed[own] = (own, answer.name, key, reason, None)
                    else:
                        more += 1
        [(nulls,)] = self._connection.execute(
            f"SELECT count(*) FROM {name} WHERE {is_null}"
        ).fetchall()
        reasons = [f"{nulls} rows have no key, because it is NULL"] if nulls else []
        reasons += [f"{more} more keys have several rows"] if more else []
        if reasons:
            failed[answer.name] = (answer.name, answer.name, None, "; ".join(reasons), None)
        return failed
