"""Making a journal of its own from a copied directory, with a prefix of the history.

Afterwards the journal holds exactly the epochs up to the given one. It has a new identity, so that
local state and views of the original are never used for the copy. The directory must not be in use.
Files are replaced and removed, never changed, because they may be hard links. After a crash the
directory is useless.
"""

import secrets
import time
import uuid
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged
from penstock.files import durable
from penstock.files.local_root import LocalRoot
from penstock.journal import action, parquet, segment
from penstock.journal.api import SCHEMAS, Part, PartKind
from penstock.journal.commits import LOG, CommitLog, version_in
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import commit_name
from penstock.journal.segment import Segment
from penstock.journal.segments import FOLDER, Segments
from penstock.journal.shapes import forget_later_versions

_CHECKPOINTS: Final = ("_last_checkpoint", "*.checkpoint.parquet")


def keep_prefix(path: Path, app: str, upto: Epoch) -> str:
    """Remove the epochs after `upto`, and return the journal's new identity."""
    identity = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
    with durable.storage(f"shorten the journal in {path}"):
        segments = Segments(LocalRoot(path))
        commits = CommitLog(LocalRoot(path), app)
        is_held = upto <= segments.last or (path / commit_name(upto)).exists()
        if upto < segments.first or not is_held:
            raise Diverged(f"the journal in {path} does not hold epoch {upto}")
        kept = _shorten_segments(path, segments, upto)
        for epoch in range(min(segments.last, upto) + 1, upto + 1):
            kept += commits.get(Epoch(epoch)).parts
        _remove_others(path, kept, min(segments.last, upto), upto)
        forget_later_versions(path, upto)
        secret = action.secret_of(commits.text_of(BEFORE_FIRST))  # its requests will be run again
        text = action.table_text(app, identity, time.time_ns() // 1_000_000, secret)
        durable.replace(path / commit_name(BEFORE_FIRST), text)
        durable.sync_directory(path / LOG)
    journal = DeltaJournal(path, app)
    newest = journal.last()
    assert newest is not None, "the last epoch of the prefix is held"
    assert newest.epoch == upto, "no later epoch is left"
    journal.checkpoint()
    journal.close()
    return identity


def _shorten_segments(path: Path, segments: Segments, upto: Epoch) -> list[Part]:
    """Remove the segments after an epoch, and shorten its own segment; return the files that stay."""
    kept: list[Part] = []
    for whole in list(segments.every()):
        if whole.last <= upto:
            kept += [part for part, _, _ in whole.members]
            continue
        if whole.first <= upto:
            kept += _shorten(path, segments, whole, upto)
        (path / FOLDER / whole.name).unlink()
    if (path / FOLDER).exists():
        durable.sync_directory(path / FOLDER)
    return kept


def _shorten(path: Path, segments: Segments, whole: Segment, upto: Epoch) -> list[Part]:
    commits = [whole.commit(Epoch(epoch)) for epoch in range(whole.first, upto + 1)]
    index = path / FOLDER / segment.index_name(whole.first, upto)
    if not whole.merged:
        durable.publish(index, segment.index_of(commits, None))
        return [part for commit in commits for part in commit.parts]
    files: list[Part] = []
    for part_kind in PartKind:
        rows = segments.rows(whole, part_kind, whole.first, upto, SCHEMAS[part_kind].names)
        if rows.num_rows:
            part, data = segment.encode(
                part_kind, [rows], segment.file_path(part_kind, whole.first, upto)
            )
            durable.create(path / part.path, data)
            files.append(part)
    durable.publish(index, segment.index_of(commits, files))
    return files


def _remove_others(path: Path, kept: list[Part], merged: Epoch, upto: Epoch) -> None:
    """Remove the other parts, the commits outside of (merged, upto], and the checkpoints."""
    listed = {part.path for part in kept}
    for folder, name in parquet.stored_names(LocalRoot(path)):
        if f"{folder}/{name}" not in listed:
            (path / folder / name).unlink()
    for kept_folder in path.glob("kind=*"):
        durable.sync_directory(kept_folder)
    log = path / LOG
    for file in list(log.iterdir()):
        version = version_in(file.name)
        epoch = None if version is None else action.epoch_of_version(version)
        if epoch is not None and epoch != BEFORE_FIRST and not merged < epoch <= upto:
            file.unlink()
    for pattern in _CHECKPOINTS:
        for file in list(log.glob(pattern)):
            file.unlink()
