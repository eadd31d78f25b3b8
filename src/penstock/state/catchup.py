"""Catch-up: bring a store to a later epoch, from snapshots and the journal.

At any moment of a catch-up, the store holds the state after the epoch that it records. So a catch-up
that is killed, or that runs at the same time as another one, can be repeated. A store begins with the
newest undamaged snapshot if it is empty, or if the journal has forgotten the epochs that it needs.
`stores` deals with a store that the journal does not know; `State` makes each write atomic.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Corrupt
from penstock.journal.api import Journal, PartKind
from penstock.journal.rows import key_column
from penstock.snapshots.newest_states import COLUMNS, buckets_of, newest_rows
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.state.api import State
from penstock.state.changes import SortedChanges
from penstock.state.partition_spec import PartitionSpec, bucket_owners

_log = logging.getLogger(__name__)

BATCH_CHANGES: Final = 50_000
BATCH_BYTES: Final = 64 << 20
"""Bounds of one write, which may have several epochs; they bound the memory of a long catch-up."""

Progress = Callable[[Epoch, int], None]
"""Called after each write with the store's epoch, and how many changes were written."""


def catch_up(  # noqa: PLR0913 -- source, target, and how to report
    state: State,
    journal: Journal,
    upto: Epoch,
    spec: PartitionSpec,
    progress: Progress | None = None,
    batch: int = BATCH_CHANGES,
    snapshots: Snapshots | None = None,
) -> None:
    """Apply the commits of (state.epoch, upto] to a store, for the keys of its partition.

    It does nothing if the store is at `upto` or later. Several epochs may share one write, so readers
    may not see each epoch.

    Args:
        progress: Called after each write.
        batch: Changes after which a write ends.
        snapshots: Snapshots of the journal, to begin from.

    Raises:
        Diverged: The journal lacks an epoch of the range, and no snapshot helps.
        Corrupt: A part of the journal is damaged, or the only snapshot that could help; the store
            is at the last epoch written.
        StateUnavailable: The disk is full or fails; the store is at the last epoch written.
    """
    if snapshots is not None and state.epoch < upto:
        _begin(state, journal, upto, spec, snapshots, progress)
    while (reached := state.epoch) < upto:
        for epoch, changes in _batches(journal, reached, upto, spec, batch):
            state.apply(epoch, changes, reached)
            if state.epoch != epoch:
                break  # another writer was faster: continue from the store's present epoch
            reached = epoch
            if progress is not None:
                progress(epoch, len(changes))


def _begin(
    state: State,
    journal: Journal,
    upto: Epoch,
    spec: PartitionSpec,
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
            state.load(manifest.epoch, lambda: _loaded(snapshots, manifest, spec), reached)  # noqa: B023
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
    snapshots: Snapshots, manifest: Manifest, spec: PartitionSpec
) -> Iterator[SortedChanges]:
    """Yield the entities of a snapshot that belong to a partition, file by file."""
    owners = np.array(bucket_owners(spec.partitions), dtype=np.int32)
    for name, class_files in manifest.classes.items():
        for file in class_files.files:
            if spec.partition not in owners[file.first : file.end]:
                continue
            rows = snapshots.states(class_files, file)
            mine = rows.filter(pa.array(owners[rows["bucket"].to_numpy()] == spec.partition))
            keys = pc.binary_join_element_wise(pa.scalar(name), mine["key"], "/")
            yield SortedChanges.of_columns(keys, mine["state"])


def _batches(
    journal: Journal, after: Epoch, upto: Epoch, spec: PartitionSpec, limit: int
) -> Iterator[tuple[Epoch, SortedChanges]]:
    """Yield the last epoch and the changes of as many whole epochs as the limits allow."""
    pending: list[pa.Table] = []
    count = size = 0
    for epoch, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS):
        pending.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= limit or size >= BATCH_BYTES or epoch == upto:
            yield epoch, _owned_changes(pending, spec)
            pending, count, size = [], 0, 0


def owned_mask(keys: Sequence[EntityKey], spec: PartitionSpec) -> npt.NDArray[np.bool_]:
    """Return whether a partition holds each key: bool, shape (keys,)."""
    return _mask(pa.array(keys, pa.string()), spec)


def _mask(keys: pa.Array | pa.ChunkedArray, spec: PartitionSpec) -> npt.NDArray[np.bool_]:
    owners = np.array(bucket_owners(spec.partitions), dtype=np.int32)
    mask: npt.NDArray[np.bool_] = owners[buckets_of(keys)] == spec.partition
    return mask


def _owned_changes(tables: Sequence[pa.Table], spec: PartitionSpec) -> SortedChanges:
    """Return the changes of a partition; rows of other partitions are dropped before they become objects."""
    rows = tables[0] if len(tables) == 1 else newest_rows(tables)
    assert rows is not None, "a batch has tables"
    keys, states = key_column(rows), rows["state"]
    if spec.partitions > 1:
        mask = pa.array(_mask(keys, spec))
        keys, states = keys.filter(mask), states.filter(mask)
    return SortedChanges.of_columns(keys, states)
