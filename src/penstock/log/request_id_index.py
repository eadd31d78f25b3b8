"""The request id index: the ids that the embedded log has seen, and their positions.

An id is known for the retention after its append, also if its record has been truncated. The file
is authoritative: each of its rows has the hashes of its ids, and truncation keeps them (table
`remembered`). This index caches them in one process's memory, and is filled when an id is first
looked up. It takes 16 bytes for each unexpired id, in sorted arrays that are merged geometrically,
behind a dictionary of the newest ids (O'Neil et al., *The Log-Structured Merge-Tree*, 1996).

The index gives candidate positions only. The rows at these positions are then read and verified, so
a clash of the 64-bit hashes costs a read and changes nothing. An SQL index on the ids would cost ten
times as much, because each random key dirties a page.

Ids are compared by 128-bit hashes with a seed of the file, bodies by 64-bit hashes. The caller holds
a lock: no two methods may run at once on one index.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.base.ids import Lsn
from penstock.log.block import (
    BODY_HASH_BYTES,
    DEDUP_HASH_BYTES,
    ID_HASH_BYTES,
    DedupHashes,
    verify_dedup_hashes,
)

RECENT_COUNT: Final = 65_536
"""Ids that are kept in the dictionary before they are sorted into an array."""

_GROWTH: Final = 4
_SELECT: Final = "SELECT first, records, appended_s, prints_digest, prints"
_STORED: Final = np.dtype([("hash", "<u8"), ("rest", "V8"), ("body", f"V{BODY_HASH_BYTES}")])

Words = npt.NDArray[np.uint64]


class SeenRequest(NamedTuple):
    """The first append of a request id."""

    lsn: Lsn
    body_hash: bytes
    appended_s: int


class SortedRun(NamedTuple):
    """Two arrays of one length: the first 64 bits of ids' hashes, sorted, and their positions."""

    hashes: Words
    positions: Words


class RequestIdIndex:
    """The ids of one file, as far as one process knows them."""

    def __init__(self, file: str, retention_s: int) -> None:
        self._file = file
        self._retention_s = retention_s
        self._recent: dict[int, int] = {}
        self._runs: list[SortedRun] = []  # from large to small
        self._ages: deque[tuple[int, int]] = deque()  # (end, seconds): nothing below is younger
        self._newest_s = 0
        self._known = Lsn(0)

    def refresh(self, connection: sqlite3.Connection, end: Lsn, now_s: int) -> None:
        """Read the ids up to `end` that other processes have appended, or earlier runs."""
        if self._known >= end:
            return
        hashes = [np.empty(0, np.uint64)]
        positions = [np.empty(0, np.uint64)]
        newest_s = 0
        for table in ("remembered", "block"):
            rows = connection.execute(
                f"{_SELECT} FROM {table} WHERE first >= ? ORDER BY first", (self._known,)
            )
            for row in map(DedupHashes._make, rows):
                verify_dedup_hashes(row, self._file)
                hashes.append(np.frombuffer(row.hashes, _STORED)["hash"].copy())
                positions.append(np.arange(row.first, row.first + row.records, dtype="u8"))
                newest_s = max(newest_s, row.appended_s)
        self._add(SortedRun(np.concatenate(hashes), np.concatenate(positions)), newest_s, now_s)
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
        hashes = _words(id_hashes)
        end = Lsn(first + len(hashes))
        self._add(SortedRun(hashes, np.arange(first, end, dtype=np.uint64)), now_s, now_s)
        self._known = end

    def _add(self, added: SortedRun, newest_s: int, now_s: int) -> None:
        """Add ids in any order: to the dictionary, or to the sorted runs if they do not fit there."""
        hashes = added.hashes.tolist()
        clash = not self._recent.keys().isdisjoint(hashes) or len(set(hashes)) < len(hashes)
        if clash or len(self._recent) + len(hashes) > RECENT_COUNT:
            self._merge(added, max(newest_s, self._newest_s), now_s)
        else:
            self._recent.update(zip(hashes, added.positions.tolist(), strict=True))
            self._newest_s = max(newest_s, self._newest_s)

    def _merge(self, added: SortedRun, newest_s: int, now_s: int) -> None:
        """Merge the dictionary, new ids and the runs of like size into one run; drop expired ids."""
        count = len(self._recent)
        recent = SortedRun(
            np.fromiter(self._recent.keys(), np.uint64, count),
            np.fromiter(self._recent.values(), np.uint64, count),
        )
        self._recent.clear()
        self._newest_s = 0
        merging = [recent, added]
        count += len(added.hashes)
        # Each run stays _GROWTH times as long as the next one, so there are O(log ids) of them.
        while self._runs and len(self._runs[-1].hashes) < _GROWTH * count:
            merging.append(self._runs.pop())
            count += len(merging[-1].hashes)
        self._runs.append(_sorted(merging))
        self._ages.append((int(added.positions.max(initial=0)) + 1, newest_s))
        expired = 0
        while self._ages and self._ages[0][1] <= now_s - self._retention_s:
            expired, _ = self._ages.popleft()
        if expired:
            self._runs = [_from_position(run, expired) for run in self._runs]

    def _candidates(self, hashes: Words) -> list[int]:
        """Return, in order, the positions at which an id with one of these hashes was appended."""
        recent = self._recent
        candidates = {recent[word] for word in recent.keys() & hashes.tolist()} if recent else set()
        wanted = np.sort(hashes)
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


def _words(id_hashes: Sequence[bytes]) -> Words:
    """Return the first 64 bits of each id hash, uint64, shape (hashes,)."""
    return np.frombuffer(b"".join(id_hashes), np.uint64)[::2]


def _sorted(runs: Sequence[SortedRun]) -> SortedRun:
    hashes = np.concatenate([run.hashes for run in runs])
    positions = np.concatenate([run.positions for run in runs])
    order = np.argsort(hashes, kind="stable")
    return SortedRun(hashes[order], positions[order])


def _from_position(run: SortedRun, first: int) -> SortedRun:
    kept = run.positions >= first
    return SortedRun(run.hashes[kept], run.positions[kept])
