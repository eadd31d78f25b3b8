"""Segments: many consecutive epochs with one index, and their rows in one file of each kind.

The index holds the original commits, and the rows of each part in the merged file. So a part keeps its
name, its rows and its place in history after its own file was removed, and a process that read the
commit before the merge can read the parts afterwards. The files are Parquet, and belong to the
journal's Delta table like any part. If epochs are large, merging would save few files and cost much:
then the segment is an index only, and the parts stay.

A damaged index or file is noticed before a row of it is used. `segments` finds the segments of a
journal, and `compaction` makes them.
"""

import re
import secrets
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.ids import Epoch
from penstock.errors import Corrupt
from penstock.files.sealed import checksum_of
from penstock.journal.api import SCHEMAS, Commit, Part, PartKind

INDEX_SUFFIX: Final = ".index"
_CLAIM_SUFFIX: Final = ".claim"
PREFIX: Final = "segment-"
_FILE: Final = re.compile(rf"{PREFIX}(\d+)-(\d+)-[0-9a-f]+\.parquet")
_ROW_GROUP: Final = 65_536
_REPEATED: Final = ["epoch", "entity", "error", "partition"]
"""Columns whose values hardly change from row to row; they get dictionaries."""


class RowRange(NamedTuple):
    """The rows of a part in the segment's file of its kind: [start, start + rows)."""

    kind: PartKind
    start: int
    rows: int


class _Index(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    time_us: int
    commits: msgspec.Raw
    files: dict[str, Part] | None


_decode_commits: Final = msgspec.msgpack.Decoder(list[Commit]).decode


class Segment:
    """One segment's index.

    Attributes:
        time_us: When the last one was committed, microseconds since the Unix epoch.
        merged: Whether its rows lie in files of its own.
        files: These files by kind; a kind without rows has none.
    """

    def __init__(self, index: _Index) -> None:
        self.first, self.last = Epoch(index.first), Epoch(index.last)
        self.merged = index.files is not None
        self.files = {PartKind(part_kind): part for part_kind, part in (index.files or {}).items()}
        self.time_us = index.time_us
        self._encoded = index.commits

    @property
    def name(self) -> str:
        """The name of its index."""
        return index_name(self.first, self.last)

    def commit(self, epoch: Epoch) -> Commit:
        """Return the commit of one of its epochs."""
        return self._commits[epoch - self.first]

    @cached_property
    def _commits(self) -> list[Commit]:
        """The commits, decoded at the first use, since listing the files does not need them."""
        return _decode_commits(self._encoded)

    @property
    def members(self) -> list[tuple[Part, Epoch, Epoch]]:
        """Every file with rows of the segment, with the first and last epoch of its rows."""
        if self.merged:
            return [(part, self.first, self.last) for part in self.files.values()]
        commits = self._commits
        return [(part, commit.epoch, commit.epoch) for commit in commits for part in commit.parts]

    def place(self, path: str) -> RowRange | None:
        """Return the rows of a part in the merged file; None if the part still has its own file."""
        return self._places.get(path) if self.merged else None

    def span(self, part_kind: PartKind, first: Epoch, last: Epoch) -> tuple[int, int]:
        """Return the first row of epoch `first`, and the number of rows up to epoch `last`."""
        starts = self._starts[part_kind]
        start, end = starts[first - self.first], starts[last + 1 - self.first]
        return start, end - start

    @cached_property
    def _starts(self) -> dict[PartKind, list[int]]:
        counts: dict[PartKind, list[int]] = {part_kind: [] for part_kind in PartKind}
        for commit in self._commits:
            rows = dict.fromkeys(PartKind, 0)
            for part in commit.parts:
                rows[part.kind] += part.rows
            for part_kind, count in rows.items():
                counts[part_kind].append(count)
        return {part_kind: list(accumulate(rows, initial=0)) for part_kind, rows in counts.items()}

    @cached_property
    def _places(self) -> dict[str, RowRange]:
        reached = dict.fromkeys(PartKind, 0)
        places: dict[str, RowRange] = {}
        for commit in self._commits:
            for part in commit.parts:
                places[part.path] = RowRange(part.kind, reached[part.kind], part.rows)
                reached[part.kind] += part.rows
        return places


def index_of(commits: Sequence[Commit], files: Iterable[Part] | None) -> bytes:
    """Return the content of an index: its checksum and compressed data.

    Args:
        commits: The commits of the segment, in order.
        files: The files with the merged rows; None if the parts keep their own files.
    """
    index = _Index(
        commits[0].epoch,
        commits[-1].epoch,
        commits[-1].time_us,
        msgspec.Raw(msgspec.msgpack.encode(list(commits))),
        None if files is None else {part.kind: part for part in files},
    )
    data = zlib.compress(msgspec.msgpack.encode(index), level=1)
    return checksum_of(data).encode() + data


def segment_of(name: str, text: bytes) -> Segment:
    """Read an index."""
    size = len(checksum_of(b""))
    checksum, data = text[:size], text[size:]
    if checksum_of(data).encode() != checksum:
        raise damaged_index(name, "does not have its checksum")
    segment = Segment(msgspec.msgpack.decode(zlib.decompress(data), type=_Index))
    if segment.name != name:
        raise damaged_index(name, f"has the content of {segment.name}")
    return segment


def damaged_index(name: str, how: str) -> Corrupt:
    """Return the error for an index that cannot be used; it says how to repair the journal."""
    return Corrupt(f"segment index {name} of the journal {how}; put the file back from a backup")


def index_name(first: Epoch, last: Epoch) -> str:
    """Return the name of a segment's index."""
    return f"{first:012}-{last:012}{INDEX_SUFFIX}"


def claim_name(first: Epoch) -> str:
    """Return the name that fixes the last epoch of the segment that begins with an epoch."""
    return f"{first:012}{_CLAIM_SUFFIX}"


def epoch_of_claim(name: str) -> Epoch | None:
    """Return the epoch in the name of a claim; None if the name is not of a claim."""
    stem = name.removesuffix(_CLAIM_SUFFIX)
    return Epoch(int(stem)) if stem != name and stem.isdigit() else None


def epochs_of_name(name: str) -> tuple[Epoch, Epoch] | None:
    """Return the epochs in the name of an index; None if the name is not of an index."""
    stem = name.removesuffix(INDEX_SUFFIX)
    first, _, last = stem.partition("-")
    if stem == name or not (first.isdigit() and last.isdigit()):
        return None
    return Epoch(int(first)), Epoch(int(last))


def file_path(part_kind: PartKind, first: Epoch, last: Epoch) -> str:
    """Return a path for a segment's file that no other attempt has."""
    return f"kind={part_kind}/{PREFIX}{first:012}-{last:012}-{secrets.token_hex(4)}.parquet"


def epochs_of_file(name: str) -> tuple[Epoch, Epoch] | None:
    """Return the epochs in the name of a segment's file; None if the name is not of such a file."""
    match = _FILE.fullmatch(name)
    return None if match is None else (Epoch(int(match[1])), Epoch(int(match[2])))


def encode(part_kind: PartKind, tables: Sequence[pa.Table], path: str) -> tuple[Part, memoryview]:
    """Return a segment's file, and its bytes.

    Args:
        tables: The rows, in order of epochs.
        path: The file's path, relative to the journal.
    """
    rows = pa.concat_tables(tables)
    assert rows.schema.equals(SCHEMAS[part_kind]), f"{part_kind} rows have the schema {rows.schema}"
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        row_group_size=_ROW_GROUP,
        compression="zstd",
        compression_level=3,
        use_dictionary=[name for name in _REPEATED if name in rows.schema.names],
        write_statistics=["epoch"],
        store_schema=False,
    )
    data = memoryview(sink.getvalue())
    return Part(part_kind, path, rows.num_rows, len(data), checksum_of(data)), data
