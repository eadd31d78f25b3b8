"""Atoms in the journal: the atoms of a stream, read in their order from any number on.

`AtomReader` finds the epoch of a number by a search over `Commit.atoms`, and reads the `events` parts of one epoch
at a time. Each atom comes once, and no number is left out. Compaction changes nothing; an atom whose epoch was
removed by retention is refused with `Gone`. This module does not decode the events: their type belongs to the
application.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.encoder import array_elements, array_head
from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import Corrupt, Diverged, Gone, RequestError
from penstock.journal.api import EVENTS, Commit, Journal, PartKind, newest_epoch
from penstock.journal.parquet import missing_epoch
from penstock.model.sealed_value import FIRST_BYTES
from penstock.model.streams.event_type import EventType
from penstock.model.streams.packed_atom import PackedAtom

_COLUMNS: Final = ("stream", "atom", "partition", "lsn", "time_us", "events")
_CHUNK: Final = 256
"""The atoms that become Python objects at once."""

_CACHED_BYTES: Final = 32 << 20
_TABLE_BYTES: Final = 8 << 10
"""What a table takes in addition to its values: most epochs have only a few atoms of a stream."""

_LOOK_MS: Final = 1_000


class StreamAtom(NamedTuple):
    """An atom of a stream in the journal.

    Attributes:
        number: Its number in the stream, from 0, without gaps.
        events: The encoded events, as `decode_atom` takes them.
        time_us: The time of this record, in microseconds since the Unix epoch.
    """

    number: int
    events: bytes
    epoch: Epoch
    position: tuple[LogPartition, Lsn]
    time_us: int


def encode_atom(events: Sequence[bytes]) -> bytes:
    """Return encoded events as one MessagePack array, the column `events` of the journal."""
    return (
        events.data
        if isinstance(events, PackedAtom)
        else b"".join((array_head(len(events)), *events))
    )


def decode_atom(data: bytes) -> tuple[bytes, ...]:
    """Return the encoded events of an atom."""
    return array_elements(data)


def opened_atom(events: EventType[Any], data: bytes) -> bytes:
    """Return the readable events of an atom as one MessagePack array; those about erased persons are left out.

    Raises:
        Corrupt: An event was changed, or is encrypted with other keys.
    """
    if events.keys is None or not any(first in data for first in FIRST_BYTES):
        return data
    return encode_atom([events.opened(each) for each in events.without_erased(decode_atom(data))])


class AtomReader:
    """Reads the atoms of the streams in one journal; safe for threads.

    It keeps the rows of the epochs that were read last, so that the followers of one stream share the reading.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._cached: OrderedDict[tuple[str, Epoch], pa.Table] = OrderedDict()
        self._cached_bytes = 0
        self._oldest: dict[str, tuple[Epoch, int]] = {}

    def published(self, stream: str) -> int:
        """Return the number of atoms that a stream has now, with those that retention has removed."""
        last = self._journal.last()
        return 0 if last is None else last.atoms.get(stream, 0)

    def published_at(self, stream: str, epoch: Epoch) -> int:
        """Return the number of atoms that a stream had after an epoch that the journal holds; 0 before the first epoch."""
        return 0 if epoch == BEFORE_FIRST else self._count(epoch, stream)

    def oldest(self, stream: str) -> int:
        """Return the number of the oldest atom that the journal holds; that of the next one if it holds none.

        Raises:
            Corrupt: A part is damaged.
        """
        while True:
            first = self._journal.first()
            if first == 0:
                return 0
            epoch, number = self._oldest.get(stream, (BEFORE_FIRST, 0))
            if epoch == first:
                return number
            try:
                commit = self._commit(first)
                held: int = self._rows(commit, stream).num_rows
            except (Corrupt, Diverged):
                if self._journal.first() == first:
                    raise
                continue  # the epoch was removed meanwhile
            number = commit.atoms.get(stream, 0) - held
            self._oldest[stream] = (first, number)
            return number

    def atoms(self, stream: str, start: int) -> Iterator[StreamAtom]:
        """Yield the atoms of a stream from number `start` to the newest one.

        The rows of a single epoch are in memory at a time, and a few hundred of its atoms as objects.

        Raises:
            Gone: Retention has removed the atom `start`.
            Corrupt: The journal is damaged.
        """
        last = self._journal.last()
        published = 0 if last is None else last.atoms.get(stream, 0)
        if start > published:
            raise RequestError(
                f"stream {stream} has {published} atoms, so a reader cannot begin at atom {start}; begin at a "
                f"number up to {published}"
            )
        if last is None or start == published:
            return
        epoch = self._search(last, stream, start)
        number = start
        while number < published:
            rows = self._epoch_rows(epoch, stream, number)
            for begin in range(0, rows.num_rows, _CHUNK):
                yield from _atoms_of(rows.slice(begin, _CHUNK), epoch)
            number += rows.num_rows
            epoch = Epoch(epoch + 1) if rows.num_rows else self._search(last, stream, number)

    def follow(self, stream: str, start: int) -> Iterator[StreamAtom]:
        """Yield the atoms of a stream from number `start` on, and wait for new ones without end.

        Raises as `atoms`.
        """
        while True:
            newest = newest_epoch(self._journal)
            for atom in self.atoms(stream, start):
                yield atom
                start = atom.number + 1
            self._journal.wait(newest, _LOOK_MS)

    def _search(self, last: Commit, stream: str, number: int) -> Epoch:
        """Return the epoch of an atom that is published; reads O(log epochs) commits, few for a new atom."""
        try:
            low, high, step = int(self._journal.first()), int(last.epoch), 1
            while high - step >= low and self._count(high - step, stream) > number:
                high, step = high - step, 2 * step
            low = max(low, high - step)
            while low < high:
                middle = (low + high) // 2
                if self._count(middle, stream) > number:
                    high = middle
                else:
                    low = middle + 1
        except Diverged as error:
            self._refuse_gone(stream, number, error)
            raise
        return Epoch(high)

    def _epoch_rows(self, epoch: Epoch, stream: str, number: int) -> pa.Table:
        """Return the atoms of a stream in an epoch, from a number on that this epoch or a later one has."""
        try:
            commit = self._commit(epoch)
            count = commit.atoms.get(stream, 0) - number
            if count <= 0:
                return EVENTS.empty_table()
            rows = self._rows(commit, stream)
        except (Corrupt, Diverged) as error:
            self._refuse_gone(stream, number, error)
            raise
        begin = rows.num_rows - count
        if begin < 0:  # the epoch has the newer ones only
            self._refuse_gone(stream, number, None)
        if begin < 0 or rows["atom"][begin].as_py() != number:
            raise Corrupt(
                f"epoch {epoch} of the journal lacks atom {number} of stream {stream}; put its files back from a "
                "backup"
            )
        return rows.slice(begin)

    def _refuse_gone(self, stream: str, number: int, cause: Exception | None) -> None:
        """Raise `Gone` if retention has removed an atom."""
        oldest = self.oldest(stream)
        if number < oldest:
            raise gone(stream, number, oldest) from cause

    def _rows(self, commit: Commit, stream: str) -> pa.Table:
        """Return the atoms of a stream in an epoch, in order."""
        key = (stream, commit.epoch)
        with self._lock:
            if (cached := self._cached.get(key)) is not None:
                self._cached.move_to_end(key)
                return cached
        every = self._journal.read_all(commit.parts_of(PartKind.EVENTS), _COLUMNS)
        tables = [rows.filter(pc.equal(rows["stream"], stream)) for rows in every]
        rows = pa.concat_tables(tables) if tables else EVENTS.empty_table().select(_COLUMNS)
        rows = rows.sort_by("atom").combine_chunks() if len(tables) > 1 else rows.combine_chunks()
        self._keep(key, rows)
        return rows

    def _keep(self, key: tuple[str, Epoch], rows: pa.Table) -> None:
        """Add a table to the cached ones, and drop those that were not read for the longest time."""
        with self._lock:
            if key in self._cached:  # two threads have read it
                return
            self._cached[key] = rows
            self._cached_bytes += rows.nbytes + _TABLE_BYTES
            while self._cached_bytes > _CACHED_BYTES and len(self._cached) > 1:
                _, dropped = self._cached.popitem(last=False)
                self._cached_bytes -= dropped.nbytes + _TABLE_BYTES

    def _count(self, epoch: int, stream: str) -> int:
        return self._commit(Epoch(epoch)).atoms.get(stream, 0)

    def _commit(self, epoch: Epoch) -> Commit:
        """Return the commit of an epoch.

        Raises:
            Diverged: The journal does not hold the epoch.
        """
        commit = next(iter(self._journal.commits(Epoch(epoch - 1), epoch)), None)
        if commit is None or commit.epoch != epoch:
            raise missing_epoch(epoch)
        return commit


def gone(stream: str, number: int, oldest: int) -> Gone:
    """Return the error for an atom that retention has removed."""
    error = Gone(
        f"atom {number} of stream {stream} is gone: retention has removed its epoch, and the oldest atom is "
        f"{oldest}; continue there, or read older atoms from a backup"
    )
    error.oldest = oldest
    return error


def _atoms_of(rows: pa.Table, epoch: Epoch) -> Iterator[StreamAtom]:
    _, *columns = (rows[name].to_pylist() for name in _COLUMNS)
    for number, partition, lsn, time_us, events in zip(*columns, strict=True):
        position = (LogPartition(partition), Lsn(lsn))
        yield StreamAtom(number, events, epoch, position, time_us)
