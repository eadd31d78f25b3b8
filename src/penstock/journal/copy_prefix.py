"""Cutting a journal: a copy of one becomes another journal, whose history ends where one wants.

This is surgery on a directory that nobody else uses. It promises that afterwards the journal holds
exactly the epochs up to the cut, under an identity that no other journal has, so that local state
and views of the original are never taken for those of the copy. Files are replaced and removed,
never changed, because they may be hard links. A crash leaves a directory of no use.
"""

import secrets
import time
import uuid
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged
from penstock.files import durable
from penstock.journal import action, segment
from penstock.journal.api import SCHEMAS, Part, PartKind
from penstock.journal.commits import CommitLog, version_in
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import LOG, commit_name
from penstock.journal.segment import Segment
from penstock.journal.segments import Segments

_CHECKPOINTS: Final = ("_last_checkpoint", "*.checkpoint.parquet")


def keep_prefix(path: Path, app: str, upto: Epoch) -> str:
    """Cut a journal after an epoch, and return its new identity.

    Raises:
        Diverged: The journal does not hold the epoch.
        Corrupt: A commit or a segment is damaged.
        JournalUnavailable: The disk is full or fails.
    """
    identity = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
    with durable.storage(f"cut the journal in {path}"):
        segments = Segments(path)
        commits = CommitLog(path / LOG, app)
        if upto < segments.first or not _holds(path, segments, upto):
            raise Diverged(f"the journal in {path} does not hold epoch {upto}")
        kept = _cut_segments(path, segments, upto)
        for epoch in range(min(segments.last, upto) + 1, upto + 1):
            kept += commits.get(Epoch(epoch)).parts
        _remove_others(path, kept, min(segments.last, upto), upto)
        secret = action.secret_of(commits.text_of(BEFORE_FIRST))  # its requests will be run again
        text = action.table_text(app, identity, time.time_ns() // 1_000_000, secret)
        durable.replace(path / commit_name(BEFORE_FIRST), text)
        durable.sync_directory(path / LOG)
    journal = DeltaJournal(path, app)
    newest = journal.last()
    assert newest is not None, "the epoch of the cut is there"
    assert newest.epoch == upto, "the cut is where it should be"
    journal.checkpoint()
    journal.close()
    return identity


def _holds(path: Path, segments: Segments, epoch: Epoch) -> bool:
    return epoch <= segments.last or (path / commit_name(epoch)).exists()


def _cut_segments(path: Path, segments: Segments, upto: Epoch) -> list[Part]:
    """Remove the segments after an epoch, shorten the one that it lies in; return what files stay."""
    kept: list[Part] = []
    for one in list(segments.every()):
        if one.last <= upto:
            kept += [part for part, _, _ in one.members]
            continue
        if one.first <= upto:
            kept += _shorten(path, segments, one, upto)
        (segments.directory / one.name).unlink()
    if segments.directory.exists():
        durable.sync_directory(segments.directory)
    return kept


def _shorten(path: Path, segments: Segments, one: Segment, upto: Epoch) -> list[Part]:
    commits = [one.commit(Epoch(epoch)) for epoch in range(one.first, upto + 1)]
    index = segments.directory / segment.index_name(one.first, upto)
    if not one.merged:
        durable.publish(index, segment.index_of(commits, None))
        return [part for commit in commits for part in commit.parts]
    files: list[Part] = []
    for kind in PartKind:
        rows = segments.rows(one, kind, one.first, upto, SCHEMAS[kind].names)
        if rows.num_rows:
            written = segment.file_path(kind, one.first, upto)
            part, data = segment.encode(kind, [rows], written)
            durable.create(path / part.path, data)
            files.append(part)
    durable.publish(index, segment.index_of(commits, files))
    return files


def _remove_others(path: Path, kept: list[Part], merged: Epoch, upto: Epoch) -> None:
    """Remove every part that is not kept, the commits that lie elsewhere or later, checkpoints."""
    listed = {part.path for part in kept}
    for kind in PartKind:
        folder = path / f"kind={kind}"
        for file in list(folder.iterdir()):
            if f"kind={kind}/{file.name}" not in listed:
                file.unlink()
        durable.sync_directory(folder)
    log = path / LOG
    for file in list(log.iterdir()):
        version = version_in(file.name)
        epoch = None if version is None else action.epoch_of_version(version)
        if epoch is not None and epoch != BEFORE_FIRST and not merged < epoch <= upto:
            file.unlink()
    for pattern in _CHECKPOINTS:
        for file in list(log.glob(pattern)):
            file.unlink()
