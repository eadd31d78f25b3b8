"""Stores: all partitions' stores on one host, brought to one epoch and read as one.

Promises that what `at(epoch)` gives is the state after exactly that epoch, whatever the stores held
before: what lags is caught up, what is damaged, foreign or ahead of the journal is deleted and
built anew from the journal, with a structured warning (`extra`: partition, path, reason). Any
process of the host may do so for any partition; writers exclude each other, and a store that
another process has replaced is noticed and opened again.

How a runtime deals with damage, which LMDB may answer by killing the process that reads:
- a `get` raises `Corrupt`: leave the `with`, call `rebuild(partition_of(key))`, run the task again;
- a worker process dies by a signal (SIGSEGV, SIGBUS, SIGABRT): call `examine()` in the driver,
  which reads every store in a child process and discards those that fail, and run the task again;
- at the start of a driver: call `examine()` once, which finds what happened while nobody read.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import merge
from pathlib import Path
from typing import final

from penstock.base.ids import EntityKey, Epoch, bucket_of
from penstock.errors import Corrupt, Diverged, StateUnavailable
from penstock.journal.api import Journal
from penstock.snapshots.snapshot import Snapshots
from penstock.state import environment as environments
from penstock.state.catchup import Progress, catch_up
from penstock.state.examine import is_sound
from penstock.state.lmdb import LmdbReader, LmdbState
from penstock.state.partition_spec import PartitionSpec, bucket_owners
from penstock.state.partitioned_get import partitioned_get

_log = logging.getLogger(__name__)

ATTEMPTS = 3  # a store may be replaced by another process while this one looks at it


@final
class PartitionedReader:
    """Readers of all partitions at one epoch, read as one; valid inside the `with`."""

    __slots__ = ("_readers", "epoch", "get")

    def __init__(self, epoch: Epoch, readers: list[LmdbReader]) -> None:
        self.epoch = epoch
        self.get: Callable[[EntityKey], bytes | None] = (
            readers[0].get if len(readers) == 1 else partitioned_get(readers)
        )
        self._readers = readers

    def items(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield every entity in key order, checksums verified."""
        return merge(*(reader.items() for reader in self._readers))


@final
class Stores:
    """The stores of all partitions under one directory. Not shared by threads or across forks."""

    def __init__(  # noqa: PLR0913 -- what they are made from
        self,
        directory: Path,
        journal: Journal,
        partitions: int,
        *,
        boot_id: str,
        map_size: int = environments.MAP_SIZE,
        progress: Progress | None = None,
        snapshots: Path | None = None,
    ) -> None:
        """Name the stores; each is opened when it is first needed.

        Args:
            directory: On local disk; holds nothing that cannot be rebuilt.
            journal: What feeds the stores.
            partitions: How many stores there are.
            boot_id: The content of `/proc/sys/kernel/random/boot_id`.
            map_size: Address space for each store, in bytes; it grows when it is full.
            progress: Told after each write of a catch-up.
            snapshots: Where the journal's snapshots are, from which a store may begin.
        """
        self._directory = directory
        self._journal = journal
        self._shares = [PartitionSpec(number, partitions) for number in range(partitions)]
        self._routes = bucket_owners(partitions)
        self._boot_id = boot_id
        self._map_size = map_size
        self._progress = progress
        self._snapshots = None if snapshots is None else Snapshots(snapshots, journal.identity)
        self._open: dict[int, LmdbState] = {}

    @contextmanager
    def at(self, epoch: Epoch) -> Iterator[PartitionedReader]:
        """Bring every store to `epoch` and open a stable view of all of them.

        Raises:
            StateUnavailable: The disk is full or fails; or a store is past `epoch` with what the
                journal knows, so the caller is late and its work is of no use.
            Diverged: The journal lacks an epoch that is needed.
            Corrupt: The journal is damaged.
        """
        with ExitStack() as stack:
            readers: list[LmdbReader] = [
                stack.enter_context(self._bring(share, epoch).reader()) for share in self._shares
            ]
            for share, reader in zip(self._shares, readers, strict=True):
                if reader.epoch != epoch:
                    raise _late(share, reader.epoch, epoch)
            yield PartitionedReader(epoch, readers)

    def catch_up_one(self, partition: int, epoch: Epoch) -> None:
        """Bring one store to `epoch`; raises like `at`."""
        self._bring(self._shares[partition], epoch)

    def partition_of(self, key: EntityKey) -> int:
        """Return which store holds an entity."""
        return self._routes[bucket_of(key)]

    def rebuild(self, partition: int, reason: str = "asked for") -> None:
        """Delete a store; the next `at` builds it anew. No reader of it may be open here.

        Raises:
            StateUnavailable: It cannot be deleted.
        """
        state = self._open.pop(partition, None)
        path = self._path(self._shares[partition])
        seen = environments.file_identity(path)
        if state is not None:
            seen = state.identity
            state.close()
        self._discard(self._shares[partition], seen, reason)

    def examine(self) -> list[int]:
        """Read every store in a child process; delete those that fail and return their numbers.

        Raises:
            OperationalError: The surroundings failed, so nothing is known.
        """
        damaged = []
        for share in self._shares:
            path = self._path(share)
            seen = environments.file_identity(path)
            if not is_sound(path, self._boot_id):
                self._forget(share)
                self._discard(share, seen, "it cannot be read")
                damaged.append(share.partition)
        return damaged

    def close(self) -> None:
        """Release everything."""
        for share in self._shares:
            self._forget(share)

    def _bring(self, share: PartitionSpec, epoch: Epoch) -> LmdbState:
        for _ in range(ATTEMPTS):
            state = self._opened(share)
            try:
                reached = state.epoch
                if reached > epoch:
                    self._check_ahead(share, reached, epoch)
                    continue
                if reached < epoch:
                    self._feed(state, share, epoch)
                if not state.replaced:
                    return state
            except Corrupt as error:
                if is_sound(self._path(share), self._boot_id):
                    raise  # it is the journal that is damaged
                self.rebuild(share.partition, str(error))
        message = f"partition {share.partition} could not be brought to epoch {epoch}"
        raise StateUnavailable(message)

    def _feed(self, state: LmdbState, share: PartitionSpec, epoch: Epoch) -> None:
        try:
            catch_up(state, self._journal, epoch, share, self._progress, snapshots=self._snapshots)
        except StateUnavailable:
            self._forget(share)  # after a failed write LMDB may want to be opened anew
            raise

    def _opened(self, share: PartitionSpec) -> LmdbState:
        state = self._open.get(share.partition)
        if state is not None and not state.replaced:
            return state
        self._forget(share)
        path = self._path(share)
        seen = environments.file_identity(path)
        try:
            state = self._new(share)
        except (Corrupt, Diverged) as error:
            self._discard(share, seen, str(error))
            state = self._new(share)
        self._open[share.partition] = state
        return state

    def _new(self, share: PartitionSpec) -> LmdbState:
        return LmdbState(
            self._path(share),
            self._journal.identity,
            boot_id=self._boot_id,
            share=share,
            map_size=self._map_size,
        )

    def _check_ahead(self, share: PartitionSpec, reached: Epoch, epoch: Epoch) -> None:
        """Discard a store that the journal does not know; refuse a caller that is late."""
        last = self._journal.last()
        if last is not None and last.epoch >= reached:
            raise _late(share, reached, epoch)
        self.rebuild(share.partition, f"it is at epoch {reached}, ahead of the journal")

    def _forget(self, share: PartitionSpec) -> None:
        state = self._open.pop(share.partition, None)
        if state is not None:
            state.close()

    def _discard(
        self, share: PartitionSpec, seen: environments.FileIdentity | None, reason: str
    ) -> None:
        path = self._path(share)
        _log.warning(
            "a state store is discarded, to be rebuilt from the journal",
            extra={"partition": share.partition, "path": str(path), "reason": reason},
        )
        environments.discard(path, seen)

    def _path(self, share: PartitionSpec) -> Path:
        return self._directory / f"partition-{share.partition}"


def _late(share: PartitionSpec, reached: Epoch, epoch: Epoch) -> StateUnavailable:
    return StateUnavailable(
        f"partition {share.partition} is at epoch {reached} already; work at {epoch} comes late"
    )
