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

BATCH_CHANGES: Final = 50_000
BATCH_BYTES: Final = 64 << 20
"""What is collected over short epochs before one write; bounds the memory of a long catch-up."""

Progress = Callable[[Epoch, int], None]
"""Told after each write: the epoch reached, and how many changes were written."""

_COLUMNS: Final = ["entity", "key", "state"]


def catch_up(
    state: State,
    journal: Journal,
    upto: Epoch,
    share: Share,
    progress: Progress | None = None,
    batch: int = BATCH_CHANGES,
) -> None:
    """Apply the commits of (state.epoch, upto] to a store, as far as its share owns the keys.

    Does nothing when the store is at `upto` or beyond. Epochs share one write until they hold
    `batch` changes, so readers may never see the epochs between.

    Raises:
        Diverged: The journal lacks an epoch of the range.
        Corrupt: A part of the journal is damaged; the store is at the last epoch written.
        StateUnavailable: The disk is full or fails; the store is at the last epoch written.
    """
    while (reached := state.epoch) < upto:
        batches = _batches(journal, reached, upto, share, batch)
        for epoch, changes in batches:
            state.apply(epoch, changes.items(), reached)
            if state.epoch != epoch:
                break  # another writer was faster: go on from where it is
            reached = epoch
            if progress is not None:
                progress(epoch, len(changes))


def _batches(
    journal: Journal, after: Epoch, upto: Epoch, share: Share, limit: int
) -> Iterator[tuple[Epoch, dict[EntityKey, bytes | None]]]:
    """Yield the changes of whole epochs, as many as the limits allow, with the last epoch."""
    pending: dict[EntityKey, bytes | None] = {}
    size = 0
    for commit in _consecutive(journal, after, upto):
        for part in commit.parts_of(PartKind.CHANGES):
            rows = journal.read(part, _COLUMNS)
            pending.update(_owned_changes(rows, share))
            size += rows.nbytes
        if len(pending) >= limit or size >= BATCH_BYTES or commit.epoch == upto:
            yield commit.epoch, pending
            pending, size = {}, 0


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
