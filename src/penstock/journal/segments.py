"""The segments of a journal: finding them, and reading their rows.

Segments hold a range of epochs without gaps. Every byte is checked before it is used. A process lists
them again only if it misses an epoch, so that segments cost nothing while it follows the
newest epochs.

`floor` is the oldest epoch that the journal still holds. It is stored before older segments are
removed, so that a segment that is missing for another reason is noticed.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.files import durable
from penstock.files.looks import Looks
from penstock.files.sealed import checksum_of
from penstock.files.shared_root import SharedRoot
from penstock.journal import segment
from penstock.journal.api import SCHEMAS, Part, PartKind
from penstock.journal.parquet import damaged_part
from penstock.journal.segment import Segment

FOLDER: Final = "_segments"
_FLOOR: Final = "floor.json"
_OPENED: Final = 8
"""Indexes that are kept in memory; an index of 2,000 epochs takes about 2 MB."""
_FRESH_S: Final = 60.0
"""How old a listing may be where names stay longer than this; each one costs a request."""


class Segments:
    """The segments under one journal's directory; safe for threads."""

    def __init__(self, root: SharedRoot) -> None:
        self._root = root
        self.root = root.folder(FOLDER)
        self._lock = threading.RLock()
        self._spans: list[tuple[Epoch, Epoch]] | None = None
        self._changed: object = None
        self._listed_s = 0.0
        self._looks = Looks(root, 0.0)
        self._indexes: dict[str, Segment] = {}
        self._decoded: dict[PartKind, tuple[str, tuple[str, ...], pa.Table]] = {}

    def refresh(self) -> None:
        """List the segments again, if there may be others.

        Raises:
            Corrupt: A segment is missing.
        """
        with self._lock:
            changed, now_s = self.root.version(""), time.monotonic()
            if self._spans is None or changed != self._changed:
                self._spans = self._listed()
                self._changed = changed
                self._listed_s = now_s

    def look(self) -> None:
        """Do what `refresh` does, unless the last listing tells enough to find every name that may be asked for."""
        with self._lock:
            age_s, keeps_s = time.monotonic() - self._listed_s, self.root.keeps_s
            # Names of an older listing may be gone; a younger one costs nothing as long as the lease counts no change.
            is_old = self._spans is None or age_s >= keeps_s
            if is_old or (age_s >= _FRESH_S and self._looks.is_due()):
                self.refresh()

    @property
    def spans(self) -> list[tuple[Epoch, Epoch]]:
        """First and last epoch of every segment, in order, as of the last listing."""
        with self._lock:
            if self._spans is None:
                self.refresh()
            assert self._spans is not None
            return self._spans

    @property
    def first(self) -> Epoch:
        """The oldest epoch in a segment; 0 without any."""
        return self.spans[0][0] if self.spans else Epoch(0)

    @property
    def last(self) -> Epoch:
        """The newest epoch in a segment; -1 without any."""
        return self.spans[-1][1] if self.spans else BEFORE_FIRST

    def covering(self, epoch: Epoch) -> Segment | None:
        """Return the segment of an epoch, as of the last listing; None if no segment has it.

        Raises:
            Corrupt: Its index is damaged or missing.
        """
        with self._lock:
            if (name := self._covering(epoch)) is None:
                return None
            if (opened := self._opened(name)) is not None:
                return opened
            self.refresh()  # it was forgotten, or it is missing
            if self._covering(epoch) == name:
                raise segment.damaged_index(name, "is missing")
            return None

    def quiesced(self) -> AbstractContextManager[object]:
        """Return the lock that `Journal.quiesced` holds."""
        return self._lock

    def span_of(self, epoch: Epoch) -> tuple[Epoch, Epoch] | None:
        """Return first and last epoch of the segment of an epoch, as of the last listing."""
        spans = self.spans
        at = bisect_right(spans, epoch, key=lambda span: span[0]) - 1
        return None if at < 0 or spans[at][1] < epoch else spans[at]

    def _covering(self, epoch: Epoch) -> str | None:
        span = self.span_of(epoch)
        return None if span is None else segment.index_name(*span)

    def _opened(self, name: str) -> Segment | None:
        opened = self._indexes.get(name)
        if opened is None:
            try:
                text = self.root.get(name)
            except FileNotFoundError:
                return None
            opened = segment.segment_of(name, text)
            while len(self._indexes) >= _OPENED:
                del self._indexes[next(iter(self._indexes))]
            self._indexes[name] = opened
        return opened

    def every(self) -> Iterator[Segment]:
        """Yield all segments, in order."""
        for first, _ in self.spans:
            if (opened := self.covering(first)) is not None:
                yield opened

    def part_rows(self, epoch: Epoch, path: str, columns: Sequence[str] | None) -> pa.Table | None:
        """Return the rows of a merged part.

        Args:
            columns: The columns to read; None reads all.

        Returns:
            The rows; None if no segment has merged the part.

        Raises:
            Corrupt: The segment is damaged.
        """
        opened = self.covering(epoch)
        place = None if opened is None else opened.place(path)
        if opened is None or place is None:
            return None
        return self._table(opened, place.kind, columns).slice(place.start, place.rows)

    def rows(
        self,
        opened: Segment,
        part_kind: PartKind,
        first: Epoch,
        last: Epoch,
        columns: Sequence[str],
    ) -> pa.Table:
        """Return the rows of some epochs of a merged segment.

        Raises:
            Corrupt: The segment is damaged.
        """
        return self._table(opened, part_kind, columns).slice(*opened.span(part_kind, first, last))

    def floor(self) -> Epoch:
        """Return the oldest epoch that was not forgotten."""
        return Epoch(self._floor().first)

    def removable(self) -> Epoch:
        """Return the epoch before which everything may be removed now: the floor, once it is old enough."""
        floor = self._floor()
        if not self.root.keeps_s:
            return Epoch(floor.first)
        before_us = (self.root.now_s()[0] - self.root.keeps_s) * 1e6
        return Epoch(max((first for first, at_us in floor.raised if at_us <= before_us), default=0))

    def _floor(self) -> "_Floor":
        try:
            return msgspec.json.decode(self.root.get(_FLOOR), type=_Floor)
        except FileNotFoundError:
            return _Floor(0)
        except msgspec.MsgspecError as error:
            raise Corrupt(
                f"{self.root}/{_FLOOR} is damaged; put the file back from a backup"
            ) from error

    def raise_floor(self, first: Epoch) -> None:
        """Store durably that everything before an epoch may be removed."""
        raised: list[tuple[int, int]] = []
        if self.root.keeps_s:
            removable = self.removable()
            raised = [floor for floor in self._floor().raised if floor[0] >= removable]
            raised.append((first, int(self.root.now_s()[1] * 1e6)))
        self.root.replace(_FLOOR, msgspec.json.encode(_Floor(first, raised)))

    def _listed(self) -> list[tuple[Epoch, Epoch]]:
        names = list(self.root.names())
        if not names:
            return []
        floor = self.floor()
        every = sorted(span for name in names if (span := segment.epochs_of_name(name)) is not None)
        spans = [span for span in every if span[1] >= floor]  # the others are about to be removed
        expected = floor
        for first, last in spans:
            if first != expected:
                raise Corrupt(
                    f"the journal has no segment of epoch {expected}, and the next one begins at "
                    f"{first}; put the files back from a backup of {self.root}"
                )
            expected = Epoch(last + 1)
        if floor > 0 and not spans:
            raise Corrupt(
                f"the journal's segment of epoch {floor} is missing; put the files back from a backup "
                f"of {self.root}"
            )
        return spans

    def _table(
        self, opened: Segment, part_kind: PartKind, columns: Sequence[str] | None
    ) -> pa.Table:
        """Return all rows of a segment's file; the last table of each kind is kept in memory."""
        part = opened.files.get(part_kind)
        names = tuple(SCHEMAS[part_kind].names if columns is None else columns)
        if part is None:
            return SCHEMAS[part_kind].empty_table().select(names)
        with self._lock:
            path, had, table = self._decoded.get(part_kind, ("", (), None))
            if path != part.path or not set(names) <= set(had):
                table = self._read(part, names)
                self._decoded[part_kind] = (part.path, names, table)
            return table.select(names)

    def _read(self, part: Part, columns: Sequence[str]) -> pa.Table:
        with durable.storage(f"read segment {part.path}"):
            try:
                data = self._root.get(part.path)
            except FileNotFoundError:
                raise damaged_part(part, "is missing") from None
        if len(data) != part.size or checksum_of(data) != part.checksum:
            raise damaged_part(part, "is damaged")
        source = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        return source.read(columns=list(columns), use_threads=False).combine_chunks()


class _Floor(msgspec.Struct, frozen=True, omit_defaults=True):
    first: int
    raised: list[tuple[int, int]] = []
    """Floors, and when they were raised by the fastest clock (microseconds since the Unix epoch), where names stay."""
