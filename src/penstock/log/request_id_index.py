"""The request id index: the ids that the embedded log has seen, and their positions.

An id is known for the retention after its append, also if its record has been truncated. The file
is authoritative: each of its rows has the hashes of its ids, and truncation keeps them (table
`remembered`). This index caches them for one process, and is filled when an id is first
looked up. It takes 16 bytes for each unexpired id, in sorted runs that a thread merges geometrically,
behind a dictionary of the newest ids (O'Neil et al., *The Log-Structured Merge-Tree*, 1996). Long runs
are in files without a name beside the log, so they need no memory.

The index gives candidate positions only. The rows at these positions are then read and verified, so
a clash of the 64-bit hashes costs a read and changes nothing. An SQL index on the ids would cost ten
times as much, because each random key dirties a page.

Ids are compared by 128-bit hashes with a seed of the file, bodies by 64-bit hashes. The caller holds
a lock: no two methods may run at once on one index.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from penstock.base.ids import Lsn
from penstock.log.block import (
    BODY_HASH_BYTES,
    DEDUP_HASH_BYTES,
    ID_HASH_BYTES,
    DedupHashes,
    verify_dedup_hashes,
)
from penstock.log.sorted_run import PART_COUNT, SortedRun, Words, merged, run_of

RECENT_COUNT: Final = 65_536
"""Ids that are kept in the dictionary before they are sorted into an array."""

_GROWTH: Final = 4
_SELECT: Final = "SELECT first, records, appended_s, prints_digest, prints"
_STORED: Final = np.dtype([("hash", "<u8"), ("rest", "V8"), ("body", f"V{BODY_HASH_BYTES}")])

_NOTHING: Final[Words] = np.empty(0, np.uint64)


class SeenRequest(NamedTuple):
    """The first append of a request id."""

    lsn: Lsn
    body_hash: bytes
    appended_s: int


class _Merge(threading.Thread):
    """Makes one run of several, which stay in use meanwhile; appends wait for a short time only, however many ids there are.

    Attributes:
        place: The place of the runs among all runs.
        merged: The run that takes this place; None if there was no room for it.
    """

    def __init__(self, runs: Sequence[SortedRun], place: slice, first: int, folder: Path) -> None:
        super().__init__(name="penstock-ids", daemon=True)
        self.place = place
        self.merged: SortedRun | None = None
        self._runs = runs[place]
        self._first = first
        self._folder = folder

    def run(self) -> None:
        """Merge."""
        with suppress(OSError, MemoryError):  # the disk may have room for a later merge
            self.merged = merged(self._runs, self._first, self._folder)


class RequestIdIndex:
    """The ids of one file, as far as one process knows them."""

    def __init__(self, file: str, retention_s: int) -> None:
        self._file = file
        self._folder = Path(file).parent
        self._retention_s = retention_s
        self._recent: dict[int, int] = {}
        self._runs: list[SortedRun] = []  # from large to small, but for the newest
        self._merge: _Merge | None = None  # until then, runs are only added behind its place
        self._expired = 0  # no record before this position is known any longer
        self._ages: deque[tuple[int, int]] = deque()  # (end, seconds): nothing below is younger
        self._newest_s = 0
        self._known = Lsn(0)

    def refresh(self, connection: sqlite3.Connection, end: Lsn, now_s: int) -> None:
        """Read the ids up to `end` that other processes have appended, or earlier runs."""
        if self._known >= end:
            return
        hashes, positions = [_NOTHING], [_NOTHING]
        count, newest_s = 0, 0
        for table in ("remembered", "block"):
            rows = connection.execute(
                f"{_SELECT} FROM {table} WHERE first >= ? ORDER BY first", (self._known,)
            )
            for row in map(DedupHashes._make, rows):
                verify_dedup_hashes(row, self._file)
                hashes.append(np.frombuffer(row.hashes, _STORED)["hash"].copy())
                positions.append(np.arange(row.first, row.first + row.records, dtype="u8"))
                count += row.records
                newest_s = max(newest_s, row.appended_s)
                if count >= PART_COUNT:
                    self._put(np.concatenate(hashes), np.concatenate(positions), newest_s, now_s)
                    self._known = Lsn(row.first + row.records)
                    hashes, positions, count = [_NOTHING], [_NOTHING], 0
        if count > RECENT_COUNT:
            self._put(np.concatenate(hashes), np.concatenate(positions), newest_s, now_s)
        else:
            added = np.concatenate(hashes).tolist()
            self._add(added, np.concatenate(positions).tolist(), newest_s, now_s)
        self._known = end

    def seen(
        self, connection: sqlite3.Connection, id_hashes: Sequence[bytes], now_s: int
    ) -> dict[bytes, SeenRequest]:
        """Return the unexpired requests with some of these id hashes.

        Args:
            now_s: Seconds since the Unix epoch.
        """
        positions = self._candidates(_words(id_hashes))
        if not positions:
            return {}
        wanted = set(id_hashes)
        oldest_s = now_s - self._retention_s
        return {
            id_hash: request
            for id_hash, request in self._looked_up(connection, positions)
            if id_hash in wanted and request.appended_s > oldest_s
        }

    def learn(self, id_hashes: Sequence[bytes], first: Lsn, now_s: int) -> None:
        """Add the ids that this process has just appended from `first` on, and committed."""
        end = Lsn(first + len(id_hashes))
        self._add(_words(id_hashes), range(first, end), now_s, now_s)
        self._known = end

    def _add(
        self, hashes: Sequence[int], positions: Sequence[int], newest_s: int, now_s: int
    ) -> None:
        """Add ids in any order: to the dictionary, or to the sorted runs if they do not fit there."""
        clash = not self._recent.keys().isdisjoint(hashes) or len(set(hashes)) < len(hashes)
        if clash or len(self._recent) + len(hashes) > RECENT_COUNT:
            self._put(np.array(hashes, np.uint64), np.array(positions, np.uint64), newest_s, now_s)
        else:
            self._recent.update(zip(hashes, positions, strict=True))
            self._newest_s = max(newest_s, self._newest_s)

    def _put(self, hashes: Words, positions: Words, newest_s: int, now_s: int) -> None:
        """Make a run of the dictionary and of new ids."""
        count = len(self._recent)
        recent = np.fromiter(self._recent.keys(), np.uint64, count)
        places = np.fromiter(self._recent.values(), np.uint64, count)
        run = run_of(np.concatenate([recent, hashes]), np.concatenate([places, positions]))
        self._runs.append(run)
        self._ages.append((run.last + 1, max(newest_s, self._newest_s)))
        self._recent.clear()
        self._newest_s = 0
        self._tidy(now_s)

    def _tidy(self, now_s: int) -> None:
        """Take over a merge that has ended, forget runs whose ids have all expired, and begin the next merge."""
        if self._merge is not None:
            if self._merge.is_alive():
                return
            if self._merge.merged is not None:
                self._runs[self._merge.place] = [self._merge.merged]
            self._merge = None
        while self._ages and self._ages[0][1] <= now_s - self._retention_s:
            self._expired, _ = self._ages.popleft()
        self._runs = [run for run in self._runs if run.last >= self._expired]
        # Each run stays _GROWTH times as long as the next one, so there are O(log ids) of them. Expired ids go with a merge.
        begin = end = len(self._runs)
        count = 0
        while begin and (not count or len(self._runs[begin - 1].hashes) < _GROWTH * count):
            begin -= 1
            count += len(self._runs[begin].hashes)
        if end - begin > 1:
            merge = _Merge(self._runs, slice(begin, end), self._expired, self._folder)
            with suppress(RuntimeError):  # the system allows no further thread now
                merge.start()
                self._merge = merge

    def _candidates(self, hashes: Sequence[int]) -> list[int]:
        """Return, in order, the positions at which an id with one of these hashes was appended."""
        recent = self._recent
        candidates = {recent[word] for word in recent.keys() & hashes} if recent else set()
        # Arrays are made where there are runs: for few ids, to make one takes longer than all the rest.
        wanted = np.sort(np.array(hashes, np.uint64)) if self._runs else _NOTHING
        for run in self._runs:
            if not len(run.hashes):  # all of its ids have expired
                continue
            low = np.searchsorted(run.hashes, wanted, "left")
            for index in np.flatnonzero(run.hashes.take(low, mode="clip") == wanted).tolist():
                high = np.searchsorted(run.hashes, wanted[index], "right")
                candidates.update(run.positions[low[index] : high].tolist())
        return sorted(candidates)

    def _looked_up(
        self, connection: sqlite3.Connection, positions: Sequence[int]
    ) -> Iterator[tuple[bytes, SeenRequest]]:
        """Yield the id hash and the request at each position, in order; each row is read once."""
        row: DedupHashes | None = None
        for position in positions:
            if row is None or position >= row.first + row.records:
                row = self._row_at(connection, position)
                if row is None:
                    continue
            start = (position - row.first) * DEDUP_HASH_BYTES
            middle, end = start + ID_HASH_BYTES, start + DEDUP_HASH_BYTES
            request = SeenRequest(Lsn(position), row.hashes[middle:end], row.appended_s)
            yield row.hashes[start:middle], request

    def _row_at(self, connection: sqlite3.Connection, position: int) -> DedupHashes | None:
        """Return the row that holds a position; None if it was truncated and has expired."""
        for table in ("block", "remembered"):
            columns = connection.execute(
                f"{_SELECT} FROM {table} WHERE first <= ? ORDER BY first DESC LIMIT 1", (position,)
            ).fetchone()
            if columns is not None and position < columns[0] + columns[1]:
                row = DedupHashes._make(columns)
                verify_dedup_hashes(row, self._file)
                return row
        return None


def _words(id_hashes: Sequence[bytes]) -> list[int]:
    """Return the first 64 bits of each id hash."""
    return memoryview(b"".join(id_hashes)).cast("Q")[::2].tolist()
