"""Atoms of changes: they are made from the messages of a database, one for each transaction, or several for a long one.

The position of an atom says how many rows of its transaction are on the stream behind it. So a transaction that the database
sends again goes on behind the rows that are there. This module does no input or output.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.misfit import misfit_of
from penstock.base.schema import reason_of
from penstock.captures.pgoutput import (
    Begin,
    ColumnOf,
    Commit,
    Message,
    Relation,
    RowChange,
    Truncated,
    Values,
)
from penstock.captures.table_form import TableForm, Unfit, merged
from penstock.errors import Unencodable
from penstock.model.request import packed_append
from penstock.model.streams.change_stream import ChangeStream, SourcePosition
from penstock.model.streams.event_list import packed_events

PART_ROWS: Final = 500
"""The most rows of an atom."""

PART_BYTES: Final = 1 << 20
"""An atom ends behind the row with which its values have so many bytes."""

_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MadeAtom(NamedTuple):
    """An atom, ready for the log.

    Attributes:
        body: The body of the record.
        rows: The number of rows in it.
        unfit: How many of them the record cannot hold.
        time_us: The time of its commit.
    """

    position: SourcePosition
    body: bytes
    rows: int
    unfit: int
    time_us: int


class Ended(NamedTuple):
    """A transaction has ended; the log of the database goes on at `end_lsn`."""

    end_lsn: int


class AtomMaker:
    """Makes the atoms of one stream from the messages of a database.

    Args:
        forms: How the tables become records, by their names.
        position: The position that the stream has.
        reform: Makes the form of a table whose columns have changed; it raises if the record cannot take it.
        row_bytes_max: A row with more bytes is unfit.
    """

    def __init__(
        self,
        stream: ChangeStream[Any],
        forms: dict[str, TableForm],
        position: SourcePosition,
        reform: Callable[[TableForm, Relation], TableForm],
        row_bytes_max: int,
    ) -> None:
        self._stream = stream
        self._forms = forms
        self._reform = reform
        self._row_bytes_max = row_bytes_max
        self._relations: dict[int, tuple[tuple[ColumnOf, ...], TableForm | None]] = {}
        self.position = position
        self._events: list[dict[str, Any]] = []
        self._bytes = self._seen = 0
        self._is_open = False
        self._begin = Begin(position.source_lsn, 0)

    @property
    def is_between(self) -> bool:
        """Whether no transaction has begun that has not ended."""
        return not self._is_open

    def take(self, message: Message) -> Iterable[MadeAtom | Ended]:
        """Take a message; return the atoms that end with it.

        Raises:
            SourceProblem: A table has changed, and its record cannot take the rows any more.
        """
        match message:
            case RowChange():
                full = self._full()
                self._seen += 1
                self._take_row(message)
                return full
            case Begin():
                self._begin, self._seen, self._is_open = message, 0, True
            case Commit():
                return self._ended(message)
            case Relation():
                self._learn(message)
            case Truncated():
                full = self._full()
                self._seen += 1
                self._truncate(message)
                return full
        return ()

    def mark(self, sort: str, position: SourcePosition, time_us: int) -> MadeAtom:
        """Return an atom with one mark."""
        self._begin = Begin(position.source_lsn, time_us)
        self._add(sort, "")
        return self._made_at(position)

    def snapshot(self, form: TableForm, rows: Iterator[Values], time_us: int) -> Iterator[MadeAtom]:
        """Yield atoms with the rows of a table, while the whole tables are read."""
        self._begin = Begin(0, time_us)
        for values in rows:
            yield from self._full()
            self._seen += 1
            self._add_row("snapshot", form, values, None, _size(values))
        if self._events:
            yield self._made(is_whole=False)

    def _is_known(self) -> bool:
        """Say whether the row that has just come is on the stream."""
        known = self.position
        lsn = self._begin.commit_lsn
        if lsn != known.source_lsn:
            return lsn < known.source_lsn
        return known.is_whole or self._seen <= known.rows

    def _full(self) -> Sequence[MadeAtom]:
        # Only when a further row comes: so the atom that ends a transaction is never empty.
        if len(self._events) >= PART_ROWS or self._bytes >= PART_BYTES:
            return (self._made(is_whole=False),)
        return ()

    def _ended(self, message: Commit) -> Sequence[MadeAtom | Ended]:
        made = (self._made(is_whole=True),) if self._events else ()
        self._seen, self._is_open = 0, False
        return (*made, Ended(message.end_lsn))

    def _learn(self, relation: Relation) -> None:
        known = self._relations.get(relation.oid)
        if known is not None and known[0] == relation.columns:
            return
        form = self._forms.get(relation.table)
        if form is not None:
            names = [(column.name, column.type_oid) for column in relation.columns]
            if names != [(column.name, column.own_oid) for column in form.columns]:
                form = self._forms[relation.table] = self._reform(form, relation)
        self._relations[relation.oid] = (relation.columns, form)

    def _truncate(self, change: Truncated) -> None:
        if self._is_known():
            return
        for form in (self._relations[oid][1] for oid in change.oids):
            if form is not None:
                self._add("truncate", form.table)

    def _take_row(self, change: RowChange) -> None:
        form = self._relations[change.oid][1]
        if form is None or self._is_known():
            return  # a table that the application does not name, or a row that is on the stream
        before, new, size = change.old or change.key, change.new, change.size
        if new is None:
            assert before is not None, "a delete has the key, or the row"
            self._add_row("delete", form, None, change.old, size, form.key_of(before))
            return
        if change.letter == "I":
            self._add_row("insert", form, new, None, size)
            return
        new = merged(change.old, new)
        key = form.key_of(new)
        former = key if before is None else form.key_of(before)
        if former == key:
            self._add_row("update", form, new, change.old, size, key)
        else:
            # A consumer has the state of each key apart: under another key it is another row.
            self._add_row("delete", form, None, change.old, size, former)
            self._add_row("insert", form, new, None, size, key)

    def _add_row(
        self,
        sort: str,
        form: TableForm,
        new: Values | None,
        old: Values | None,
        size: int,
        key: str | None = None,
    ) -> None:
        reason, row, before = "", None, None
        # The size of a message is known, and nearly always small enough; the exact one takes longer.
        if size > self._row_bytes_max and (size := _size(new) + _size(old)) > self._row_bytes_max:
            sort, reason = (
                "unfit",
                f"the row has {size:,} bytes, and {self._row_bytes_max:,} are possible",
            )
        else:
            self._bytes += size
            try:
                row = None if new is None else form.row(new)
            except Unfit as error:
                sort, reason = "unfit", str(error)
            try:
                before = None if old is None or sort == "unfit" else form.row(old)
            except Unfit as error:
                reason = f"the former row: {error}"
        if key is None:
            assert new is not None, "a row comes with its key, or has it"
            key = form.key_of(new)
        self._add(sort, form.table, key, row, before, reason)

    def _add(
        self,
        sort: str,
        table: str,
        key: str = "",
        row: dict[str, Any] | None = None,
        before: dict[str, Any] | None = None,
        reason: str = "",
    ) -> None:
        self._events.append(
            {
                "kind": sort,
                "table": table,
                "key": key,
                "row": row,
                "before": before,
                "reason": reason,
            }
        )

    def _made(self, *, is_whole: bool) -> MadeAtom:
        generation = self.position.generation
        position = SourcePosition(generation, self._begin.commit_lsn, self._seen, is_whole)
        return self._made_at(position)

    def _made_at(self, position: SourcePosition) -> MadeAtom:
        begin, events = self._begin, self._events
        at = _UNIX + timedelta(microseconds=begin.time_us)
        first = self.position.rows if begin.commit_lsn == self.position.source_lsn else 0
        for event in events:
            event["source_lsn"] = begin.commit_lsn
            event["at"] = at
            event["part"] = first
            event["last"] = position.is_whole
        packed, unfit = packed_changes(self._stream, events)
        made = MadeAtom(
            position, packed_append(self._stream.name, packed), len(events), unfit, begin.time_us
        )
        self.position = position
        self._events, self._bytes = [], 0
        return made


def packed_changes(
    stream: ChangeStream[Any], events: Sequence[dict[str, Any]]
) -> tuple[bytes, int]:
    """Return the events of an atom as the log has them, and how many of them are unfit."""
    types = stream.events
    try:
        values = types.given_list.converted(events, is_open=not stream.has_inner_records)
        packed = packed_events(types, values)
    except (msgspec.MsgspecError, Unencodable, ValueError, RecursionError):
        values = [_fitting(stream, event) for event in events]
        packed = packed_events(types, values)
    return packed, sum(value.kind == "unfit" for value in values)


def _fitting(stream: ChangeStream[Any], event: dict[str, Any]) -> Any:
    """Return a change, or one that says why the record cannot hold it."""
    types = stream.events
    try:
        value = types.given.converted(event)
        types.encode_readable(value)
    except (msgspec.MsgspecError, Unencodable, ValueError, RecursionError) as error:
        misfit = misfit_of(reason_of(error))
        reason = ": ".join(filter(None, (misfit.path.removeprefix("."), misfit.mistake)))
        unfit = {**event, "kind": "unfit", "row": None, "before": None, "reason": reason}
        return types.given.converted(unfit)
    return value


def _size(values: Values | None) -> int:
    return 0 if values is None else sum(len(value) for value in values if type(value) is bytes)
