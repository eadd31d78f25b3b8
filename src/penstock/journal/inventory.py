"""The inventory of a Delta journal: the files that it consists of, with sizes and checksums.

The files come in units. One file of a unit lists the others: a segment's index, or the commit of an
epoch that lies in no segment. All files of a unit are immutable. A file that is not in the inventory
is derived (a checkpoint) or not part of history (an orphan).

The files of all units and of `head` are the whole journal up to an epoch, as long as no epoch is
forgotten meanwhile. If a file is missing, it may have been merged into a segment; then the caller
takes a new inventory.
"""

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.files.file_entry import FileEntry
from penstock.files.local_root import rooted
from penstock.files.shared_root import SharedRoot
from penstock.journal import action, segment
from penstock.journal.action import CommitFlaw
from penstock.journal.api import Part
from penstock.journal.commits import LOG, version_in
from penstock.journal.deployments import NAME as DEPLOYMENTS
from penstock.journal.segments import FOLDER, Segments
from penstock.journal.shapes import NAME as SHAPES

_FLOOR: Final = "floor.json"


class EpochUnit(NamedTuple):
    """Epochs, both ends included, and the path of the file that lists their files."""

    first: Epoch
    last: Epoch
    path: str


class Inventory:
    """The files in a journal's directory now."""

    def __init__(self, place: SharedRoot | Path) -> None:
        """List the segments of the journal in a root, or in a folder.

        Raises:
            Corrupt: A segment is missing.
            OSError: The directory cannot be read.
        """
        self._root = rooted(place)
        self._segments = Segments(self._root)
        self._segments.refresh()
        self.first = self._segments.first

    def head(self) -> list[FileEntry]:
        """Return the files that belong to no epoch: the table's creation, shapes, deployments, floor.

        Raises:
            FileNotFoundError: There is no journal.
        """
        names = [commit_name(BEFORE_FIRST), SHAPES]
        later = [DEPLOYMENTS, f"{FOLDER}/{_FLOOR}"]
        names += [name for name in later if self._root.has(name)]
        return [FileEntry.of(name, self._root.get(name)) for name in names]

    def units(self, upto: Epoch) -> list[EpochUnit]:
        """Return the units of all epochs up to `upto`, in order; a segment may have later epochs."""
        spans = [span for span in self._segments.spans if span[0] <= upto]
        merged = [EpochUnit(*span, f"{FOLDER}/{segment.index_name(*span)}") for span in spans]
        after = merged[-1].last if merged else BEFORE_FIRST
        alone = [Epoch(epoch) for epoch in range(after + 1, upto + 1)]
        return merged + [EpochUnit(epoch, epoch, commit_name(epoch)) for epoch in alone]

    def files(self, unit: EpochUnit) -> list[FileEntry]:
        """Return the files of a unit; the first one lists the others.

        Raises:
            Corrupt: The first file is damaged.
            FileNotFoundError: The first file is missing, perhaps because it was merged.
        """
        data = self._root.get(unit.path)
        if unit.path.startswith(FOLDER):
            name = unit.path.removeprefix(f"{FOLDER}/")
            parts = tuple(part for part, _, _ in segment.segment_of(name, data).members)
        else:
            parts = _parts_in(unit, data)
        files = [FileEntry(part.path, part.size, part.checksum) for part in parts]
        return [FileEntry.of(unit.path, data), *files]


def newest_listed(place: SharedRoot | Path) -> Epoch:
    """Return the newest epoch with a commit file or a segment; -1 without any."""
    root = rooted(place)
    versions = [version_in(name) for name in root.names(LOG)]
    alone = max((version for version in versions if version is not None), default=0)
    segments = Segments(root)
    return Epoch(max(action.epoch_of_version(alone), segments.last))


def commit_name(epoch: Epoch) -> str:
    """Return the path of an epoch's commit, relative to the journal."""
    return f"{LOG}/{action.version_of(epoch):020}.json"


def _parts_in(unit: EpochUnit, data: bytes) -> tuple[Part, ...]:
    text = action.parse(data)
    if isinstance(text, CommitFlaw):
        raise Corrupt(f"commit {unit.path} of epoch {unit.first} {text}")
    try:
        commit = action.commit_of(text)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"commit {unit.path} was not written by Penstock") from error
    if commit.epoch != unit.first:
        raise Corrupt(f"commit {unit.path} holds epoch {commit.epoch}")
    return commit.parts
