"""The journal: the history of committed epochs, from which all other stored data is derived.

One `commit` makes an epoch part of history. It lists the part files that tasks wrote before; a part
that no commit lists does not count. This module defines the port; `memory` and `delta` are adapters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import JournalUnavailable
from penstock.files.shared_root import SharedRoot


class UnclearCommit(JournalUnavailable):
    """It is not known whether an epoch is committed; the same commit, asked again, finds out."""


class PartKind(StrEnum):
    """The kind of rows in a part."""

    TRANSACTIONS = "transactions"
    CHANGES = "changes"
    EVENTS = "events"
    SENT = "sent"
    APPENDS = "appends"


TRANSACTIONS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("partition", pa.int32()),  # of the log
        pa.field("lsn", pa.int64()),
        pa.field("request_id", pa.string()),
        pa.field("time_us", pa.int64()),
        pa.field("request", pa.binary()),  # the body, as appended
        pa.field("error", pa.string()),  # stable error code; null if the transaction took effect
        pa.field("reply", pa.binary()),  # MessagePack: the value, or the failure
    ]
)
"""One row for each request of an epoch."""

CHANGES: Final = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("entity", pa.string()),  # class name
        pa.field("key", pa.string()),
        pa.field("state", pa.binary()),  # MessagePack of the attributes; null if deleted
    ]
)
"""One row for each entity that an epoch changed: its state after the epoch.

The keys of tasks are rows, too; their `entity` is the workflow and the task. An `entity` that begins with `$`
belongs to the engine (`engine.streams.system_rows`).
"""

EVENTS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("stream", pa.string()),
        pa.field("atom", pa.int64()),  # its number in the stream, from 0
        pa.field("partition", pa.int32()),  # of the log
        pa.field("lsn", pa.int64()),  # of the record that caused it
        pa.field("step", pa.int32()),  # of the cascade; 0 for the requests of the record
        pa.field("time_us", pa.int64()),  # of the record
        pa.field("count", pa.int32()),  # of its events; may be 0
        pa.field("events", pa.binary()),  # MessagePack: the list of the encoded events
    ]
)
"""One row for each atom that an epoch published, in the order of the records and their steps."""

SENT: Final = TRANSACTIONS
"""One row for each request that `send` ran at once; `partition` and `lsn` are those of the record that caused it."""

APPENDS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("partition", pa.int32()),  # of the log
        pa.field("lsn", pa.int64()),  # of the record that caused it
        pa.field("request_id", pa.string()),
        pa.field("request", pa.binary()),  # the body
        pa.field("time_us", pa.int64()),  # of the record that caused it
        pa.field("delay_us", pa.int64()),  # 0: it is appended at once
    ]
)
"""One row for each request that the cascades of an epoch append to the log."""

SCHEMAS: Final = {
    PartKind.TRANSACTIONS: TRANSACTIONS,
    PartKind.CHANGES: CHANGES,
    PartKind.EVENTS: EVENTS,
    PartKind.SENT: SENT,
    PartKind.APPENDS: APPENDS,
}


class Part(msgspec.Struct, frozen=True):
    """One immutable file of an epoch. It is written before its commit, and does not count until then.

    Commits, segments and the tasks of a round carry it in this form.
    """

    kind: PartKind
    path: str  # relative to the journal
    rows: int
    size: int  # bytes
    checksum: str  # XXH3-128 of the file's bytes, hexadecimal


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed epoch: its files, and the positions after it."""

    epoch: Epoch
    positions: Mapping[LogPartition, Lsn]  # after the epoch: next position to read
    parts: tuple[Part, ...]
    time_us: int  # when the driver committed, microseconds since the Unix epoch
    atoms: Mapping[str, int] = field(default_factory=dict)  # of each stream, after the epoch
    partitions: int = 0  # the number of stores from the next epoch on; 0: the commit names none
    record_checksum: str = ""  # of the last record, if the log may lose its end; see `Log.checksum`
    deployment: str = (
        ""  # `Deployment.name` of that which executes the next epoch; empty: it names none
    )

    def parts_of(self, part_kind: PartKind) -> Sequence[Part]:
        """Return the parts of one kind."""
        return [part for part in self.parts if part.kind is part_kind]


class CompactionPolicy(NamedTuple):
    """When epochs are merged into segments, and how long their own files are kept.

    Attributes:
        newest: How many of the newest epochs are not merged, because followers read them.
        epochs: Epochs in one segment.
        size: A segment also ends when its parts have this many bytes.
        small: Epochs whose parts have this many bytes or more, on average, are not merged.
        grace_s: Seconds to keep merged source files after compaction, so that open Delta readers do
            not fail.
    """

    newest: int = 100
    epochs: int = 2_000
    size: int = 16 << 20
    small: int = 256 << 10
    grace_s: int = 600


DEFAULT_COMPACTION: Final = CompactionPolicy()


class CompactionResult(NamedTuple):
    """The numbers of segments written, of epochs in them, and of files removed."""

    segments: int = 0
    epochs: int = 0
    removed: int = 0


StepObserver = Callable[[str], None]
"""Called after each step of an operation; tests kill the process there."""


def ignore_step(_: str) -> None:
    """Do nothing."""


class Journal(Protocol):
    """Append-only sequence of commits; commit *n* follows *n - 1*, or is refused.

    `write` and `read` are called from many processes at once; `commit` by the driver alone.
    """

    @property
    def identity(self) -> str:
        """A name that no other journal has; state and views are only valid for their journal."""

    @property
    def secret(self) -> bytes:
        """The key of `random()` and `uuid()`, so that no caller can compute them; it never changes.

        Copies and branches keep it, because they run the same requests again.
        """

    def write(self, part_kind: PartKind, rows: pa.Table, name: str) -> Part:
        """Write a part; it is not visible before its commit, and durable with it.

        Args:
            part_kind: The kind of the rows.
            rows: Rows of one epoch, with the schema of the kind.
            name: Letters, digits, dots, dashes and underscores. The epoch and a random token are
                added to it, so that two attempts never share a file.

        Raises:
            JournalUnavailable: The disk is full or fails; nothing is visible.
        """

    def write_all(self, tables: Mapping[PartKind, pa.Table], name: str) -> list[Part]:
        """Write parts of one epoch as `write` does, in the order of their kinds; together, which is faster."""

    def commit(self, commit: Commit) -> None:
        """Make an epoch part of history: atomic, and durable when this returns.

        Raises:
            Fenced: The epoch exists already: another driver committed it.
            Diverged: The epoch is not the successor of the last one.
            Corrupt: A part of the commit is missing or changed; nothing is committed. Where the answer to `write`
                proves that a part is stored, nobody looks.
            JournalUnavailable: The disk is full or fails; the epoch is not committed.
        """

    def last(self) -> Commit | None:
        """Return the newest commit, also if another process has made it; None before the first."""

    def known(self) -> Commit | None:
        """Return the newest commit that this object has made, or has returned as the last one; looks for no other."""

    def commits(self, after: Epoch, upto: Epoch | None = None) -> Iterator[Commit]:
        """Yield the commits of (after, upto], in order; without `upto`, all that exist now."""

    def wait(
        self, after: Epoch, timeout_ms: int, ahead: Callable[[Commit], object] | None = None
    ) -> Commit | None:
        """Block until epoch `after + 1` exists and return its commit; None when time is up.

        Args:
            ahead: May be called with the commit before, while the disk makes its name durable. It reads parts of the epoch, and tells
                nobody of them until `wait` returns.
        """

    def read(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows.

        Raises:
            Corrupt: The file is missing, or its size or checksum does not fit.
        """

    def read_all(
        self, parts: Sequence[Part], columns: Sequence[str] | None = None
    ) -> list[pa.Table]:
        """Return the rows of each part; raises as `read`. It waits for the parts together, if a network is between."""

    def first(self) -> Epoch:
        """Return the oldest epoch that is held; 0 until epochs were forgotten."""

    def merged(self) -> Epoch:
        """Return the newest epoch that was compacted; -1 before the first."""

    def rows(
        self, part_kind: PartKind, after: Epoch, upto: Epoch, columns: Sequence[str]
    ) -> Iterator[tuple[Epoch, pa.Table]]:
        """Yield the rows of the epochs of (after, upto], in order.

        Returns:
            Tables, each with its last epoch. A table has whole epochs, often several.

        Raises:
            Diverged: An epoch of the range is not held.
            Corrupt: A commit or a part is damaged.
        """

    def checkpoint(self) -> None:
        """Write a Delta checkpoint, so that other engines open a long history fast.

        This port shows the same as before. It may run at the same time as every other method, but
        not twice at once. A crash at any point leaves the former checkpoint in force.

        Raises:
            Corrupt: A commit is missing or damaged.
            JournalUnavailable: The disk is full or fails; the former checkpoint stays in force.
        """

    def compact(
        self, keep: CompactionPolicy = DEFAULT_COMPACTION, reached: StepObserver = ignore_step
    ) -> CompactionResult:
        """Merge the small files of older epochs into large ones.

        This port shows the same as before. It may run at the same time as every other method; if
        another process compacts already, it does nothing. A crash at any point leaves each epoch
        whole.

        Raises:
            Corrupt: A commit or a part is damaged; it stays as it is.
            JournalUnavailable: The disk is full or fails; nothing is lost.
        """

    def forget(self, before: Epoch, reached: StepObserver = ignore_step) -> Epoch:
        """Remove segments whose epochs are all older than an epoch; return the oldest epoch left.

        The caller must know that no reader needs them. Epochs that were not compacted stay.

        Raises:
            Corrupt: A commit is damaged.
            JournalUnavailable: The disk fails; a later call removes the rest.
        """

    def quiesced(self) -> AbstractContextManager[object]:
        """Hold the internal locks while the block forks, so that the child can use the journal."""

    def close(self) -> None:
        """Release everything; every other method raises `JournalUnavailable` afterwards."""


def told_commit(journal: Journal, root: SharedRoot) -> Commit | None:
    """Return the newest commit, which may lack the last seconds: while the lease tells of no newer one, no store is asked.

    Args:
        root: The shared root of the application.
    """
    known, mark = journal.known(), root.lease_mark()
    if known is not None and mark is not None and BEFORE_FIRST < mark.epoch <= known.epoch:
        return known
    return journal.last()


def newest_epoch(journal: Journal) -> Epoch:
    """Return the epoch of the newest commit; `BEFORE_FIRST` before the first one."""
    last = journal.last()
    return BEFORE_FIRST if last is None else last.epoch
