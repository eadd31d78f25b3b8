"""LMDB state: a partition's store on local disk, shared by all processes of a host.

Guarantees:
- A reader is an LMDB read transaction: a stable view of one epoch, independent of writers.
- One write transaction applies an epoch and records it; a process that is killed at any moment leaves
  the store at the epoch before or after.
- A returned state fits its checksum over key and state. A key is reported missing only after the
  records around its place were checked, so that a damaged path to a record does not hide it.

The store is a cache and is not flushed while in use, so a power loss may leave a tree that looks sound
and is not. A store that was not closed cleanly is therefore deleted when it is opened under another
boot of the machine (see `environment`, also for the locks). A reader keeps the pages of its epoch in
use: close it at the end of a task.

LMDB does not check the page numbers and counts in its file. Reading a damaged file may kill the
process (SIGBUS, SIGSEGV, SIGABRT), and a damaged count in a page's header may hide the last entities
of that page. Only reading all records finds such damage: `examine` does it in a child process, and
`stores` rebuilds a store that fails.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, final

import lmdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Diverged, StateUnavailable
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.api import Change
from penstock.state.environment import Transaction
from penstock.state.lmdb_reader import LmdbReader, corrupt, damage_reported
from penstock.state.partition_spec import WHOLE, PartitionSpec


class SortedChanges:
    """Changes in key order (bytes of the UTF-8 text), one for each entity.

    Columns of a part become lists of bytes without a string, a hash or a pair for each row.

    Attributes:
        raw_keys: The UTF-8 text of each entity key.
        states: The encoded attributes of each entity; None if it was deleted.
    """

    def __init__(self, raw_keys: list[bytes], states: list[bytes | None]) -> None:
        self.raw_keys = raw_keys
        self.states = states

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Self:
        """Sort changes; of several changes of an entity, the last one counts."""
        if isinstance(changes, cls):
            return changes
        newest = dict(changes)
        keys = sorted(newest)  # by code points, which is the order of the bytes, too
        return cls([key.encode() for key in keys], [newest[key] for key in keys])

    @classmethod
    def of_columns(cls, keys: pa.ChunkedArray, states: pa.ChunkedArray) -> Self:
        """Sort the rows of a table.

        Args:
            keys: Strings, each once.
        """
        raw = keys.cast(pa.binary())
        order = pc.sort_indices(raw)
        return cls(raw.take(order).to_pylist(), states.take(order).to_pylist())

    def __len__(self) -> int:
        return len(self.raw_keys)

    def __iter__(self) -> Iterator[Change]:
        for key, state in zip(self.raw_keys, self.states, strict=True):
            yield EntityKey(key.decode()), state


@final
class LmdbState:
    """State in an LMDB directory; one object per process and path is enough, more are allowed."""

    def __init__(
        self,
        path: Path,
        journal_identity: str,
        *,
        boot_id: str,
        spec: PartitionSpec = WHOLE,
        map_size: int = environments.MAP_SIZE,
    ) -> None:
        """Open or create the store; a store that another boot left unclean is deleted first.

        Args:
            path: The store's own directory.
            boot_id: The content of `/proc/sys/kernel/random/boot_id`.
            map_size: Address space in bytes to begin with; it doubles when it is full.

        Raises:
            Corrupt: It is damaged; delete it by `environment.discard` and open it again.
            Diverged: It is fed by another journal, or is another partition or format.
            StateUnavailable: The disk is full or fails.
        """
        self._path = path
        self._boot_id = boot_id
        self._empty = record.Metadata(
            record.FORMAT, journal_identity, spec.partition, spec.partitions, BEFORE_FIRST
        )
        self._environment = environments.attach(path, boot_id, map_size)
        self._closed = False
        try:
            self._adopt()
        except BaseException:
            self.close()
            raise

    @property
    def epoch(self) -> Epoch:
        """The newest epoch applied; -1 when empty."""
        self._check_open()
        with damage_reported(self._path):
            txn = self._environment.begin_read()
            try:
                return self._metadata(txn).epoch
            finally:
                self._environment.end_read(txn)

    @property
    def records(self) -> int:
        """The number of records, with that of the metadata."""
        self._check_open()
        with damage_reported(self._path):
            return self._environment.records

    @property
    def is_empty(self) -> bool:
        """Whether no entity is there."""
        return self.records <= 1

    @property
    def identity(self) -> environments.FileIdentity:
        """Which file this store has open."""
        return self._environment.identity

    @property
    def replaced(self) -> bool:
        """Whether another process has discarded this store; open the path again."""
        return environments.file_identity(self._path) != self.identity

    @contextmanager
    def reader(self) -> Iterator[LmdbReader]:
        """Open a stable view of the newest applied epoch.

        Raises:
            Corrupt: The file or its metadata is damaged.
            StateUnavailable: The store is closed, or has too many readers.
        """
        self._check_open()
        with damage_reported(self._path):
            txn = self._environment.begin_read()
        try:
            with damage_reported(self._path):
                epoch = self._metadata(txn).epoch
            yield LmdbReader(txn, epoch, self._path)
        finally:
            self._environment.end_read(txn)

    def apply(self, epoch: Epoch, changes: Iterable[Change], expect: Epoch) -> Epoch:
        """Apply changes and record `epoch`, as the port says.

        Raises:
            Corrupt: The file contradicts itself; the store is as before.
        """
        assert epoch > expect, "an epoch follows the one it builds on"
        encoded = _Encoded(changes)
        reached = epoch

        def write(txn: Transaction) -> None:
            nonlocal reached
            metadata = self._metadata(txn)
            if metadata.epoch != expect:
                reached = metadata.epoch
                return
            with txn.cursor() as cursor:
                cursor.putmulti(encoded.records())
            for raw in encoded.deleted:
                txn.delete(raw)
            self._environment.lay_out(txn, len(encoded))
            txn.put(record.METADATA_KEY, msgspec.structs.replace(metadata, epoch=epoch).seal())

        self._write(write)
        return reached

    def load(
        self, epoch: Epoch, batches: Callable[[], Iterable[Iterable[Change]]], expect: Epoch
    ) -> None:
        """Replace everything by the entities in `batches`, as the port says."""
        assert epoch > expect, "a snapshot leads forward"

        def write(txn: Transaction) -> None:
            metadata = self._metadata(txn)
            if metadata.epoch != expect:
                return
            txn.drop(self._environment.entities, delete=False)
            with txn.cursor() as cursor:
                for batch in batches():
                    cursor.putmulti(_Encoded(batch).records())
                    self._environment.lay_out(txn)
            txn.put(record.METADATA_KEY, msgspec.structs.replace(metadata, epoch=epoch).seal())

        self._write(write)

    def clear(self) -> None:
        """Remove everything; the store is at epoch -1 afterwards."""

        def write(txn: Transaction) -> None:
            txn.drop(self._environment.entities, delete=False)
            txn.put(record.METADATA_KEY, self._empty.seal())

        self._write(write)

    def rewrite(self) -> None:
        """Put the rows into a new file, in the order of the keys; `environment.rewrite` says how.

        This object stays at the former file, so `replaced` is true afterwards.
        """
        self._check_open()
        environments.rewrite(self._environment, self._boot_id)

    def close(self) -> None:
        """Release everything; the last process to do so flushes the store and marks it clean."""
        if not self._closed:
            self._closed = True
            environments.detach(self._environment)

    def _adopt(self) -> None:
        """Initialise an empty store; check that a filled one is of this journal and partition."""

        def write(txn: Transaction) -> None:
            if txn.stat()["entries"] == 0:
                txn.put(record.METADATA_KEY, self._empty.seal())

        self._write(write)
        with damage_reported(self._path):
            txn = self._environment.begin_read()
            try:
                metadata = self._metadata(txn)
            finally:
                self._environment.end_read(txn)
        if msgspec.structs.replace(metadata, epoch=BEFORE_FIRST) != self._empty:
            message = f"{self._path} holds {metadata}, not {self._empty}; it can be rebuilt"
            raise Diverged(message)

    def _metadata(self, txn: Transaction) -> record.Metadata:
        stored = txn.get(record.METADATA_KEY)
        if stored is None:
            raise corrupt(self._path, "its metadata is missing")
        return record.unseal_metadata(stored)

    def _write(self, write: Callable[[Transaction], None]) -> None:
        self._check_open()
        while True:
            try:
                with damage_reported(self._path), self._environment.begin_write() as txn:
                    write(txn)
            except lmdb.MapFullError:
                self._environment.grow()
            else:
                break
        self._environment.pad()

    def _check_open(self) -> None:
        if self._closed:
            message = f"{self._path} is closed"
            raise StateUnavailable(message)


class _Encoded:
    """Changes as a store takes them, in key order.

    Sorted puts follow one path down the tree for many keys: twice as fast as unsorted ones.
    """

    def __init__(self, changes: Iterable[Change]) -> None:
        """Take changes; of several changes of an entity, the last one counts."""
        columns = SortedChanges.of(changes)
        self._keys, self._states = columns.raw_keys, columns.states
        self.deleted: list[bytes] = []
        self._longs: list[tuple[bytes, bytes]] = []
        if self._keys and self._keys[0] < record.FIRST_PLAIN_KEY:
            message = f"not an entity key: {self._keys[0]!r}"
            raise ValueError(message)
        if None in self._states or not record.is_plain(max(self._keys, key=len, default=b"")):
            pairs = zip(self._keys, self._states, strict=True)
            plain = [pair for pair in pairs if self._is_usual(*pair)]
            self._keys, self._states = [key for key, _ in plain], [state for _, state in plain]
            self._longs.sort()

    def __len__(self) -> int:
        return len(self._keys) + len(self._longs) + len(self.deleted)

    def _is_usual(self, raw: bytes, state: bytes | None) -> bool:
        """Say whether an entity has a plain key and a state; keep its record, or its deletion, if not."""
        stored = raw if record.is_plain(raw) else record.long_key(raw)
        if state is None:
            self.deleted.append(stored)
        elif stored is not raw:
            self._longs.append((stored, record.seal(stored, record.long_state(raw, state))))
        return state is not None and stored is raw

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records to put, one by one: a list of them would be work for the garbage collector."""
        yield from self._longs
        checksum = xxhash.xxh3_64_digest
        for raw, state in zip(self._keys, self._states, strict=True):
            yield raw, checksum(raw + state) + state  # type: ignore[operator]  # deletions are in a list of their own
