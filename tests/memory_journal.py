"""`MemoryJournal`: a journal in memory, for tests.

It implements the port for the threads of one process, without durability. Parts are kept as the bytes
of their files, so that no caller can change them.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged, Fenced, JournalUnavailable
from penstock.journal import parquet
from penstock.journal.api import (
    DEFAULT_COMPACTION,
    Commit,
    CompactionPolicy,
    CompactionResult,
    Part,
    PartKind,
    StepObserver,
    ignore_step,
)
from penstock.journal.parquet import rows_by_epoch


class MemoryJournal:
    """A list of commits and a dictionary of parts."""

    def __init__(self) -> None:
        self._identity = secrets.token_hex(16)
        self._secret = secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._commits: list[Commit] = []
        self._parts: dict[str, bytes] = {}
        self._first = Epoch(0)
        self._closed = False

    @property
    def identity(self) -> str:
        """As the port says."""
        return self._identity

    @property
    def secret(self) -> bytes:
        """As the port says."""
        return self._secret

    def write(self, part_kind: PartKind, rows: pa.Table, name: str) -> Part:
        """Keep a part, as the port says."""
        written, data = parquet.encode(part_kind, rows, name)
        with self._changed:
            self._check_open()
            self._parts[written.path] = bytes(data)
        return written

    def write_all(self, tables: Mapping[PartKind, pa.Table], name: str) -> list[Part]:
        """Keep parts, as the port says."""
        return [self.write(part_kind, rows, name) for part_kind, rows in tables.items()]

    def commit(self, commit: Commit) -> None:
        """Append a commit and wake the waiting threads, as the port says."""
        with self._changed:
            self._check_open()
            for part in commit.parts:
                epoch = parquet.epoch_of(part.path)
                assert epoch is None or epoch == commit.epoch, f"{part.path} is of another epoch"
                if part.path not in self._parts:
                    raise parquet.damaged_part(part, "is missing, so nothing is committed")
            if commit.epoch < len(self._commits):
                raise Fenced(f"epoch {commit.epoch} exists already: another driver committed it")
            if commit.epoch > len(self._commits):
                raise Diverged(f"epoch {commit.epoch} cannot follow epoch {len(self._commits) - 1}")
            self._commits.append(commit)
            self._changed.notify_all()

    def last(self) -> Commit | None:
        """Return the newest commit."""
        with self._changed:
            self._check_open()
            return self._commits[-1] if self._commits else None

    def known(self) -> Commit | None:
        """Return the newest commit, which costs nothing here."""
        return self.last()

    def commits(self, after: Epoch, upto: Epoch | None = None) -> Iterator[Commit]:
        """Yield the commits of (after, upto], as the port says."""
        with self._changed:
            self._check_open()
            end = len(self._commits) if upto is None else upto + 1
            return iter(self._commits[max(after + 1, self._first) : end])

    def wait(
        self, after: Epoch, timeout_ms: int, ahead: Callable[[Commit], object] | None = None
    ) -> Commit | None:
        """Block until epoch `after + 1` exists, as the port says; it is durable at once, so nothing is read ahead."""
        following = after + 1
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or following < len(self._commits), timeout_ms / 1000
            )
            self._check_open()
            return self._commits[following] if following < len(self._commits) else None

    def read(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows, as the port says."""
        with self._changed:
            self._check_open()
            data = self._parts.get(part.path)
        if data is None:
            raise parquet.damaged_part(part, "is missing")
        return parquet.decode(part, data, columns)

    def read_all(
        self, parts: Sequence[Part], columns: Sequence[str] | None = None
    ) -> list[pa.Table]:
        """Return the rows of parts, as the port says."""
        return [self.read(part, columns) for part in parts]

    def first(self) -> Epoch:
        """Return the oldest epoch that is held."""
        with self._changed:
            self._check_open()
            return self._first

    def merged(self) -> Epoch:
        """Return -1, since this journal never compacts."""
        return BEFORE_FIRST

    def rows(
        self, part_kind: PartKind, after: Epoch, upto: Epoch, columns: Sequence[str]
    ) -> Iterator[tuple[Epoch, pa.Table]]:
        """Yield the rows of the epochs of (after, upto], as the port says."""
        return rows_by_epoch(self, part_kind, after, upto, columns)

    def checkpoint(self) -> None:
        """Do nothing, since no other engine opens this journal."""
        with self._changed:
            self._check_open()

    def compact(
        self, keep: CompactionPolicy = DEFAULT_COMPACTION, reached: StepObserver = ignore_step
    ) -> CompactionResult:
        """Do nothing, since there are no files."""
        with self._changed:
            self._check_open()
            return CompactionResult()

    def forget(self, before: Epoch, reached: StepObserver = ignore_step) -> Epoch:
        """Remove the parts of old epochs, but never the parts of the newest."""
        with self._changed:
            self._check_open()
            floor = max(self._first, min(before, len(self._commits) - 1))
            for commit in self._commits[self._first : floor]:
                for part in commit.parts:
                    del self._parts[part.path]
            self._first = Epoch(floor)
            return self._first

    def quiesced(self) -> AbstractContextManager[object]:
        """Hold the internal lock, as the port says."""
        return self._changed

    def close(self) -> None:
        """Refuse all further use, and wake the waiting threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise JournalUnavailable("the journal is closed")
