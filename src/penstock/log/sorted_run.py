"""Sorted runs of the request id index: arrays in memory, or in files without a name if they are long.

A long run is mapped into memory. The kernel takes its pages out of memory when something else needs the place, and frees
its files when the last process that maps them ends.
"""

import mmap
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

PART_COUNT: Final = 1 << 20
"""A run with more ids is in files, and is made in parts of about so many, so a merge takes little memory."""

_HASHES: Final = 1 << 64


class SortedRun(NamedTuple):
    """Two arrays of one length.

    Attributes:
        hashes: The first 64 bits of the hashes of ids, sorted.
        positions: The position of each.
        last: No position is greater.
    """

    hashes: Words
    positions: Words
    last: int


def run_of(hashes: Words, positions: Words) -> SortedRun:
    """Return the run of ids in any order."""
    return SortedRun(*_sorted(hashes, positions), int(positions.max(initial=0)))


def merged(runs: Sequence[SortedRun], first: int, folder: Path) -> SortedRun:
    """Return one run in the place of several, without the positions before `first`.

    Args:
        folder: Takes the files of a long run.

    Raises:
        OSError: The folder has no room, or does not exist.
    """
    last = max(run.last for run in runs)
    parts = -(-sum(len(run.hashes) for run in runs) // PART_COUNT)
    if parts <= 1:
        return SortedRun(*_kept(runs, first), last)
    with TemporaryFile(dir=folder) as hashes, TemporaryFile(dir=folder) as positions:
        for part in range(parts):
            least, most = part * _HASHES // parts, (part + 1) * _HASHES // parts - 1
            kept = _kept([_between(run, least, most) for run in runs], first)
            hashes.write(kept[0].data)
            positions.write(kept[1].data)
        return SortedRun(_mapped(hashes), _mapped(positions), last)


def _kept(runs: Sequence[SortedRun], first: int) -> tuple[Words, Words]:
    """Return the sorted hashes of several runs from a position on, and their positions."""
    positions = np.concatenate([run.positions for run in runs])
    is_kept = positions >= first
    return _sorted(np.concatenate([run.hashes for run in runs])[is_kept], positions[is_kept])


def _sorted(hashes: Words, positions: Words) -> tuple[Words, Words]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], positions[order]


def _between(run: SortedRun, least: int, most: int) -> SortedRun:
    """Return the ids whose hashes lie in a range, without a copy."""
    begin = np.searchsorted(run.hashes, np.uint64(least), "left")
    end = np.searchsorted(run.hashes, np.uint64(most), "right")
    return SortedRun(run.hashes[begin:end], run.positions[begin:end], run.last)


def _mapped(file: IO[bytes]) -> Words:
    """Return the content of a file, which may be closed afterwards."""
    file.flush()
    if not file.tell():  # all ids have expired, and no empty file can be mapped
        return np.empty(0, np.uint64)
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapping.madvise(mmap.MADV_RANDOM)  # a look-up needs a page here and there
    return np.frombuffer(mapping, np.uint64)
