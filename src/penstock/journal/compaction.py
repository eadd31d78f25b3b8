"""Compaction: the small files of older epochs are merged into segments; old segments are removed.

At every moment, also after a crash, each epoch is held once and whole. A segment counts as soon as
its index is published, after its files are durable. The files that it replaces, and the files below
the floor, may be removed at any later time. On a host, one process at a time compacts, while others read and
commit. The caller decides which epochs may be forgotten. Compaction also removes the parts and the
drafts of commits that a failed attempt left behind.

Processes of several hosts may compact at once. A claim, which is created before the files of a segment, fixes the last epoch of
the segment that begins with an epoch, whoever merges it and however often; of two indexes with one name, the first one counts, and
the other process drops its files. So no two segments overlap.

The steps, in order (`reached` is called after each): `segment-written`, `segment-indexed`,
`segment-condensed`, `segment-reclaimed`; for forgetting `floor-raised`, `floor-condensed`,
`floor-removed`.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import Corrupt
from penstock.files import durable
from penstock.files.retired import is_useless
from penstock.files.shared_root import SharedRoot
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
from penstock.journal.head import forgettable
from penstock.journal.segment import PREFIX
from penstock.journal.segments import FOLDER, Segments

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
    """Merges and forgets in one journal."""

    def __init__(
        self,
        root: SharedRoot,
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
                if not self._claimed(batch):
                    break  # another host merges these epochs; the next run goes on from its segment
                if not self._index(batch, self._merged(journal, batch) if small else None):
                    break
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
        claimed: Epoch | None = None
        for commit in journal.commits(self._segments.last, upto):
            if not batch:
                claimed = self._claim(commit.epoch)
            batch.append(commit)
            size += sum(part.size for part in commit.parts)
            large = size >= keep.small * len(batch)
            is_full = len(batch) >= (min(_LARGE_EPOCHS, keep.epochs) if large else keep.epochs) or (
                size >= keep.size and not large
            )
            # A host that has died has fixed the end, and perhaps published the segment just before.
            if is_full if claimed is None else commit.epoch == claimed:
                yield batch, not large
                batch, size = [], 0

    def _claim(self, first: Epoch) -> Epoch | None:
        """Return the last epoch of the segment that begins with an epoch; None if nobody has fixed it."""
        if not self._root.keeps_s:
            return None
        try:
            text = self._segments.root.get(segment.claim_name(first))
        except FileNotFoundError:
            return None
        if not text.isdigit():
            raise Corrupt(
                f"{self._segments.root}/{segment.claim_name(first)} is damaged; remove it"
            )
        return Epoch(int(text))

    def _claimed(self, batch: list[Commit]) -> bool:
        """Say whether the epochs are free, and the segment that begins with their first one is to end with their last."""
        first, last = batch[0].epoch, batch[-1].epoch
        if not self._root.keeps_s:
            return True  # `_alone` keeps all others out
        if not self._segments.root.create(segment.claim_name(first), b"%d" % last):
            return False
        # After it: the claim of a segment that was forgotten is gone, and this process may have slept since it looked.
        self._segments.refresh()
        return self._segments.last == first - 1

    def _index(self, batch: list[Commit], files: list[Part] | None) -> bool:
        """Publish a segment's index; if another host has, remove the files, and return False."""
        name = segment.index_name(batch[0].epoch, batch[-1].epoch)
        is_ours = self._segments.root.create(name, segment.index_of(batch, files))
        self._segments.root.count_change()
        if not is_ours:
            for part in files or ():
                self._root.remove(part.path)
        self._segments.refresh()
        self._reached("segment-indexed")
        return is_ours

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
                self._root.add(part.path, data)
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
                self._root.remove(part)

    def _reclaim(self, grace_s: int) -> int:
        """Remove the files that segments have replaced, once they are old enough; return how many.

        A draft of a commit goes with the commit: its epoch has been committed by another attempt.
        """
        upto = self._aged(grace_s)
        removed = 0
        for name in list(self._commits.root.names()):
            match = _COMMIT_OR_DRAFT.fullmatch(name)
            if match and 0 <= epoch_of_version(int(match[1] or match[2])) <= upto:
                self._commits.root.remove(name)
                removed += 1
        merged = self._merged_spans()
        for part, epoch in self._parts():
            if epoch <= upto and self._segments.span_of(epoch) in merged:
                self._root.remove(part)
                removed += 1
        return removed

    def _merged_spans(self) -> set[tuple[Epoch, Epoch]]:
        """Return the spans of the segments whose parts were merged."""
        spans = (segment.epochs_of_file(name) for _, name in self._files())
        return {span for span in spans if span is not None}

    def _files(self) -> list[tuple[str, str]]:
        """Return the folders and the names of the segments' files."""
        return [place for place in parquet.stored_names(self._root) if place[1].startswith(PREFIX)]

    def _parts(self) -> Iterator[tuple[str, Epoch]]:
        """Yield the path and the epoch of each part that has a file."""
        for folder, name in parquet.stored_names(self._root):
            path = f"{folder}/{name}"
            if (epoch := parquet.epoch_of(path)) is not None:
                yield path, epoch

    def _aged(self, grace_s: int) -> Epoch:
        """Return the last epoch of the segments that are older than the grace period."""
        age_of = self._segments.root.age_s
        ages = ((span[1], age_of(segment.index_name(*span))) for span in self._segments.spans)
        keeps_s = max(grace_s, self._root.keeps_s)
        return forgettable(Epoch(self._segments.first - 1), ages, keeps_s)

    def _remove_unknown(self) -> None:
        """Remove segments below the floor, and files of segments that were never published."""
        floor = self._segments.removable()
        for name in list(self._segments.root.names()):
            span, first = segment.epochs_of_name(name), segment.epoch_of_claim(name)
            is_below = (span is not None and span[1] < floor) or (
                first is not None and first < floor
            )
            if is_below or name.endswith(durable.TEMPORARY):
                self._segments.root.remove(name)
        for part, epoch in self._parts():
            if epoch < floor:
                self._root.remove(part)
        spans = set(self._segments.spans)
        for folder, name in self._files():
            path = f"{folder}/{name}"
            # Another host may be about to publish it.
            if segment.epochs_of_file(name) not in spans and is_useless(self._root, path):
                self._root.remove(path)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep other processes from compacting; yield False if another process compacts."""
        self._root.make_folders(FOLDER)
        with self._segments.root.alone("", timeout_s=0) as held:
            yield held
