"""The journal: the history of committed epochs, and the truth that all else is derived from.

An epoch becomes real by one `commit`, which lists the part files that tasks wrote before. A part
that no commit lists does not exist. This module fixes the port; `memory` and `delta` adapt it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn


class PartKind(StrEnum):
    """What the rows of a part are."""

    TRANSACTIONS = "transactions"
    CHANGES = "changes"


TRANSACTIONS: Final = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("partition", pa.int32()),  # of the log
        pa.field("lsn", pa.int64()),
        pa.field("request_id", pa.string()),
        pa.field("time_us", pa.int64()),
        pa.field("request", pa.binary()),  # the body, as appended
        pa.field("error", pa.string()),  # stable error code, null where the transaction took effect
        pa.field("reply", pa.binary()),  # MessagePack: the value, or the failure
    ]
)
"""One row for each request of an epoch."""

CHANGES: Final = pa.schema(
    [
        pa.field("epoch", pa.int64()),
        pa.field("entity", pa.string()),  # class name
        pa.field("key", pa.string()),
        pa.field("state", pa.binary()),  # MessagePack of the attributes; null where deleted
    ]
)
"""One row for each entity that an epoch changed: what it is after the epoch."""

SCHEMAS: Final = {PartKind.TRANSACTIONS: TRANSACTIONS, PartKind.CHANGES: CHANGES}


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
    """One committed epoch: the files it consists of, and how far it has read the log."""

    epoch: Epoch
    positions: Mapping[LogPartition, Lsn]  # after the epoch: next position to read
    parts: tuple[Part, ...]
    time_us: int  # when the driver committed, microseconds since the Unix epoch

    def parts_of(self, kind: PartKind) -> Sequence[Part]:
        """Return the parts of one kind."""
        return [part for part in self.parts if part.kind is kind]


class CompactionPolicy(NamedTuple):
    """How much is merged, and what stays.

    Attributes:
        newest: Epochs that are not merged yet, because who follows the journal reads them.
        epochs: Epochs of one segment.
        size: Bytes of parts that end a segment before it has so many epochs.
        small: Bytes of an epoch's parts, on average, from which on they are not merged.
        grace_s: For so long what was merged stays beside its segment, for other Delta readers that
            have looked up its files before.
    """

    newest: int = 100
    epochs: int = 2_000
    size: int = 16 << 20
    small: int = 256 << 10
    grace_s: int = 600


DEFAULT_COMPACTION: Final = CompactionPolicy()


class CompactionResult(NamedTuple):
    """What a compaction did: segments written, epochs in them, files removed."""

    segments: int = 0
    epochs: int = 0
    removed: int = 0


StepObserver = Callable[[str], None]
"""Is told each step of a work that may die between any two of them."""


def ignore_step(_: str) -> None:
    """Take no notice of a step."""


class Journal(Protocol):
    """Append-only sequence of commits; commit *n* follows *n - 1*, or is refused.

    `write` and `read` are called from many processes at once; `commit` by the driver alone.
    """

    @property
    def identity(self) -> str:
        """Name that no other journal has; a state that was fed from another one is useless."""

    @property
    def secret(self) -> bytes:
        """What `random()` and `uuid()` mix in, so that no caller can compute them; never changes.

        Copies and branches have it, too, because what they hold is run again.
        """

    def write(self, kind: PartKind, rows: pa.Table, name: str) -> Part:
        """Write a part durably under an attempt-scoped name; nobody sees it before its commit.

        All rows are of one epoch. A name consists of letters, digits, dots, dashes and
        underscores; the epoch and a random token are added to it.

        Raises:
            JournalUnavailable: The disk is full or fails; nothing is visible.
        """

    def commit(self, commit: Commit) -> None:
        """Make an epoch part of history: atomic, and durable when this returns.

        Raises:
            Fenced: The epoch exists already: another driver committed it.
            Diverged: The epoch is not the successor of the last one.
            Corrupt: A part of the commit is not there as it was written; nothing is committed.
            JournalUnavailable: The disk is full or fails; the epoch is not committed.
        """

    def last(self) -> Commit | None:
        """Return the newest commit, reading what other processes have committed."""

    def commits(self, after: Epoch, upto: Epoch | None = None) -> Iterator[Commit]:
        """Yield the commits of (after, upto], in order; without `upto` all that exist now."""

    def wait(self, after: Epoch, timeout_ms: int) -> Commit | None:
        """Block until epoch `after + 1` exists and return its commit; None when time is up."""

    def read(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows.

        Raises:
            Corrupt: The file's size or checksum does not fit, or it is missing.
        """

    def first(self) -> Epoch:
        """Return the oldest epoch that is held; 0 until older ones were forgotten."""

    def merged(self) -> Epoch:
        """Return the newest epoch that was compacted; -1 before the first."""

    def rows(
        self, kind: PartKind, after: Epoch, upto: Epoch, columns: Sequence[str]
    ) -> Iterator[tuple[Epoch, pa.Table]]:
        """Yield the rows of the epochs of (after, upto], each table with its last epoch.

        In order, and in whole epochs; several may come in one table.

        Raises:
            Diverged: An epoch of the range is not held.
            Corrupt: A commit or a part is damaged.
        """

    def checkpoint(self) -> None:
        """Condense the history, so that other engines open it fast however long it is.

        Changes nothing that this port shows, and may run beside everything else, in one thread or
        process at a time. A crash at any point leaves the former checkpoint in force.

        Raises:
            Corrupt: A commit is missing or damaged.
            JournalUnavailable: The disk is full or fails; the former checkpoint stays in force.
        """

    def compact(
        self, keep: CompactionPolicy = DEFAULT_COMPACTION, reached: StepObserver = ignore_step
    ) -> CompactionResult:
        """Merge the many small files of older epochs into few.

        Changes nothing that this port shows, and may run beside everything else; where another
        process does it already, nothing happens. A crash at any point leaves every epoch whole.

        Raises:
            Corrupt: A commit or a part is damaged; it stays as it is.
            JournalUnavailable: The disk is full or fails; nothing is lost.
        """

    def forget(self, before: Epoch, reached: StepObserver = ignore_step) -> Epoch:
        """Remove what is older than an epoch, as far as files hold nothing newer; return `first`.

        Who asks must know that nobody needs it. Epochs that were not compacted stay.

        Raises:
            Corrupt: A commit is damaged.
            JournalUnavailable: The disk fails; the rest goes another time.
        """

    def sweep(self, after: Epoch = BEFORE_FIRST) -> int:
        """Remove parts that no commit will ever list; return how many there were.

        Those are the unlisted parts of committed epochs, here of epochs after `after` only: each
        such epoch that has parts costs the reading of its commit.
        """

    def still(self) -> AbstractContextManager[object]:
        """Keep other threads from amid a change while the block forks a process, which reads on."""

    def close(self) -> None:
        """Release everything; all else raises `JournalUnavailable` afterwards."""
