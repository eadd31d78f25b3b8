"""Catch-up: bring a store from the epoch it is at to a later one, from the journal.

Promises that a store which was at epoch e holds, at any moment of a catch-up, the fold of the
changes up to the epoch that it records: a catch-up that is killed, or that races with another one,
may be repeated and converges. Leaves to `stores` what to do with a store that the journal does
not know, and to `State.apply` that each write is atomic.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.ids import BUCKETS, EntityKey, Epoch
from penstock.errors import Diverged
from penstock.journal.api import Commit, Journal, PartKind
from penstock.state.api import Change, State
from penstock.state.share import Share, routes

BATCH: Final = 50_000
"""Changes collected over short epochs before one write; also what memory a long catch-up needs."""

Progress = Callable[[Epoch, int], None]
"""Told after each write: the epoch reached, and how many changes were written."""

_COLUMNS: Final = ["entity", "key", "state"]


def catch_up(
    state: State,
    journal: Journal,
    upto: Epoch,
    share: Share,
    progress: Progress | None = None,
) -> None:
    """Apply the commits of (state.epoch, upto] to a store, as far as its share owns the keys.

    Does nothing when the store is at `upto` or beyond. Several short epochs share one write, so
    readers may never see the epochs between.

    Raises:
        Diverged: The journal lacks an epoch of the range.
        Corrupt: A part of the journal is damaged; the store is at the last epoch written.
        StateUnavailable: The disk is full or fails; the store is at the last epoch written.
    """
    while (reached := state.epoch) < upto:
        _advance(state, journal, reached, upto, share, progress)


def _advance(
    state: State,
    journal: Journal,
    start: Epoch,
    upto: Epoch,
    share: Share,
    progress: Progress | None,
) -> None:
    """Write batch after batch until `upto`, or until another writer turns out to be faster."""
    written = start
    pending: dict[EntityKey, bytes | None] = {}
    for commit in _consecutive(journal, start, upto):
        for changes in changes_of(commit, journal, share):
            pending.update(changes)
        if len(pending) < BATCH and commit.epoch < upto:
            continue
        state.apply(commit.epoch, pending.items(), written)
        if state.epoch != commit.epoch:
            return
        written = commit.epoch
        if progress is not None:
            progress(written, len(pending))
        pending = {}


def changes_of(commit: Commit, journal: Journal, share: Share) -> Iterator[list[Change]]:
    """Yield the changes of one epoch that a share owns, part by part."""
    for part in commit.parts_of(PartKind.CHANGES):
        yield _owned_changes(journal.read(part, _COLUMNS), share)


def owned(keys: Sequence[EntityKey], share: Share) -> npt.NDArray[np.bool_]:
    """Return for each key whether a share holds it."""
    fingerprints = np.fromiter(
        map(xxhash.xxh3_64_intdigest, map(str.encode, keys)), dtype=np.uint64, count=len(keys)
    )
    owners = np.array(routes(share.partitions), dtype=np.int32)
    mask: npt.NDArray[np.bool_] = owners[fingerprints % np.uint64(BUCKETS)] == share.partition
    return mask


def _owned_changes(rows: pa.Table, share: Share) -> list[Change]:
    keys: list[EntityKey] = pc.binary_join_element_wise(
        rows["entity"], rows["key"], "/"
    ).to_pylist()
    states: list[bytes | None] = rows["state"].to_pylist()
    changes = zip(keys, states, strict=True)
    return list(changes if share.partitions == 1 else compress(changes, owned(keys, share)))


def _consecutive(journal: Journal, after: Epoch, upto: Epoch) -> Iterator[Commit]:
    missing = Epoch(after + 1)
    for commit in journal.commits(after, upto):
        if commit.epoch != missing:
            break
        yield commit
        if commit.epoch == upto:
            return
        missing = Epoch(missing + 1)
    message = f"the journal has no epoch {missing}, which a state of epoch {upto} needs"
    raise Diverged(message)
