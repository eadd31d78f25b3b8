"""The inventory of a Delta journal: which files hold its truth, and which checksums they must have.

Epochs come in units, each listed by one file: a segment by its index, an epoch that lies in no
segment by its commit. All files of a unit are immutable. What is not in the inventory is derived
(checkpoints), or no part of history (leftovers).

Promises that the files of all units, with those of `head`, are the whole journal up to an epoch, if
they could be read while nothing was forgotten. A file that is missing may have been merged into a
segment meanwhile: who meets that takes a new inventory. Leaves the files' content to its callers.
"""

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.files.checksum import checksum_of
from penstock.journal import action, segment
from penstock.journal.action import CommitFlaw
from penstock.journal.api import Part
from penstock.journal.commits import version_in
from penstock.journal.segments import FOLDER, Segments
from penstock.journal.shapes import NAME as SHAPES

LOG: Final = "_delta_log"
_FLOOR: Final = "floor.json"


class StoredFile(NamedTuple):
    """A file as it must be.

    Attributes:
        path: Relative to the journal.
        size: Bytes.
        checksum: XXH3-128 of the bytes, hexadecimal.
    """

    path: str
    size: int
    checksum: str


class EpochUnit(NamedTuple):
    """Epochs, both included, and the file that lists their files, relative to the journal."""

    first: Epoch
    last: Epoch
    path: str


class Inventory:
    """What lies in a journal's directory now."""

    def __init__(self, root: Path) -> None:
        """Look at the segments.

        Raises:
            Corrupt: One is missing.
            OSError: The directory cannot be read.
        """
        self._root = root
        self._segments = Segments(root)
        self._segments.refresh()
        self.first = self._segments.first

    def head(self) -> list[StoredFile]:
        """Return the files that are of no epoch: the table's creation, shapes, what was forgotten.

        Raises:
            FileNotFoundError: There is no journal.
        """
        names = [commit_name(BEFORE_FIRST), SHAPES]
        if (self._root / FOLDER / _FLOOR).exists():
            names.append(f"{FOLDER}/{_FLOOR}")
        return [stored_file(name, (self._root / name).read_bytes()) for name in names]

    def units(self, upto: Epoch) -> list[EpochUnit]:
        """Return the units of all epochs up to one, in order; a segment may reach beyond it."""
        spans = [span for span in self._segments.spans if span[0] <= upto]
        merged = [EpochUnit(*span, f"{FOLDER}/{segment.index_name(*span)}") for span in spans]
        after = merged[-1].last if merged else BEFORE_FIRST
        alone = [Epoch(epoch) for epoch in range(after + 1, upto + 1)]
        return merged + [EpochUnit(epoch, epoch, commit_name(epoch)) for epoch in alone]

    def files(self, unit: EpochUnit) -> list[StoredFile]:
        """Return the files of a unit, the one that lists the others first.

        Raises:
            Corrupt: That file is damaged.
            FileNotFoundError: It is not there (any more).
        """
        data = (self._root / unit.path).read_bytes()
        if unit.path.startswith(FOLDER):
            name = unit.path.removeprefix(f"{FOLDER}/")
            parts = tuple(one[0] for one in segment.segment_of(name, data).members)
        else:
            parts = _parts_in(unit, data)
        return [stored_file(unit.path, data), *(StoredFile(*_shape(part)) for part in parts)]


def newest_listed(root: Path) -> Epoch:
    """Return the newest epoch that has a commit's name or a segment; -1 where there is none."""
    versions = [version_in(path.name) for path in (root / LOG).iterdir()]
    alone = max((version for version in versions if version is not None), default=0)
    segments = Segments(root)
    return Epoch(max(action.epoch_of_version(alone), segments.last))


def commit_name(epoch: Epoch) -> str:
    """Return where an epoch's commit is, relative to the journal."""
    return f"{LOG}/{action.version_of(epoch):020}.json"


def stored_file(path: str, data: bytes) -> StoredFile:
    """Return a file as it is."""
    return StoredFile(path, len(data), checksum_of(data))


def _shape(part: Part) -> tuple[str, int, str]:
    return part.path, part.size, part.checksum


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
