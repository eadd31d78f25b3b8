"""Pages of a published table: its rows, and then the changes of its rows, as one sequence of changes.

A page goes on at a *position*: the number of the next atom of the table, and while rows are still to come, the last
key whose rows the caller has. It first has the changes behind the position of rows that the caller has, and then further rows as they are at
the newest epoch. So after each page the copy of the caller is that part of the table at one epoch, and no
gateway remembers anything. A caller that was cut off goes on at the position of its last page, at any gateway.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec
import xxhash
from msgspec import Meta, Struct

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.engine.streams.published_rows import decode_rows, row_prefix
from penstock.errors import Gone, RequestError
from penstock.gateway.reader_pool import EntityReader
from penstock.gateway.responses import json_of
from penstock.journal.api import Journal, newest_epoch
from penstock.journal.atoms import AtomReader, StreamAtom, decode_atom
from penstock.model.streams.event_type import EventType
from penstock.model.streams.published_table import PublishedTable
from penstock.state.stores import PartitionedReader

_BYTES: Final = 512 << 10
"""A page ends with the epoch, or with the key, whose changes reach this size."""

_decode: Final = msgspec.msgpack.Decoder().decode
_pack: Final = msgspec.msgpack.Encoder().encode
POSITION: Final = r"^\d{1,18}-[0-9a-f]{8}(~[!-~]*)?$"
"""A regular expression for a position."""

_PARTS: Final = re.compile(
    r"(?P<number>[0-9]{1,18})-(?P<journal>[0-9a-f]{8})(?P<mark>~(?P<after>.*))?"
)


class Position(NamedTuple):
    """Where a caller goes on.

    Attributes:
        number: The number of the next atom of the table.
        journal: A hash of the identity of the journal: in a fork, the same number can be another atom.
        after: The last key whose rows the caller has; None if it has all.
    """

    number: int
    journal: str
    after: str | None

    def __str__(self) -> str:
        rest = "" if self.after is None else f"~{quote(self.after, safe='')}"
        return f"{self.number}-{self.journal}{rest}"


def position_of(name: str, text: str) -> Position:
    """Return a position that a request names; `name` is that of the field."""
    parts = _PARTS.fullmatch(text)
    try:
        if parts is None:
            raise ValueError(text)
        after = unquote(parts["after"], errors="strict") if parts["mark"] else None
    except ValueError as error:
        raise RequestError(
            f"{name}={text} is no position; take the `position` of a page"
        ) from error
    return Position(int(parts["number"]), parts["journal"], after)


class PageBody(Struct, frozen=True):
    """A page of a published table."""

    table: str
    position: Annotated[str, Meta(description="Where the next page begins, as `after`.")]
    epoch: Annotated[int, Meta(description="The epoch of the copy, with the changes of this page.")]
    complete: Annotated[bool, Meta(description="Whether the copy has all rows of the table.")]
    changes: Annotated[Any, Meta(description="The list of changes, in order.")]


class TablePage(NamedTuple):
    """A page, before it is rendered.

    Attributes:
        events: The encoded changes, readable.
        atoms: The number of atoms that were read.
        published: The number of atoms that the table had at the epoch.
    """

    table: PublishedTable[Any]
    position: Position
    epoch: Epoch
    events: Sequence[bytes]
    atoms: int
    published: int

    def body(self, changes: Any) -> PageBody:
        """Return the page with its changes in another form."""
        is_complete = self.position.after is None
        return PageBody(self.table.name, str(self.position), self.epoch, is_complete, changes)


def json_page(page: TablePage) -> bytes:
    """Return a page as a JSON object."""
    return json_of(page.body([_decode(event) for event in page.events]))


def msgpack_page(page: TablePage) -> bytes:
    """Return a page as MessagePack, which keeps all types of the rows."""
    return _pack(page.body([msgspec.Raw(event) for event in page.events]))


def event_page(page: TablePage) -> bytes:
    """Return a page as a server-sent event, whose id is the position."""
    return b"id: %b\ndata: %b\n\n" % (str(page.position).encode(), json_page(page))


class TableQuestion(NamedTuple):
    """The question of a caller.

    Attributes:
        position: None: it begins.
        limit: The most changes of a page; those of one epoch are not divided.
    """

    stream: PublishedTable[Any]
    position: Position | None
    limit: int
    rendering: Callable[[TablePage], bytes]

    @property
    def start(self) -> int:
        """The number of the next atom."""
        return 0 if self.position is None else self.position.number


class ScannedRows(NamedTuple):
    """Rows of a table behind a key.

    Attributes:
        events: The encoded `Put` of each row.
        after: The last key that was read; None if no key is left.
    """

    epoch: Epoch
    events: list[bytes]
    after: str | None


class TableReader:
    """Reads pages of tables for one gateway."""

    def __init__(
        self,
        journal: Journal,
        atoms: AtomReader,
        entities: EntityReader,
        threads: ThreadPoolExecutor,
    ) -> None:
        """Take the readers of journal and state, and the threads in which the journal is read."""
        self._journal = journal
        self._atoms = atoms
        self._entities = entities
        self._threads = threads
        self._mark = xxhash.xxh32_hexdigest(journal.identity.encode())

    async def page(self, question: TableQuestion) -> TablePage:
        """Return the next page.

        Raises:
            Gone: Retention has removed changes behind the position.
            RequestError: No page of this table has had the position.
        """
        position = question.position
        scanned: ScannedRows | None = None
        if position is None or position.after is not None:
            after = "" if position is None else position.after or ""
            read = partial(_rows_after, question.stream, after, question.limit)
            nothing = ScannedRows(BEFORE_FIRST, [], None)
            scanned = await self._entities.at_newest(read) or nothing
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, question, scanned)

    def _read(self, question: TableQuestion, scanned: ScannedRows | None) -> TablePage:
        table, limit = question.stream, question.limit
        newest = newest_epoch(self._journal) if scanned is None else scanned.epoch
        published = self._atoms.published_at(table.name, newest)
        number, mark, after = question.position or Position(published, self._mark, "")
        if number > published or mark != self._mark:
            raise RequestError(
                f"after={question.position} is a position of another table, or of another journal, such as that of a fork; "
                "drop the copy, and begin without `after`"
            )
        first, epoch, size = number, newest, 0
        events: list[bytes] = []
        last = BEFORE_FIRST  # the epoch of the last atom
        for atom in self._atoms_from(table, number, published):
            if atom.epoch != last and (len(events) >= limit or size >= _BYTES):
                epoch = last
                break
            number, last = atom.number + 1, atom.epoch
            kept = _kept(_readable(table.events, decode_atom(atom.events)), after)
            events += kept
            size += sum(map(len, kept))
        if number == published and scanned is not None and len(events) < limit:
            events += _readable(table.events, scanned.events)
            after = scanned.after
        return TablePage(
            table, Position(number, mark, after), epoch, events, number - first, published
        )

    def _atoms_from(
        self, table: PublishedTable[Any], number: int, published: int
    ) -> Iterator[StreamAtom]:
        try:
            for atom in self._atoms.atoms(table.name, number) if number < published else ():
                if atom.number >= published:  # of an epoch that is newer than the rows
                    return
                yield atom
        except Gone as error:
            raise _begin_again(table, number, error) from error


def _begin_again(table: PublishedTable[Any], number: int, error: Gone) -> Gone:
    gone = Gone(
        f"changes of table {table.name} behind position {number} are gone: retention has removed their epochs; drop the copy, "
        "and begin with the rows again, without `after`"
    )
    gone.oldest = error.oldest
    return gone


def _readable(declared: EventType[Any], events: Sequence[bytes]) -> list[bytes]:
    """Return the readable bytes of events, without those about erased persons."""
    if declared.keys is None:
        return list(events)
    return [declared.opened(event) for event in declared.without_erased(events)]


def _kept(events: list[bytes], after: str | None) -> list[bytes]:
    """Return the changes of rows that the caller has: those of keys up to the last one; None is all keys."""
    if after is None:
        return events
    return [event for event in events if _decode(event)["key"] <= after]


def _rows_after(
    table: PublishedTable[Any], after: str, limit: int, reader: PartitionedReader
) -> ScannedRows:
    """Return the rows of a table behind a key, at the epoch of a reader."""
    prefix = row_prefix(table.name)
    events: list[bytes] = []
    size = 0
    for key, row in reader.items_of(prefix, after):
        if len(events) >= limit or size >= _BYTES:
            return ScannedRows(reader.epoch, events, after)
        after = key.removeprefix(prefix)
        events += decode_rows(row)
        size += len(row)
    return ScannedRows(reader.epoch, events, None)
