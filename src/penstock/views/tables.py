"""The tables of a view: their shapes, and their rows from the states and events of the journal.

A row is a pure function of the state of one entity, or of one event. So the rows at an epoch do not depend on the way
to it: filled at once, or changed epoch by epoch.

The columns follow those of SQL (`snapshots.table`), without their widths: a number has its kind whatever the other
numbers are. A value of parts (lists, dictionaries, records) is JSON.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec
import pyarrow as pa
import xxhash

from penstock.base.record import is_record
from penstock.engine.failure import failure_of
from penstock.errors import OutsideTransaction, UserError
from penstock.journal.atoms import decode_atom
from penstock.model.entity_type import EntityType
from penstock.model.reply import raised_by
from penstock.model.request import Failure
from penstock.model.sealed_value import is_erased
from penstock.model.streams.event_type import EventType
from penstock.model.streams.row_function import READS_MORE, encoded_rows
from penstock.model.views.view import (
    ClassTable,
    QueryTable,
    RowTable,
    ShownTable,
    StreamTable,
    ViewPlan,
)
from penstock.process.isolated_calls import MEMORY_BYTES, Called, IsolatedCalls, Outcome
from penstock.snapshots.column import Column, Reference, Scalar, Structs
from penstock.snapshots.table import (
    UNFIT,
    EntityTable,
    Reason,
    Width,
    array_header,
    column_of,
    reason_text,
)
from penstock.snapshots.text import exact_json
from penstock.views.target import (
    ATOM,
    FAILED,
    KEY,
    PLACE,
    UNSHOWN,
    ColumnShape,
    Kind,
    Row,
    TableChange,
    TableShape,
)

_KINDS: Final = {
    "BIGINT": Kind.INTEGER,
    "DOUBLE": Kind.FLOAT,
    "BOOLEAN": Kind.BOOLEAN,
    "VARCHAR": Kind.TEXT,
    "BLOB": Kind.BYTES,
    "DATE": Kind.DATE,
    "TIME": Kind.TIME,
    "TIMESTAMP WITH TIME ZONE": Kind.TIMESTAMP,
    "INTERVAL": Kind.DURATION,
    "UUID": Kind.UUID,
}
"""The kind of a plain column, by its type in SQL; a DECIMAL has parameters."""

_INTEGER_MAX: Final = (1 << 63) - 1
_EPOCH: Final = "_epoch"
_TIME: Final = "_time"
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


_Read = Callable[[Sequence[Any]], Sequence[Any]]
"""Turns decoded values into values of a target; raises if one of them has no such value."""

EntityStates = Mapping[str, bytes | None]
"""The key's text to the state; None is a deleted entity."""

UNSHOWN_COLUMN: Final = ColumnShape(UNSHOWN, Kind.JSON)
KEY_COLUMN: Final = ColumnShape(KEY, Kind.TEXT)
_PLACE_COLUMN: Final = ColumnShape(PLACE, Kind.INTEGER)
_LISTED: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])

FAILED_SHAPE: Final = TableShape.of(
    FAILED, 1, dict.fromkeys((KEY, "table", "key", "reason"), Kind.TEXT)
)


class ReadColumn(NamedTuple):
    """A column of a table, and how its values are read."""

    shape: ColumnShape
    read: _Read


def _cells(name: str, column: Column) -> ReadColumn:
    if isinstance(column, Reference):
        inner, keys = _cells(name, column.key), column.keys
        return ReadColumn(inner.shape, lambda texts: inner.read(keys(texts)))
    if isinstance(column, Scalar):
        value_kind = Kind.DECIMAL if column.sql.startswith("DECIMAL") else _KINDS[column.sql]
        return ReadColumn(ColumnShape(name, value_kind), _READERS.get(value_kind, _as_they_are))
    return ReadColumn(ColumnShape(name, Kind.JSON), _json_texts)


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return values


def _integers(values: Sequence[Any]) -> Sequence[Any]:
    if max(filter(None, values), default=0) > _INTEGER_MAX:
        raise ValueError("it needs more than 64 bits")
    return values


def _instants(values: Sequence[Any]) -> Sequence[Any]:
    # A time without a zone is one in UTC, as in SQL.
    return [
        None
        if value is None
        else value.astimezone(UTC)
        if value.tzinfo
        else value.replace(tzinfo=UTC)
        for value in values
    ]


def _uuids(values: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else UUID(str(value)) for value in values]


def _json_texts(values: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else exact_json(value) for value in values]


_READERS: Final[Mapping[Kind, _Read]] = {
    Kind.INTEGER: _integers,
    Kind.TIMESTAMP: _instants,
    Kind.UUID: _uuids,
}


def _read_column(cells: ReadColumn, values: Sequence[Any], reasons: list[Reason]) -> Sequence[Any]:
    """Return the values of a column; one that has no value in a target is None, and its reason is added."""
    try:
        return cells.read(values)
    except MemoryError:
        raise
    except UNFIT:
        return [_read_one(cells, value, reasons[at]) for at, value in enumerate(values)]


def _read_one(cells: ReadColumn, value: Any, reason: Reason) -> Any:
    try:
        return cells.read([value])[0]
    except MemoryError:
        raise
    except UNFIT as error:
        reason[cells.shape.name] = reason_text(error)
        return None


def joined_rows(
    keys: Sequence[Sequence[Any]],
    cells: Sequence[ReadColumn],
    parts: Sequence[Sequence[Any]],
    reasons: list[Reason] | None,
) -> list[Row]:
    """Return rows from the values of their columns.

    Args:
        keys: The values of the columns that need no reading.
        cells: The other columns.
        parts: The decoded values of each of them.
        reasons: The reasons of each row that are known already; None without any.
    """
    count = len(keys[0])
    known: list[Reason] = reasons or [{} for _ in range(count)]
    columns = [_read_column(each, values, known) for each, values in zip(cells, parts, strict=True)]
    unshown = [reason or None for reason in known]
    return list(zip(*keys, *columns, unshown, strict=True))


class EntityRows:
    """The table of an entity class: a row for each entity."""

    def __init__(self, table: ClassTable) -> None:
        self.source = table.source.stored_name
        self._type = table.source
        self._table = EntityTable(table.source, table.name, wide=False)
        key, *attributes = self._table.columns
        self._cells = [_cells(name, column) for name, column in (key, *attributes)]
        shapes = (KEY_COLUMN, *(each.shape for each in self._cells), UNSHOWN_COLUMN)
        self.shape = TableShape(table.name, 1, shapes)

    @property
    def facts(self) -> object:
        """The facts on which the rows depend, other than the states and the shape."""
        return self._type.shape.tag

    def changes(self, states: EntityStates) -> Iterator[TableChange]:
        """Yield the change of the table that follows from new states of entities."""
        shown = self._table.readable(states)
        texts, values = list(shown), list(shown.values())
        rows: list[Row] = []
        if texts:
            parts, reasons = self._table.values(texts, values)
            keys = self._table.key_values(texts)
            rows = joined_rows([texts], self._cells, [keys, *parts], reasons)
        yield TableChange(self.shape, list(states), rows)


class _Events:
    """The columns of the events of a type: the fields of a record, or one column."""

    def __init__(self, annotation: Any) -> None:
        column: Any = column_of(annotation, wide=Width.NARROW)
        is_divided = isinstance(column, Structs) and is_record(annotation)
        self._record = column if is_divided else None
        named: list[tuple[str, Column]] = (
            self._record.columns if self._record is not None else [("event", column)]
        )
        self.cells = [_cells(name, each) for name, each in named]
        self._wire = column.wire
        self._decode = msgspec.msgpack.Decoder(list[column.wire]).decode

    def parts(self, events: Sequence[bytes]) -> tuple[list[list[Any]], list[Reason] | None]:
        """Return the decoded values of each column, and the reasons of each event if values are None."""
        reasons: list[Reason] | None = None
        try:
            values = self._decode(array_header(len(events)) + b"".join(events))
        except (msgspec.MsgspecError, RecursionError):
            reasons = [{} for _ in events]
            values = [
                self._one(event, reason) for event, reason in zip(events, reasons, strict=True)
            ]
        return ([values] if self._record is None else self._record.parts(values)), reasons

    def _one(self, event: bytes, reason: Reason) -> Any:
        try:
            return msgspec.msgpack.decode(event, type=self._wire)
        except (msgspec.MsgspecError, RecursionError) as error:
            reason["event"] = f"it is of another type than it was declared: {reason_text(error)}"
            return None


class FunctionRows:
    """The table of a row function, and its part of the table of failed rows."""

    def __init__(self, table: RowTable, calls: IsolatedCalls) -> None:
        self.source = table.source.stored_name
        self._calls = calls
        self._table = table
        self._type: EntityType = table.source
        self._readable = EntityTable(table.source, table.name, wide=False).readable
        self._events = _Events(table.row_type.annotation)
        shapes = (each.shape for each in self._events.cells)
        columns = (KEY_COLUMN, _PLACE_COLUMN, *shapes, UNSHOWN_COLUMN)
        self.shape = TableShape(table.name, 2, columns)

    @property
    def facts(self) -> object:
        """The facts on which the rows depend, other than the states, the shape and the code."""
        return self._type.shape.tag

    def changes(self, states: EntityStates) -> Iterator[TableChange]:
        """Yield the changes of the table, and of the table of failed rows, that follow from new states of entities."""
        shown = self._readable(states)
        texts = list(shown)
        calls = [Called(self._table.function, self._table.name, item) for item in shown.items()]
        outcomes = self._calls.outcomes(
            lambda index: self._made(texts[index], shown[texts[index]]), calls
        )
        keys, places, events, failed = [], [], [], []
        for text, outcome in zip(texts, outcomes, strict=True):
            if not isinstance(outcome, bytes):
                own = f"{self._table.name}/{text}"
                failed.append((own, self._table.name, text, _reason_of(outcome), None))
                continue
            for place, event in enumerate(_LISTED.decode(outcome)):
                keys.append(text)
                places.append(place)
                events.append(bytes(event))
        rows: list[Row] = []
        if events:
            parts, reasons = self._events.parts(events)
            rows = joined_rows([keys, places], self._events.cells, parts, reasons)
        yield TableChange(self.shape, list(states), rows)
        yield TableChange(FAILED_SHAPE, [f"{self._table.name}/{text}" for text in states], failed)

    def _made(self, text: str, state: bytes) -> bytes:
        """Call the function for one entity, in the child, and return its rows as a list in MessagePack."""
        row_type: EventType[Any] = self._table.row_type
        entity: Any = object.__new__(self._type.cls)
        entity.__dict__.update(self._type.decode(self._type.key_at(text), state))
        try:
            made = self._table.function(entity)
            encoded = encoded_rows(
                made, lambda _, row: row_type.encode_readable(row), is_single=self._table.is_single
            )
        except OutsideTransaction:
            raise UserError(READS_MORE) from None
        except BaseException as raised:  # noqa: BLE001 -- the function may raise everything
            raise raised_by(failure_of(raised, MEMORY_BYTES, sys.getrecursionlimit())) from None
        return array_header(len(encoded)) + b"".join(encoded)


def gap_row(table: str, reason: str) -> Row:
    """Return the row of the table of failed rows that says which events the table of a stream lacks."""
    return (f"{table}/", table, None, reason, None)


def _reason_of(outcome: Outcome) -> str:
    return outcome if isinstance(outcome, str) else cast("Failure", outcome).message


class StreamRows:
    """The table of a stream: a row for each event, by atom and place."""

    def __init__(self, table: StreamTable) -> None:
        self.source = table.source.name
        self._event_type: EventType[Any] = table.source.events
        self._events = _Events(table.source.annotation)
        own = (ColumnShape(_EPOCH, Kind.INTEGER), ColumnShape(_TIME, Kind.TIMESTAMP))
        shapes = (each.shape for each in self._events.cells)
        keys = (ColumnShape(ATOM, Kind.INTEGER), _PLACE_COLUMN)
        self.shape = TableShape(table.name, 2, (*keys, *own, *shapes, UNSHOWN_COLUMN))

    @property
    def facts(self) -> object:
        """The rows depend on the events and the shape alone."""
        return None

    def changes(self, atoms: pa.Table) -> Iterator[TableChange]:
        """Yield the change of the table that follows from atoms, which are rows of the journal's kind `events`."""
        numbers = atoms["atom"].to_pylist()
        epochs, times = atoms["epoch"].to_pylist(), atoms["time_us"].to_pylist()
        keys: list[tuple[int, int, int, datetime]] = []
        events: list[bytes] = []
        for at, data in enumerate(atoms["events"].to_pylist()):
            time = _BEGIN + times[at] * _MICROSECOND
            for place, event in enumerate(decode_atom(data)):
                # An event about an erased person leaves its place empty.
                if (shown := self._readable(event)) is not None:
                    keys.append((numbers[at], place, epochs[at], time))
                    events.append(shown)
        rows: list[Row] = []
        if events:
            parts, reasons = self._events.parts(events)
            rows = joined_rows(list(zip(*keys, strict=True)), self._events.cells, parts, reasons)
        yield TableChange(self.shape, numbers, rows)

    def _readable(self, event: bytes) -> bytes | None:
        keys = self._event_type.keys
        if keys is None:
            return event
        return None if is_erased(keys, event) else self._event_type.opened(event)


class ViewTables:
    """The tables of a view that follow from single entities and events, as one version of the application declares them.

    Attributes:
        shapes: The tables.
        definition: A fingerprint: while it is equal, rows that exist need not be made again. It counts the texts of queries.
        streams: The names of the shown streams.

    Args:
        code: Names the code of the application; tables of row functions are made again when it changes, because a
            function may use any other.
        erasures: The number of persons erased until now; tables with personal data are made again after each one,
            because events and rows of other entities may name the person.
        calls: Calls row functions.
    """

    def __init__(self, plan: ViewPlan, code: str, calls: IsolatedCalls, erasures: int = 0) -> None:
        self._entities: dict[str, list[EntityRows | FunctionRows]] = {}
        self._streams: dict[str, StreamRows] = {}
        for table in plan.tables:
            self._add(table, calls)
        shown = [each for tables in self._entities.values() for each in tables]
        has_functions = any(isinstance(each, FunctionRows) for each in shown)
        self.shapes = [*(each.shape for each in (*shown, *self._streams.values())), FAILED_SHAPE]
        self.streams = frozenset(self._streams)
        facts = [each.facts for each in shown], code if has_functions else ""
        target = plan.target
        described: tuple[object, ...] = (
            *(target.kind, target.text, target.facets),
            *(self.shapes, facts, erasures),
        )
        if queries := [each for each in plan.tables if isinstance(each, QueryTable)]:
            described += ([(each.name, each.query, each.key) for each in queries],)
        self.definition = xxhash.xxh3_128_hexdigest(msgspec.json.encode(described))

    def _add(self, table: ShownTable, calls: IsolatedCalls) -> None:
        match table:
            case ClassTable():
                entity_rows = EntityRows(table)
                self._entities.setdefault(entity_rows.source, []).append(entity_rows)
            case RowTable():
                function_rows = FunctionRows(table, calls)
                self._entities.setdefault(function_rows.source, []).append(function_rows)
            case StreamTable():
                self._streams[table.source.name] = StreamRows(table)
            case QueryTable():  # `query_tables`
                pass

    @property
    def classes(self) -> frozenset[str]:
        """The stored names of the classes whose entities the tables show."""
        return frozenset(self._entities)

    def of_states(self, name: str, states: EntityStates) -> Iterator[TableChange]:
        """Yield the changes that follow from new states of entities of a class."""
        for table in self._entities.get(name, ()):
            yield from table.changes(states)

    def of_atoms(self, name: str, atoms: pa.Table) -> Iterator[TableChange]:
        """Yield the change that follows from atoms of a stream."""
        if name in self._streams:
            yield from self._streams[name].changes(atoms)


def merged(changes: Iterable[TableChange]) -> list[TableChange]:
    """Return changes with one for each table; no owner is in two of them."""
    by_table: dict[str, TableChange] = {}
    for change in changes:
        known = by_table.get(change.shape.name)
        if known is not None:
            change = TableChange(
                change.shape, [*known.touched, *change.touched], [*known.rows, *change.rows]
            )
        by_table[change.shape.name] = change
    return [each for each in by_table.values() if each.touched]
