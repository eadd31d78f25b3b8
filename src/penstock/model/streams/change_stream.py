"""Changes from outside: a stream of the changes of tables of a database, which a process of its own takes.

`changes` declares it. A transaction of the database is one atom, with the position of the transaction in the database's own
log. So the stream itself says how far it has come, and each change is on it once. `captures` has the process.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.base.class_code import has_code
from penstock.base.given_type import has_records
from penstock.base.ids import RequestId
from penstock.base.record import RecordKind, fields_of, is_record, kind_of
from penstock.model.declaration import caller_place
from penstock.model.streams.stream import UNKNOWN, Stream
from penstock.model.target_choice import TargetChoice

R = TypeVar("R")

ChangeKind: TypeAlias = Literal[
    "reset", "snapshot", "ready", "insert", "update", "delete", "truncate", "unfit"
]

_TABLE: Final = re.compile(r"[^.]+\.[^.]+")


class Change(msgspec.Struct, Generic[R], frozen=True):
    """A change of a row of a table of a database, or a mark between changes.

    Attributes:
        kind: `insert`, `update`, `delete` or `truncate`: what the transaction did. `reset`: all rows of former changes are void;
            the rows that there are follow, as `snapshot`, and then `ready`. `unfit`: the row has changed, and the record
            cannot hold it.
        table: The table, such as `public.users`; empty for `reset` and `ready`.
        key: The text of the primary key; empty if no row is meant.
        row: The row as it is now; None without one.
        before: The row as it was; None if it is new, and if the database does not tell it.
        source_lsn: The position of the commit in the log of the database.
        at: The time of the commit.
        part: How many rows of the transaction earlier atoms have; 0 in the first one. Only a long transaction has several.
        last: Whether the atom is the last one of its transaction.
        reason: Why the row is `unfit`; else empty.
    """

    kind: ChangeKind
    table: str
    key: str
    row: R | None
    before: R | None
    source_lsn: int
    at: datetime
    part: int = 0
    last: bool = True
    reason: str = ""


class SourcePosition(NamedTuple):
    """How far a stream of changes has come; each atom has the position behind it as its id.

    Attributes:
        generation: The number of the reading of the whole tables, from 1.
        source_lsn: The position of the commit in the log of the database; 0 while the tables are read.
        rows: How many rows of the transaction, or of the tables, are on the stream.
        is_whole: Whether the transaction, or the reading, is on the stream to its end.
    """

    generation: int
    source_lsn: int
    rows: int
    is_whole: bool

    def text(self) -> str:
        """Return the position as text: `1.16B3748.500.part`."""
        end = "end" if self.is_whole else "part"
        return f"{self.generation}.{self.source_lsn:X}.{self.rows}.{end}"


def position_in(text: str) -> SourcePosition:
    """Return the position that a text stands for."""
    generation, lsn, rows, end = text.split(".")
    return SourcePosition(int(generation), int(lsn, 16), int(rows), end == "end")


_HEAD: Final = "capture~~"


def atom_id(stream: str, position: SourcePosition) -> RequestId:
    """Return the id of an atom of a stream of changes. No caller may choose such an id."""
    return RequestId(f"{_HEAD}{stream}~~{position.text()}")


def stream_of_atom(request_id: str) -> tuple[str, str] | None:
    """Return the stream and the text of the position of an atom with such an id; None for any other id."""
    if not request_id.startswith(_HEAD):
        return None
    stream, _, text = request_id.removeprefix(_HEAD).partition("~~")
    return stream, text


class ChangeStream(Stream[Change[R]]):
    """A stream of the changes of tables of a database; see `changes`.

    Attributes:
        source: The kind of the database.
        tables: The record that has the rows of each table, by the name of the table.
        has_inner_records: Whether a field of such a record has records in it, which a column of JSON may not fit.
    """

    is_captured = True
    has_inner_records = True

    def __init__(
        self, name: str, source: TargetChoice, tables: Mapping[str, type], where: str
    ) -> None:
        super().__init__(name, UNKNOWN, where)
        self.source = source
        self.tables = tables

    def plan(self, complaints: list[str]) -> None:
        """Find the type of the changes, or add complaints."""
        wrong = [*self._complaints()]
        complaints += [f"{self.where}: changes {self.name}: {complaint}" for complaint in wrong]
        if not wrong:
            self.tables = dict(self.tables)
            fields = (field for record in self.tables.values() for field in fields_of(record))
            self.has_inner_records = any(has_records(field.annotation) for field in fields)
            row = reduce(or_, dict.fromkeys(self.tables.values()))
            self.declared = self.annotation = Change[row]  # type: ignore[valid-type]

    def _complaints(self) -> Iterator[str]:
        source: object = self.source
        if not isinstance(source, TargetChoice) or source.kind != "postgres":
            yield f"its source is {source!r}; name postgres()"
        elif source.schema or source.personal:
            yield "schema= and personal= are for the target of a view; write the schema before the table: public.users"
        tables: object = self.tables
        if not isinstance(tables, Mapping) or not tables:
            yield f"its tables are {tables!r}; name each with its record: {{'public.users': User}}"
            return
        for table, record in tables.items():
            if not isinstance(table, str) or not _TABLE.fullmatch(table):
                yield f"{table!r} cannot name a table; write the schema, a point and the table: public.users"
            if not is_record(record) or kind_of(record) is RecordKind.NAMED_TUPLE:
                yield (
                    f"the rows of {table} are {record!r}; name a dataclass, a TypedDict or a Struct whose fields have the names "
                    "of columns"
                )
            elif has_code(record):
                # It would run outside of any transaction, where nothing bounds it.
                yield (
                    f"{record.__name__}, for the rows of {table}, runs code when a value is made (such as __post_init__, or a "
                    "validator); name a record without, and check its values in the handler"
                )


def changes(
    name: str, source: TargetChoice, tables: Mapping[str, type[Any]], /
) -> ChangeStream[Any]:
    """Declare a stream of the changes of tables of a database: first the rows that there are, then each transaction as an atom.

    A process under `penstock run` follows the database. The setting `captures.NAME.url` has its address.

    Args:
        name: The name of the stream: letters, digits, `-` and `_`.
        source: `postgres()`.
        tables: The record that has the rows of each table, by the name of the table with its schema. A field takes the column
            with its name; other columns are not taken.
    """
    return ChangeStream(name, source, tables, caller_place())
