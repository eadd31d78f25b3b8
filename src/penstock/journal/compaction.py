"""Compaction: the small files of older epochs are merged into segments; old segments are removed.

At every moment, also after a crash, each epoch is held once and whole. A segment counts as soon as
its index is published, after its files are durable. The files that it replaces, and the files below
the floor, may be removed at any later time. One process at a time compacts, while others read and
commit. The caller decides which epochs may be forgotten. Compaction also removes the parts and the
drafts of commits that a failed attempt left behind.

The steps, in order (`reached` is called after each): `segment-written`, `segment-indexed`,
`segment-condensed`, `segment-reclaimed`; for forgetting `floor-raised`, `floor-condensed`,
`floor-removed`.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.files import durable
from penstock.files.lock import locked_directory
from penstock.journal import checkpoint, parquet, segment
from penstock.journal.action import epoch_of_version
from penstock.journal.api import (
    Commit,
    CompactionPolicy,
    CompactionResult,
    Part,
    PartKind,
    StepObserver,
)
from penstock.journal.commits import CommitLog
from penstock.journal.segment import PREFIX
from penstock.journal.segments import Segments

_LARGE_EPOCHS: Final = 128
"""Epochs in a segment whose parts are not merged."""

_CHECKPOINT_EVERY: Final = 1_000
"""Epochs after which a new checkpoint is written, also if no segment is new."""

_COMMIT_OR_DRAFT: Final = re.compile(r"(\d{20})\.json|\.(\d{20})\.json\.[0-9a-f]+\.tmp")


class _Reader(Protocol):
    def stored(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows; encrypted replies stay encrypted."""

    def commits(self, after: Epoch, upto: Epoch | None = None) -> Iterator[Commit]:
        """Yield commits, in order."""


class Compaction:
    """Merges and forgets in one journal's directory."""

    def __init__(
        self,
        root: Path,
        app: str,
        commits: CommitLog,
        segments: Segments,
        reached: StepObserver,
    ) -> None:
        self._root = root
        self._app = app
        self._commits = commits
        self._segments = segments
        self._reached = reached

    def run(self, journal: _Reader, keep: CompactionPolicy) -> CompactionResult:
        """Merge the epochs that are old enough; do nothing while another process does.

        Raises:
            Corrupt: A commit or a part is damaged.
        """
        with durable.storage("compact the journal"), self._alone() as alone:
            if not alone:
                return CompactionResult()
            self._segments.refresh()
            self._remove_unknown()
            merged = epochs = 0
            for batch, small in self._batches(journal, keep):
                self._index(batch, self._merged(journal, batch) if small else None)
                if not small:
                    self._remove_orphans(batch)
                merged, epochs = merged + 1, epochs + len(batch)
            # A process may have died after it published a segment and before this.
            checkpoint.checkpoint(self._commits, self._segments, self._app, _CHECKPOINT_EVERY)
            self._reached("segment-condensed")
            removed = self._reclaim(keep.grace_s)
            self._reached("segment-reclaimed")
            return CompactionResult(merged, epochs, removed)

    def forget(self, before: Epoch) -> Epoch:
        """Implement `Journal.forget`; the newest segment always stays.

        It does nothing while another process compacts.
        """
        with durable.storage("forget old epochs"), self._alone() as alone:
            self._segments.refresh()
            kept = [first for first, last in self._segments.spans if last >= before]
            spans = self._segments.spans
            if alone and spans:
                floor = kept[0] if kept else spans[-1][0]
                if floor > self._segments.first:
                    self._segments.raise_floor(floor)
                    self._segments.refresh()
                    self._reached("floor-raised")
                    checkpoint.checkpoint(self._commits, self._segments, self._app)
                    self._reached("floor-condensed")
                self._remove_unknown()
                self._reached("floor-removed")
            return self._segments.first

    def _batches(
        self, journal: _Reader, keep: CompactionPolicy
    ) -> Iterator[tuple[list[Commit], bool]]:
        """Yield the commits of each new segment, and whether to merge their files."""
        upto = Epoch(self._commits.newest() - keep.newest)
        batch: list[Commit] = []
        size = 0
        for commit in journal.commits(self._segments.last, upto):
            batch.append(commit)
            size += sum(part.size for part in commit.parts)
            large = size >= keep.small * len(batch)
            if len(batch) >= (min(_LARGE_EPOCHS, keep.epochs) if large else keep.epochs) or (
                size >= keep.size and not large
            ):
                yield batch, not large
                batch, size = [], 0

    def _index(self, batch: list[Commit], files: list[Part] | None) -> None:
        """Publish a segment's index."""
        index = self._segments.directory / segment.index_name(batch[0].epoch, batch[-1].epoch)
        durable.publish(index, segment.index_of(batch, files))
        durable.sync_directory(index.parent)
        self._segments.refresh()
        self._reached("segment-indexed")

    def _merged(self, journal: _Reader, batch: list[Commit]) -> list[Part]:
        """Write the files of a segment, durably."""
        first, last = batch[0].epoch, batch[-1].epoch
        files: list[Part] = []
        for part_kind in PartKind:
            tables = [
                journal.stored(part) for commit in batch for part in commit.parts_of(part_kind)
            ]
            if any(table.num_rows for table in tables):
                path = segment.file_path(part_kind, first, last)
                part, data = segment.encode(part_kind, tables, path)
                durable.create(self._root / part.path, data)
                durable.sync_directory((self._root / part.path).parent)
                files.append(part)
        self._reached("segment-written")
        return files

    def _remove_orphans(self, batch: list[Commit]) -> None:
        """Remove the parts of committed epochs that their commits do not list.

        If an epoch is merged, `_reclaim` removes all its parts.
        """
        listed = {part.path for commit in batch for part in commit.parts}
        for part, epoch in self._parts():
            if batch[0].epoch <= epoch <= batch[-1].epoch and part not in listed:
                (self._root / part).unlink(missing_ok=True)

    def _reclaim(self, grace_s: int) -> int:
        """Remove the files that segments have replaced, once they are old enough; return how many.

        A draft of a commit goes with the commit: its epoch has been committed by another attempt.
        """
        upto = self._aged(grace_s)
        removed = 0
        for path in list(self._commits.directory.iterdir()):
            name = _COMMIT_OR_DRAFT.fullmatch(path.name)
            if name and 0 <= epoch_of_version(int(name[1] or name[2])) <= upto:
                path.unlink(missing_ok=True)
                removed += 1
        merged = self._merged_spans()
        for part, epoch in self._parts():
            if epoch <= upto and self._segments.span_of(epoch) in merged:
                (self._root / part).unlink(missing_ok=True)
                removed += 1
        return removed

    def _merged_spans(self) -> set[tuple[Epoch, Epoch]]:
        """Return the spans of the segments whose parts were merged."""
        spans = (segment.epochs_of_file(file.name) for file in self._files())
        return {span for span in spans if span is not None}

    def _files(self) -> list[Path]:
        """Return the segments' files."""
        return [
            file for _, folder in parquet.folders(self._root) for file in folder.glob(f"{PREFIX}*")
        ]

    def _parts(self) -> Iterator[tuple[str, Epoch]]:
        """Yield the path and the epoch of each part that has a file."""
        for name, folder in parquet.folders(self._root):
            for file in list(folder.iterdir()):
                path = f"{name}/{file.name}"
                if (epoch := parquet.epoch_of(path)) is not None:
                    yield path, epoch

    def _aged(self, grace_s: int) -> Epoch:
        """Return the last epoch of the segments that are older than the grace period."""
        before_ns = time.time_ns() - grace_s * 1_000_000_000
        upto = Epoch(self._segments.first - 1)
        for span in self._segments.spans:
            index = self._segments.directory / segment.index_name(*span)
            if index.stat().st_mtime_ns > before_ns:
                break
            upto = span[1]
        return upto

    def _remove_unknown(self) -> None:
        """Remove segments below the floor, and files of segments that were never published."""
        floor = self._segments.first
        for path in list(self._segments.directory.iterdir()):
            span = segment.epochs_of_name(path.name)
            if (span is not None and span[1] < floor) or path.name.endswith(durable.TEMPORARY):
                path.unlink(missing_ok=True)
        for part, epoch in self._parts():
            if epoch < floor:
                (self._root / part).unlink(missing_ok=True)
        spans = set(self._segments.spans)
        for file in self._files():
            if segment.epochs_of_file(file.name) not in spans:
                file.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep other processes from compacting; yield False if another process compacts."""
        directory = self._segments.directory
        directory.mkdir(parents=True, exist_ok=True)
        durable.sync_directory(self._root)
        with locked_directory(directory, timeout_s=0) as held:
            yield held is not None
