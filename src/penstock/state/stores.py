"""Stores: all partitions' stores on one host, brought to one epoch and read as one.

`at(epoch)` lends the state after exactly that epoch. A store that is behind is caught up. A store that
is damaged, of another journal or ahead of the journal is deleted and rebuilt, with a structured
warning (`extra`: partition, path, reason). Any process of the host may do this for any partition:
writers exclude each other, and a process notices that another one has replaced a store.

How a runtime deals with damage, which may make LMDB kill the reading process:
- a `get` raises `Corrupt`: leave the `with`, call `rebuild(partition_of(key))`, run the task again;
- a worker process dies by a signal (SIGSEGV, SIGBUS, SIGABRT): call `examine()` in the driver,
  which reads every store in a child process and discards those that fail, and run the task again;
- a driver starts: call `examine()` once, to find damage that happened before.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from heapq import merge
from itertools import chain, compress, islice
from pathlib import Path
from typing import Final, Protocol, final

import lmdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.ids import BEFORE_FIRST, BUCKETS, EntityKey, Epoch, bucket_of
from penstock.errors import Corrupt, Diverged, StateUnavailable
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import Commit, Journal, PartKind
from penstock.journal.parquet import key_column
from penstock.native.choice import core
from penstock.snapshots.newest_states import COLUMNS, buckets_of, newest_rows
from penstock.snapshots.snapshot import ClassFiles, Manifest, SnapshotFile, Snapshots
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.api import Change, State
from penstock.state.examine import damaged_of, is_sound
from penstock.state.key_order import RUN, in_key_order
from penstock.state.lmdb import LmdbState, SortedChanges
from penstock.state.lmdb_reader import LmdbReader
from penstock.state.partition_spec import PartitionSpec, bucket_owners, name_of, overlap


class ComesLate(StateUnavailable):
    """A store is at a later epoch of the journal already, so the work of the caller is useless."""


class PartitionReader(Protocol):
    """Reads one partition at one epoch; `LmdbReader` is one."""

    @property
    def fetch(self) -> Callable[[bytes], bytes | None]:
        """Return the sealed record of a key that is found at once; None says nothing."""

    @property
    def get(self) -> Callable[[EntityKey], bytes | None]:
        """Return the state of an entity; None if it does not exist."""

    @property
    def rest(self) -> Callable[[bytes], bytes | None]:
        """Return the state of a key that `fetch` has not found; None if the entity does not exist."""

    def keys(self, prefix: str) -> list[EntityKey]: ...  # noqa: D102 -- as `LmdbReader`
    def items(self) -> Iterator[tuple[EntityKey, bytes]]: ...  # noqa: D102
    def items_of(self, prefix: str, after: str = "") -> Iterator[tuple[EntityKey, bytes]]: ...  # noqa: D102


class Elsewhere(Protocol):
    """The partitions that other hosts hold, for a host that holds a part of the state."""

    def is_own(self, spec: PartitionSpec) -> bool:
        """Say whether this host holds a partition."""

    def keeps(self, spec: PartitionSpec) -> bool:
        """Say whether this host holds a partition, or will hold it soon."""

    def has_others(self, spec: PartitionSpec) -> bool:
        """Say whether another host holds a partition."""

    def reader(
        self, spec: PartitionSpec, epoch: Epoch, take: Callable[[], LmdbReader]
    ) -> PartitionReader:
        """Return a reader of a partition at an epoch.

        Args:
            take: Builds the partition on this host, if no other one answers.
        """


def partitioned_get(readers: Sequence[PartitionReader]) -> Callable[[EntityKey], bytes | None]:
    """Return a `get` over the readers of all partitions, in their order."""
    route = bucket_owners(len(readers)) if len(readers) > 1 else (0,)
    fetches = [reader.fetch for reader in readers]
    rests = [reader.rest for reader in readers]
    fingerprint, checksum = xxhash.xxh3_64_intdigest, xxhash.xxh3_64_digest
    encode = str.encode
    skip = record.CHECKSUM_SIZE
    last = len(route) - 1  # the number of buckets is a power of two, so this mask is the remainder

    def get(key: EntityKey) -> bytes | None:
        raw = encode(key)
        partition = route[fingerprint(raw) & last]
        try:
            # The hottest call of the system: this repeats the work of `LmdbReader.get` for a key
            # that is found.
            stored = fetches[partition](raw)
        except lmdb.Error:
            stored = b""
        if stored is None:
            return rests[partition](raw)
        state = stored[skip:]
        if checksum(raw + state) + state == stored:
            return state
        return readers[partition].get(key)  # for overlong keys and damage

    if core is None:
        return get if len(readers) > 1 else readers[0].get
    compiled: Callable[[EntityKey], bytes | None] = core.stored_read(
        route, fetches, rests, fingerprint, checksum, skip, get
    )
    return compiled


BATCH_CHANGES: Final = 50_000
BATCH_BYTES: Final = 64 << 20
"""Bounds of one write, which may have several epochs; they bound the memory of a long catch-up."""

_FEW: Final = 1_024
"""Changes that become objects of Python, for all stores at once; more are divided by Arrow, for each store alone.

The calls of Arrow take longer for few rows. For two stores, 64, 256 and 1,024 changes take 160, 220 and 430 µs with them, and 33, 71 and 213 µs without.
"""

_KEPT_BYTES: Final = 4 << 20
"""The most bytes of changes that wait in memory for other stores."""

REWRITE_ROWS: Final = 250_000
"""A write of fewer rows leaves the pages of a store as they are."""

REWRITE_SHARE: Final = 8
"""A store is written again if larger writes brought one of so many rows, and others as many."""

Progress = Callable[[Epoch, int], None]
"""Called after each write with the store's epoch, and how many changes were written."""


class DividedChanges:
    """The changes that a store has taken last, divided for all stores: the others need no look at the journal."""

    def __init__(self) -> None:
        self._kept: tuple[Epoch, Epoch, list[SortedChanges]] = (BEFORE_FIRST, BEFORE_FIRST, [])

    def of(self, after: Epoch, upto: Epoch, spec: PartitionSpec) -> SortedChanges | None:
        """Return the changes of (after, upto] for a partition, if they are kept."""
        *kept, shares = self._kept
        is_kept = kept == [after, upto] and len(shares) == spec.partitions
        return shares[spec.partition] if is_kept else None

    def keep(self, after: Epoch, upto: Epoch, shares: list[SortedChanges]) -> None:
        """Keep the changes of (after, upto] for each partition in the place of the former ones."""
        self._kept = (after, upto, shares)


def catch_up(  # noqa: PLR0913 -- source, target, and how to report
    state: State,
    journal: Journal,
    upto: Epoch,
    spec: PartitionSpec,
    progress: Progress | None = None,
    batch: int = BATCH_CHANGES,
    snapshots: Snapshots | None = None,
    folder: Path | None = None,
    shared: DividedChanges | None = None,
    reached: Epoch | None = None,
) -> None:
    """Apply the commits of (state.epoch, upto] to a store, for the keys of its partition.

    It does nothing if the store is at `upto` or later. Several epochs may share one write, so readers
    may not see each epoch.

    Args:
        progress: Called after each write.
        batch: Changes after which a write ends.
        snapshots: Snapshots of the journal, to begin from.
        folder: The folder of temporary files; None for the usual one.
        shared: Keeps small changes for the other stores of the same number; None: each store reads them.
        reached: The epoch of the store, as far as the caller has just seen it.

    Raises:
        Diverged: The journal lacks an epoch of the range, and no snapshot helps.
        Corrupt: A part of the journal is damaged, or the only snapshot that could help; the store
            is at the last epoch written.
        StateUnavailable: The disk is full or fails; the store is at the last epoch written.
    """
    if reached is None:
        reached = state.epoch  # a transaction of its own, which costs more than a few changes
    if (
        snapshots is not None
        and reached < upto
        and _begin(state, journal, upto, spec, snapshots, progress, reached, folder)
    ):
        reached = state.epoch
    while reached < upto:
        for epoch, changes in _batches(journal, reached, upto, spec, batch, shared):
            # The store records the epoch in the same write, so a killed catch-up can be repeated.
            reached = state.apply(epoch, changes, reached)
            if reached != epoch:
                break  # another writer was faster: continue from the store's present epoch
            if progress is not None:
                progress(epoch, len(changes))


def _begin(  # noqa: PLR0913 -- as `catch_up`
    state: State,
    journal: Journal,
    upto: Epoch,
    spec: PartitionSpec,
    snapshots: Snapshots,
    progress: Progress | None,
    reached: Epoch,
    folder: Path | None,
) -> bool:
    """Load a snapshot into a store at `reached` that is empty, or too far behind for the journal; say whether it did."""
    # Retention may have removed the epochs that follow the store's.
    held = journal.first() <= reached + 1
    if held and reached != BEFORE_FIRST:
        return False
    damage: Corrupt | None = None
    for manifest in snapshots.every(upto):
        if manifest.epoch <= reached:
            break
        try:
            state.load(manifest.epoch, lambda: _loaded(snapshots, manifest, spec, folder), reached)  # noqa: B023
        except Corrupt as error:
            damage = error
            _log.warning(
                "a snapshot is damaged", extra={"epoch": manifest.epoch, "cause": str(error)}
            )
            continue
        if progress is not None:
            progress(manifest.epoch, manifest.rows)
        return True
    if damage is not None and not held:
        raise damage
    return False


def _loaded(
    snapshots: Snapshots, manifest: Manifest, spec: PartitionSpec, folder: Path | None
) -> Iterator[SortedChanges]:
    """Yield the entities of a snapshot that belong to a partition, in the order of the keys.

    Args:
        folder: The folder of a temporary file for a class that has several files; None for the usual one.
    """
    owners = np.array(bucket_owners(spec.partitions), dtype=np.int32)

    def rows_of(name: str, class_files: ClassFiles, file: SnapshotFile) -> pa.Table:
        rows = snapshots.states(class_files, file)
        mine = rows.filter(pa.array(owners[rows["bucket"].to_numpy()] == spec.partition))
        keys = pc.binary_join_element_wise(pa.scalar(name), mine["key"], "/")
        return pa.table({"key": keys.cast(pa.binary()), "state": mine["state"]}, schema=RUN)

    # "/" is in each key, so this is the order of the keys of two classes.
    for name, class_files in sorted(
        manifest.classes.items(), key=lambda each: f"{each[0]}/".encode()
    ):
        files = [
            each for each in class_files.files if spec.partition in owners[each.first : each.end]
        ]
        runs = (rows_of(name, class_files, each) for each in files)
        if len(files) > 1:
            yield from in_key_order(runs, folder)
        else:
            yield from (SortedChanges.of_columns(run["key"], run["state"]) for run in runs)


def _batches(
    journal: Journal,
    after: Epoch,
    upto: Epoch,
    spec: PartitionSpec,
    limit: int,
    shared: DividedChanges | None = None,
) -> Iterator[tuple[Epoch, SortedChanges]]:
    """Yield the last epoch and the changes of as many whole epochs as the limits allow."""
    kept = None if shared is None else shared.of(after, upto, spec)
    if kept is not None:
        yield upto, kept
        return
    pending: list[pa.Table] = []
    count = size = 0
    for epoch, rows in journal.rows(PartKind.CHANGES, after, upto, COLUMNS):
        pending.append(rows)
        count += rows.num_rows
        size += rows.get_total_buffer_size()  # `nbytes` takes 15 µs
        if count >= limit or size >= BATCH_BYTES or epoch == upto:
            if count <= _FEW:
                divided = _divided(pending, spec.partitions)
                if shared is not None and size <= _KEPT_BYTES:
                    shared.keep(after, epoch, divided)
                yield epoch, divided[spec.partition]
            else:
                yield epoch, _owned_changes(pending, spec)
            pending, count, size, after = [], 0, 0, epoch


def owned_mask(keys: Sequence[EntityKey], spec: PartitionSpec) -> npt.NDArray[np.bool_]:
    """Return whether a partition holds each key: bool, shape (keys,)."""
    return _mask(pa.array(keys, pa.string()), spec)


def _mask(keys: pa.Array | pa.ChunkedArray, spec: PartitionSpec) -> npt.NDArray[np.bool_]:
    owners = np.array(bucket_owners(spec.partitions), dtype=np.int32)
    mask: npt.NDArray[np.bool_] = owners[buckets_of(keys)] == spec.partition
    return mask


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    rows = tables[0] if len(tables) == 1 else newest_rows(tables)
    assert rows is not None, "a batch has tables"
    return rows


def _divided(tables: Sequence[pa.Table], partitions: int) -> list[SortedChanges]:
    """Return the changes of each partition; all rows become objects."""
    rows = _joined(tables)
    owners, fingerprint = bucket_owners(partitions), xxhash.xxh3_64_intdigest
    shares: list[dict[bytes, bytes | None]] = [{} for _ in range(partitions)]
    # Not `key_column`: an epoch calls no other function of Arrow that joins text, and the processor would have to fetch its code.
    columns = (rows[name].to_pylist() for name in COLUMNS)
    for name, text, state in zip(*columns, strict=True):
        raw = f"{name}/{text}".encode()
        shares[owners[fingerprint(raw) % BUCKETS]][raw] = state  # `bucket_of`, without its calls
    return [SortedChanges(*_in_order(share)) for share in shares]


def _in_order(share: dict[bytes, bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    raw_keys = sorted(share)
    return raw_keys, list(map(share.__getitem__, raw_keys))


def _owned_changes(tables: Sequence[pa.Table], spec: PartitionSpec) -> SortedChanges:
    """Return the changes of a partition; rows of other partitions are dropped before they become objects."""
    rows = _joined(tables)
    keys, states = key_column(rows), rows["state"]
    if spec.partitions > 1:
        mask = pa.array(_mask(keys, spec))
        keys, states = keys.filter(mask), states.filter(mask)
    return SortedChanges.of_columns(keys, states)


_log = logging.getLogger(__name__)

COPY_BATCH = 10_000
"""Entities that a copy between stores holds in memory."""

ATTEMPTS = 3  # a store may be replaced by another process while this one looks at it


def owned_of(reader: PartitionReader, spec: PartitionSpec) -> Iterator[list[Change]]:
    """Yield the entities of a reader that a partition of any number holds, in batches, checksums verified."""
    items = reader.items()
    while batch := list(islice(items, COPY_BATCH)):
        mask = owned_mask([key for key, _ in batch], spec)
        yield list(compress(batch, mask.tolist()))


@final
class PartitionedReader:
    """Readers of all partitions at one epoch, read as one; valid inside the `with`."""

    __slots__ = ("_readers", "epoch", "get")

    def __init__(self, epoch: Epoch, readers: list[PartitionReader]) -> None:
        self.epoch = epoch
        self.get: Callable[[EntityKey], bytes | None] = partitioned_get(readers)
        self._readers = readers

    def items(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield every entity in key order, checksums verified."""
        return merge(*(reader.items() for reader in self._readers))

    def owned_by(self, spec: PartitionSpec) -> Iterator[list[Change]]:
        """Yield the entities that a partition of another number holds, in batches, checksums verified.

        Only the readers are read that share a bucket with the partition.
        """
        for number, reader in enumerate(self._readers):
            if not overlap(spec, PartitionSpec(number, len(self._readers))):
                continue
            yield from owned_of(reader, spec)

    def items_of(self, prefix: str, after: str = "") -> Iterator[tuple[EntityKey, bytes]]:
        """Yield the entities whose keys begin with a prefix, in key order, checksums verified.

        Args:
            after: The text behind the prefix in the last key that is left out; empty for none.
        """
        return merge(*(reader.items_of(prefix, after) for reader in self._readers))

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the entities whose keys begin with a prefix, in order."""
        return sorted(key for reader in self._readers for key in reader.keys(prefix))


@final
class Stores:
    """The stores of all partitions under one directory. Not shared by threads or across forks.

    Args:
        directory: A directory on local disk; all its content can be rebuilt.
        partitions: The number of stores, until `use` chooses another number.
        boot_id: The content of `/proc/sys/kernel/random/boot_id`.
        progress: Called after each write of a catch-up.
        snapshots: The root of the journal's snapshots, or their folder, from which a store may begin.
        elsewhere: The partitions of other hosts; None if this host holds all.
    """

    def __init__(  # noqa: PLR0913 -- all but two have defaults
        self,
        directory: Path,
        journal: Journal,
        partitions: int = 1,
        *,
        boot_id: str,
        progress: Progress | None = None,
        snapshots: SharedRoot | Path | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._boot_id = boot_id
        self._progress = progress
        self._snapshots = None if snapshots is None else Snapshots(snapshots, journal.identity)
        self._elsewhere = elsewhere
        self._taken: set[PartitionSpec] = set()
        self._divided = DividedChanges()
        self._open: dict[int, LmdbState] = {}
        self._specs: list[PartitionSpec] = []
        self.use(partitions)

    @property
    def partitions(self) -> int:
        """The number of stores."""
        return len(self._specs)

    def use(self, partitions: int) -> None:
        """Choose the number of stores; if it changes, the stores of the former number are closed.

        The stores of each number have files of their own, so the others stay as they are.
        """
        if partitions != self.partitions:
            self.close()
            self._specs = [PartitionSpec(number, partitions) for number in range(partitions)]
            self._routes = bucket_owners(partitions)

    def follow(self, commit: Commit) -> None:
        """Use the number of stores that a commit names; call it before `at(commit.epoch)`."""
        if commit.partitions:
            self.use(commit.partitions)

    @contextmanager
    def at(self, epoch: Epoch) -> Iterator[PartitionedReader]:
        """Bring every store to `epoch` and open a stable view of all of them.

        Raises:
            StateUnavailable: The disk is full or fails; or a store is already at a later epoch of
                the journal, so the caller is late and its work is useless.
            Diverged: The journal lacks an epoch that is needed.
            Corrupt: The journal is damaged.
        """
        with ExitStack() as stack:
            yield PartitionedReader(epoch, [self._read(spec, epoch, stack) for spec in self._specs])

    def _read(self, spec: PartitionSpec, epoch: Epoch, stack: ExitStack) -> PartitionReader:
        """Return a reader of a partition at an epoch, until the stack ends."""

        def here() -> LmdbReader:
            reader = stack.enter_context(self._bring(spec, epoch).reader())
            if reader.epoch != epoch:
                raise _late(spec, reader.epoch, epoch)
            return reader

        def take() -> LmdbReader:
            _log.warning(
                "the holders of a partition do not answer, and this host builds it from the journal",
                extra={"partition": spec.partition, "epoch": epoch},
            )
            self._taken.add(spec)
            return here()

        if self._elsewhere is None or self._is_here(spec, epoch, self._elsewhere):
            return here()
        return self._elsewhere.reader(spec, epoch, take)

    def _is_here(self, spec: PartitionSpec, epoch: Epoch, elsewhere: Elsewhere) -> bool:
        """Say whether this host itself reads a partition."""
        if spec in self._taken or not elsewhere.has_others(spec):
            return True
        # A store that this host is to hold from now on is built while epochs run; no epoch waits for it.
        return elsewhere.is_own(spec) and (
            epoch == BEFORE_FIRST or self._opened(spec).epoch != BEFORE_FIRST
        )

    def reached(self) -> Epoch:
        """Return the epoch that every store has reached, without bringing any further; -1 if one is missing."""
        paths = (self._path(spec) / environments.DATA_FILE for spec in self._specs)
        if not all(path.exists() for path in paths):
            return BEFORE_FIRST
        return min(self._opened(spec).epoch for spec in self._specs)

    @contextmanager
    def some_at(self, epoch: Epoch, partitions: Iterable[int]) -> Iterator[dict[int, LmdbReader]]:
        """Bring some stores to `epoch`, and open a stable view of them; raises as `at`.

        Raises:
            StateUnavailable: One of them has no rows on this host.
        """
        with ExitStack() as stack:
            readers = {}
            for number in partitions:
                spec = self._specs[number]
                is_here = (self._path(spec) / environments.DATA_FILE).exists()
                if not is_here or self._opened(spec).epoch == BEFORE_FIRST:
                    raise StateUnavailable(f"partition {number} is not on this host")
                reader = stack.enter_context(self._bring(spec, epoch).reader())
                if reader.epoch != epoch:
                    raise _late(spec, reader.epoch, epoch)
                readers[number] = reader
            yield readers

    def held(self) -> dict[int, Epoch]:
        """Return the epoch of each partition that has a store here, without bringing any further."""
        specs = [
            spec for spec in self._specs if (self._path(spec) / environments.DATA_FILE).exists()
        ]
        return {spec.partition: self._opened(spec).epoch for spec in specs}

    def forget_taken(self) -> None:
        """Ask other hosts again for the partitions that this one has built because nobody answered."""
        self._taken.clear()

    def leave_others(self) -> bool:
        """Delete the stores of partitions that other hosts hold, unless a process has them open; say whether none is left."""
        if self._elsewhere is None:
            return True
        left = [
            spec
            for spec in self._specs
            if not self._elsewhere.keeps(spec) and spec not in self._taken
        ]
        for spec in left:
            self._forget(spec)
        there = [self._path(spec) for spec in left if self._path(spec).exists()]
        deleted = [path.name for path in there if environments.discard_unused(path)]
        if deleted:
            _log.info("stores are deleted that other hosts hold", extra={"stores": len(deleted)})
        return len(deleted) == len(there)

    def catch_up_one(self, partition: int, epoch: Epoch, former: int = 0) -> None:
        """Bring one store to `epoch`, unless other hosts hold it; raises like `at`.

        Args:
            former: Another number of stores. If this store is empty, it begins with its rows from theirs.
        """
        spec = self._specs[partition]
        if self._elsewhere is not None:
            if self._is_fed(spec, self._elsewhere):
                if former:
                    self._copy_held(former, spec, epoch)
                self._bring(spec, epoch)
            return
        if former:
            self._copy(former, spec, epoch)
        self._bring(spec, epoch)

    def _is_fed(self, spec: PartitionSpec, elsewhere: Elsewhere) -> bool:
        """Say whether a store is brought to each epoch; one that this host will hold is built by the holder first."""
        return (
            spec in self._taken
            or elsewhere.is_own(spec)
            or (
                elsewhere.keeps(spec)
                and (self._path(spec) / environments.DATA_FILE).exists()
                and self._opened(spec).epoch != BEFORE_FIRST
            )
        )

    def partition_of(self, key: EntityKey) -> int:
        """Return the number of the store that holds an entity."""
        return self._routes[bucket_of(key)]

    def rebuild(self, partition: int, reason: str = "asked for") -> None:
        """Delete a store; the next `at` rebuilds it. This process may have no open reader of it.

        Raises:
            StateUnavailable: The store cannot be deleted.
        """
        state = self._open.pop(partition, None)
        path = self._path(self._specs[partition])
        seen = environments.file_identity(path)
        if state is not None:
            seen = state.identity
            state.close()
        self._discard(self._specs[partition], seen, reason)

    def examine(self) -> list[int]:
        """Read the stores in a child process; delete those that fail and return their numbers."""
        specs = {self._path(spec): spec for spec in self._specs}
        seen = {path: environments.file_identity(path) for path in specs}
        damaged = damaged_of([*specs], self._boot_id)
        for path in damaged:
            self._forget(specs[path])
            self._discard(specs[path], seen[path], "it cannot be read")
        return sorted(specs[path].partition for path in damaged)

    def close(self) -> None:
        """Release everything."""
        for spec in self._specs:
            self._forget(spec)

    def _bring(self, spec: PartitionSpec, epoch: Epoch) -> LmdbState:
        for _ in range(ATTEMPTS):
            state = self._opened(spec)
            try:
                reached = state.epoch
                if reached > epoch:
                    self._check_ahead(spec, reached, epoch)
                    continue
                if reached == epoch:
                    return state
                self._feed(state, spec, epoch, reached)
                if not state.replaced:
                    return state
            except Corrupt as error:
                if is_sound(self._path(spec), self._boot_id):
                    raise  # it is the journal that is damaged
                self.rebuild(spec.partition, str(error))
        message = f"partition {spec.partition} could not be brought to epoch {epoch}"
        raise StateUnavailable(message)

    def _copy(self, former: int, spec: PartitionSpec, epoch: Epoch) -> None:
        """Fill an empty store with its rows from the stores of another number.

        It is one write: a process that is killed meanwhile leaves the store empty. If the other stores
        are damaged, the store stays empty, too.
        """
        state = self._opened(spec)
        if state.epoch != BEFORE_FIRST or epoch == BEFORE_FIRST:
            return
        source = Stores(self._directory, self._journal, former, boot_id=self._boot_id)
        source._snapshots = self._snapshots
        with closing(source):
            try:
                with source.at(epoch) as reader:
                    state.load(epoch, lambda: reader.owned_by(spec), BEFORE_FIRST)
            except Corrupt as error:
                extra = {"partition": spec.partition, "reason": str(error)}
                _log.warning("a store cannot be copied, and is built from the journal", extra=extra)

    def _copy_held(self, former: int, spec: PartitionSpec, epoch: Epoch) -> None:
        """Fill an empty store with its rows from stores of another number, if this host holds all that have some of them."""
        specs = [PartitionSpec(number, former) for number in range(former)]
        numbers = [each.partition for each in specs if overlap(spec, each)]
        state = self._opened(spec)
        if state.epoch != BEFORE_FIRST or epoch == BEFORE_FIRST:
            return
        source = Stores(self._directory, self._journal, former, boot_id=self._boot_id)
        with closing(source):
            try:
                with source.some_at(epoch, numbers) as readers:
                    state.load(
                        epoch,
                        lambda: chain(*(owned_of(readers[n], spec) for n in numbers)),
                        BEFORE_FIRST,
                    )
            except (Corrupt, StateUnavailable):
                return  # the journal has these rows, too

    def _feed(self, state: LmdbState, spec: PartitionSpec, epoch: Epoch, reached: Epoch) -> None:
        large: list[int] = []
        before = state.records

        def note(reached: Epoch, count: int) -> None:
            if count >= REWRITE_ROWS:
                large.append(count)
            if self._progress is not None:
                self._progress(reached, count)

        try:
            catch_up(
                state,
                self._journal,
                epoch,
                spec,
                note,
                snapshots=self._snapshots,
                folder=self._directory,
                shared=self._divided,
                reached=reached,
            )
        except StateUnavailable:
            self._forget(spec)  # after a failed write, LMDB may have to be opened again
            raise
        if large and _is_mixed(large, before, state.records):
            self._rewrite(state, spec)

    def _rewrite(self, state: LmdbState, spec: PartitionSpec) -> None:
        """Write a store again in the order of its keys; if that fails, it stays as it is."""
        try:
            state.rewrite()
        except (Corrupt, StateUnavailable) as error:
            extra = {"partition": spec.partition, "cause": str(error)}
            _log.warning("a store cannot be written again in the order of its keys", extra=extra)

    def _opened(self, spec: PartitionSpec) -> LmdbState:
        state = self._open.get(spec.partition)
        if state is not None and not state.replaced:
            return state
        self._forget(spec)
        path = self._path(spec)
        seen = environments.file_identity(path)
        try:
            state = self._new(spec)
        except (Corrupt, Diverged) as error:
            self._discard(spec, seen, str(error))
            state = self._new(spec)
        self._open[spec.partition] = state
        return state

    def _new(self, spec: PartitionSpec) -> LmdbState:
        return LmdbState(self._path(spec), self._journal.identity, boot_id=self._boot_id, spec=spec)

    def _check_ahead(self, spec: PartitionSpec, reached: Epoch, epoch: Epoch) -> None:
        """Discard a store whose epoch the journal does not have; refuse a caller that is late."""
        last = self._journal.last()
        if last is not None and last.epoch >= reached:
            raise _late(spec, reached, epoch)
        self.rebuild(spec.partition, f"it is at epoch {reached}, ahead of the journal")

    def _forget(self, spec: PartitionSpec) -> None:
        state = self._open.pop(spec.partition, None)
        if state is not None:
            state.close()

    def _discard(
        self, spec: PartitionSpec, seen: environments.FileIdentity | None, reason: str
    ) -> None:
        path = self._path(spec)
        _log.warning(
            "a state store is discarded, to be rebuilt from the journal",
            extra={"partition": spec.partition, "path": str(path), "reason": reason},
        )
        environments.discard(path, seen)

    def _path(self, spec: PartitionSpec) -> Path:
        return self._directory / name_of(spec)


def _is_mixed(large: Sequence[int], before: int, records: int) -> bool:
    """Say whether large writes brought a good part of the rows of a store, between the keys of others."""
    brought = min(sum(large), records - before)  # a row that was there before stays in its page
    return min(brought, records - max(large)) * REWRITE_SHARE >= records


def _late(spec: PartitionSpec, reached: Epoch, epoch: Epoch) -> ComesLate:
    return ComesLate(
        f"partition {spec.partition} is at epoch {reached} already; work at {epoch} comes late"
    )


# A process may still read them at the epoch at which it has opened them. So a store is deleted when no
# process has it open.


def remove_former_stores(directory: Path, partitions: int) -> list[str]:
    """Delete the stores of other numbers of partitions, except those that a process has open.

    Raises:
        StateUnavailable: A store cannot be deleted.
    """
    used = {name_of(PartitionSpec(number, partitions)) for number in range(partitions)}
    return sorted(
        path.name
        for path in directory.glob("partition-*[0-9]")
        if path.name not in used and environments.discard_unused(path)
    )
