"""The reader of a store in LMDB: a stable view of one epoch, whose records are checked before they are returned."""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, final

import lmdb
import xxhash

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import Corrupt, StateUnavailable
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.environment import Transaction

NEIGHBOURS: Final = 2
"""Records that are checked on each side of a missing key."""


@final
class LmdbReader:
    """The store as of one epoch, valid inside the `with` that opened it."""

    __slots__ = ("_path", "_txn", "epoch", "fetch", "get", "rest")

    def __init__(self, txn: Transaction, epoch: Epoch, path: Path) -> None:
        self.epoch = epoch
        self.get: Callable[[EntityKey], bytes | None] = _getter(txn, path)
        self.fetch: Callable[[bytes], bytes | None] = txn.get
        self.rest: Callable[[bytes], bytes | None] = partial(_get_rare, txn, path)
        self._txn = txn
        self._path = path

    def items(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield every entity in key order, checksums verified; overlong keys are held in memory.

        Raises:
            Corrupt: A checksum does not fit, or records are out of order or missing.
        """
        longs = sorted(
            record.split_long_state(state)
            for _, state in self._records(record.LONG_KEY_PREFIX, record.FIRST_PLAIN_KEY)
        )
        records = 1 + len(longs)  # 1: the metadata
        merged = heapq.merge(longs, self._plain_items()) if longs else self._plain_items()
        for item in merged:
            records += 1
            yield item
        records -= len(longs)  # counted once more by the merge
        entries = self._txn.stat()["entries"]
        if records != entries:
            raise corrupt(self._path, f"{entries} records are counted, {records} were read")

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the entities whose keys begin with a prefix, in order; raises as `items_of`."""
        return [key for key, _ in self.items_of(prefix)]

    def items_of(self, prefix: str, after: str = "") -> Iterator[tuple[EntityKey, bytes]]:
        """Yield the entities whose keys begin with a prefix, in order; overlong keys are held in memory.

        Args:
            after: The text behind the prefix in the last key that is left out; empty for none.

        Raises:
            Corrupt: A checksum does not fit, or records are out of order.
        """
        longs = sorted(
            item
            for _, state in self._records(record.LONG_KEY_PREFIX, record.FIRST_PLAIN_KEY)
            if (item := record.split_long_state(state))[0].startswith(prefix)
        )
        plain = self._plain_items_of(prefix.encode(), after.encode())
        first = prefix + after
        for item in heapq.merge(longs, plain) if longs else plain:
            if not after or item[0] > first:
                yield item

    def _plain_items_of(self, prefix: bytes, after: bytes) -> Iterator[tuple[EntityKey, bytes]]:
        start = (prefix + after)[: record.LONGEST_KEY]  # of an overlong key, as much as LMDB takes
        for raw, state in self._records(start, None):
            if not raw.startswith(prefix):
                return
            yield EntityKey(raw.decode()), state

    def _plain_items(self) -> Iterator[tuple[EntityKey, bytes]]:
        for raw, state in self._records(record.FIRST_PLAIN_KEY, None):
            yield EntityKey(raw.decode()), state

    def _records(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        previous = b""
        with damage_reported(self._path), self._txn.cursor() as cursor:
            if not cursor.set_range(start):
                return
            for raw, stored in cursor:
                if end is not None and raw >= end:
                    return
                if raw <= previous or raw < start:
                    raise corrupt(self._path, f"{raw!r} lies out of order")
                previous = raw
                yield raw, record.unseal(raw, stored)


def _getter(txn: Transaction, path: Path) -> Callable[[EntityKey], bytes | None]:
    """Return `get`, the hottest function of the system: a closure without the rare cases."""
    fetch = txn.get
    checksum = xxhash.xxh3_64_digest
    encode = str.encode
    skip = record.CHECKSUM_SIZE

    def get(key: EntityKey) -> bytes | None:
        raw = encode(key)
        try:
            stored = fetch(raw)
        except lmdb.Error as error:
            raise _translated(path, error) from error
        if stored is None:
            return _get_rare(txn, path, raw)
        state = stored[skip:]
        if checksum(raw + state) + state == stored:
            return state
        raise corrupt(path, f"the state of {key} fails its checksum")

    return get


def _get_rare(txn: Transaction, path: Path, raw: bytes) -> bytes | None:
    """Look up a key that was not found as it is: it is overlong, or the entity does not exist."""
    if record.is_plain(raw):
        _check_missing(txn, raw, path)
        return None
    stored_key = record.long_key(raw)
    with damage_reported(path):
        stored = txn.get(stored_key)
    if stored is None:
        _check_missing(txn, stored_key, path)
        return None
    return record.split_long_state(record.unseal(stored_key, stored))[1]


def _check_missing(txn: Transaction, raw: bytes, path: Path) -> None:
    """Check that a key is missing, and not hidden by damage.

    A damaged key or separator leads the search to a wrong place. There either a neighbour's checksum
    fails, or the order of the neighbours contradicts the search.
    """
    wanted = 2 * NEIGHBOURS
    try:
        cursor = txn.cursor()
        back = cursor.set_range(raw) or cursor.last()
        for _ in range(NEIGHBOURS):
            back = back and cursor.prev()
        around = list(islice(cursor, wanted))  # from the start, when going back left the file
    except MemoryError:
        # An earlier Penstock stored the rest of a cascade as one row. Beside a row that does not fit into memory no
        # key is checked.
        return
    except lmdb.Error as error:
        raise _translated(path, error) from error
    previous = b""
    for neighbour, stored in around:
        record.unseal(neighbour, stored)
        if neighbour <= previous or neighbour == raw:
            raise corrupt(path, f"the records around {raw!r} contradict each other")
        previous = neighbour
    if not around or around[0][0] > raw or (previous < raw and len(around) == wanted):
        raise corrupt(path, f"the search for {raw!r} ended in a wrong place")


def corrupt(path: Path, fact: str) -> Corrupt:
    """Return the error for a store that is damaged."""
    return Corrupt(f"{path}: {fact}; the store can be rebuilt")


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Translate LMDB's errors, except that the map is full, which the writer handles."""
    try:
        yield
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        raise _translated(path, error) from error


def _translated(path: Path, error: lmdb.Error) -> Corrupt | StateUnavailable:
    if isinstance(error, environments.DAMAGE):
        return corrupt(path, str(error))
    return StateUnavailable(f"{path} cannot be used: {error}")
