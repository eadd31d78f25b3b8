"""Catch-up: bring a store from the epoch it is at to a later one, from snapshot and journal.

Promises that a store which was at epoch e holds, at any moment of a catch-up, the fold of the
changes up to the epoch that it records: a catch-up that is killed, or that races with another one,
may be repeated and converges. A store that is empty, or from whose epoch on the journal is not
held any more, begins with the newest snapshot; where that is damaged, with an older one. Leaves to
`stores` what to do with a store that the journal does not know, and to `State` that each write is
atomic.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Corrupt
from penstock.journal.api import Journal, PartKind
from penstock.journal.rows import entity_keys
from penstock.snapshots.newest_states import COLUMNS, buckets_of, newest_rows
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.state.api import Change, State
from penstock.state.partition_spec import PartitionSpec, bucket_owners

_log = logging.getLogger(__name__)

BATCH_CHANGES: Final = 50_000
BATCH_BYTES: Final = 64 << 20
"""What is collected over short epochs before one write; bounds the memory of a long catch-up."""

Progress = Callable[[Epoch, int], None]
"""Told after each write: the epoch reached, and how many changes were written."""


def catch_up(  # noqa: PLR0913 -- what from, what to, and how it is told
    state: State,
    journal: Journal,
    upto: Epoch,
    share: PartitionSpec,
    progress: Progress | None = None,
    batch: int = BATCH_CHANGES,
    snapshots: Snapshots | None = None,
) -> None:
    """Apply the commits of (state.epoch, upto] to a store, as far as its share owns the keys.

    Does nothing when the store is at `upto` or beyond. Epochs share one write until they hold
    `batch` changes, so readers may never see the epochs between.

    Raises:
        Diverged: The journal lacks an epoch of the range, and no snapshot helps.
        Corrupt: A part of the journal is damaged, or the only snapshot that could help; the store
            is at the last epoch written.
        StateUnavailable: The disk is full or fails; the store is at the last epoch written.
    """
    if snapshots is not None and state.epoch < upto:
        _begin(state, journal, upto, share, snapshots, progress)
    while (reached := state.epoch) < upto:
        for epoch, changes in _batches(journal, reached, upto, share, batch):
            state.apply(epoch, changes.items(), reached)
            if state.epoch != epoch:
                break  # another writer was faster: go on from where it is
            reached = epoch
            if progress is not None:
                progress(epoch, len(changes))


def _begin(
    state: State,
    journal: Journal,
    upto: Epoch,
    share: PartitionSpec,
    snapshots: Snapshots,
    progress: Progress | None,
) -> None:
    """Load a snapshot into a store that is empty, or too far behind for the journal."""
    reached = state.epoch
    held = journal.first() <= reached + 1
    if held and reached != BEFORE_FIRST:
        return
    damage: Corrupt | None = None
    for manifest in snapshots.every(upto):
        if manifest.epoch <= reached:
            break
        try:
            state.load(manifest.epoch, lambda: _loaded(snapshots, manifest, share), reached)  # noqa: B023
        except Corrupt as error:
            damage = error
            _log.warning(
                "a snapshot is damaged", extra={"epoch": manifest.epoch, "cause": str(error)}
            )
            continue
        if progress is not None:
            progress(manifest.epoch, manifest.rows)
        return
    if damage is not None and not held:
        raise damage


def _loaded(
    snapshots: Snapshots, manifest: Manifest, share: PartitionSpec
) -> Iterator[list[Change]]:
    """Yield the entities of a snapshot that a share owns, file by file."""
    owners = np.array(bucket_owners(share.partitions), dtype=np.int32)
    for name, its in manifest.classes.items():
        for file in its.files:
            if share.partition not in owners[file.first : file.end]:
                continue
            rows = snapshots.states(its, file)
            mine = rows.filter(pa.array(owners[rows["bucket"].to_numpy()] == share.partition))
            keys = pc.binary_join_element_wise(pa.scalar(name), mine["key"], "/")
            yield list(zip(keys.to_pylist(), mine["state"].to_pylist(), strict=True))


def _batches(
    journal: Journal, after: Epoch, upto: Epoch, share: PartitionSpec, limit: int
) -> Iterator[tuple[Epoch, dict[EntityKey, bytes | None]]]:
    """Yield the changes of whole epochs, as many as the limits allow, with the last epoch."""
    pending: list[pa.Table] = []
    count = size = 0
    for epoch, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS):
        pending.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= limit or size >= BATCH_BYTES or epoch == upto:
            yield epoch, dict(_owned_changes(pending, share))
            pending, count, size = [], 0, 0


def owned_mask(keys: Sequence[EntityKey], share: PartitionSpec) -> npt.NDArray[np.bool_]:
    """Return for each key whether a share holds it."""
    owners = np.array(bucket_owners(share.partitions), dtype=np.int32)
    mask: npt.NDArray[np.bool_] = owners[buckets_of(keys)] == share.partition
    return mask


def _owned_changes(tables: Sequence[pa.Table], share: PartitionSpec) -> list[Change]:
    rows = tables[0] if len(tables) == 1 else newest_rows(tables)
    assert rows is not None, "a batch has tables"
    keys = entity_keys(rows)
    states: list[bytes | None] = rows["state"].to_pylist()
    changes = zip(keys, states, strict=True)
    return list(changes if share.partitions == 1 else compress(changes, owned_mask(keys, share)))
