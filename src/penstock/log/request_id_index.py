"""The identity index: which request ids the embedded log has seen, and where.

It promises to know every id for the retention after its append, whether or not its record has
been truncated. The truth lies in the file: each row there carries the hashes of its ids, and
truncation keeps them (table `remembered`). This index is a cache of it in one process's memory,
filled when an id is first asked for: 16 bytes for each unexpired id, in sorted arrays that merge
geometrically, behind a dictionary of the newest. (O'Neil et al., *The Log-Structured Merge-Tree*,
1996.) It yields positions only; what was appended there is then read, checksum and all, so a clash
of the 64-bit hashes costs a look and changes nothing. A table with an index on the ids would cost
ten times as much: random keys dirty a page each.

Ids are compared by 128-bit hashes seeded per file, bodies by 64-bit ones. The lock is left to the
caller: no two methods may run at once on one index.
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
_PRINT: Final = np.dtype([("hash", "<u8"), ("rest", "V8"), ("body", "V" + str(BODY_HASH_BYTES))])

Words = npt.NDArray[np.uint64]


class SeenRequest(NamedTuple):
    """The first append of a request id."""

    lsn: Lsn
    body: bytes  # 64-bit hash of the body
    appended_s: int


class SortedRun(NamedTuple):
    """Sorted hashes, and at the same index the position of each."""

    hashes: Words
    positions: Words


class RequestIdIndex:
    """What one process knows of the ids in one file; refreshed inside the caller's transaction."""

    def __init__(self, file: str, retention_s: int) -> None:
        self._file = file
        self._retention_s = retention_s
        self._recent: dict[int, int] = {}
        self._levels: list[SortedRun] = []  # from large to small
        self._ages: deque[tuple[int, int]] = deque()  # (end, seconds): nothing below is younger
        self._newest_s = 0
        self._known = Lsn(0)

    def refresh(self, connection: sqlite3.Connection, end: Lsn, now_s: int) -> None:
        """Learn what has been appended by others, or before this process, up to `end`.

        Raises:
            Corrupt: A row's hashes do not fit their checksum.
        """
        if self._known >= end:
            return
        hashes = [np.empty(0, np.uint64)]
        positions = [np.empty(0, np.uint64)]
        newest_s = 0
        for table in ("remembered", "block"):
            rows = connection.execute(
                f"{_SELECT} FROM {table} WHERE first >= ? ORDER BY first", (self._known,)
            )
            for prints in map(DedupHashes._make, rows):
                verify_dedup_hashes(prints, self._file)
                hashes.append(np.frombuffer(prints.prints, _PRINT)["hash"].copy())
                positions.append(np.arange(prints.first, prints.first + prints.records, dtype="u8"))
                newest_s = max(newest_s, prints.appended_s)
        self._add(SortedRun(np.concatenate(hashes), np.concatenate(positions)), newest_s, now_s)
        self._known = end

    def seen(
        self, connection: sqlite3.Connection, marks: Sequence[bytes], now_s: int
    ) -> dict[bytes, SeenRequest]:
        """Return the unexpired sightings of those marks that are known.

        Raises:
            Corrupt: The row of a sighting is damaged or missing.
        """
        positions = self._candidates(np.frombuffer(b"".join(marks), np.uint64)[::2])
        if not positions:
            return {}
        asked = set(marks)
        oldest_s = now_s - self._retention_s
        return {
            mark: sighting
            for mark, sighting in self._looked_up(connection, positions)
            if mark in asked and sighting.appended_s > oldest_s
        }

    def learn(self, marks: Sequence[bytes], first: Lsn, now_s: int) -> None:
        """Take in the ids that this process has just appended from `first` on, and committed."""
        hashes = np.frombuffer(b"".join(marks), np.uint64)[::2]
        end = Lsn(first + len(hashes))
        self._add(SortedRun(hashes, np.arange(first, end, dtype=np.uint64)), now_s, now_s)
        self._known = end

    def _add(self, level: SortedRun, newest_s: int, now_s: int) -> None:
        hashes = level.hashes.tolist()
        clash = not self._recent.keys().isdisjoint(hashes) or len(set(hashes)) < len(hashes)
        if clash or len(self._recent) + len(hashes) > RECENT_COUNT:
            self._fold(level, max(newest_s, self._newest_s), now_s)
        else:
            self._recent.update(zip(hashes, level.positions.tolist(), strict=True))
            self._newest_s = max(newest_s, self._newest_s)

    def _fold(self, level: SortedRun, newest_s: int, now_s: int) -> None:
        """Put the dictionary and a level into an array, merge arrays of like size, drop expired."""
        count = len(self._recent)
        recent = SortedRun(
            np.fromiter(self._recent.keys(), np.uint64, count),
            np.fromiter(self._recent.values(), np.uint64, count),
        )
        self._recent.clear()
        self._newest_s = 0
        merging = [recent, level]
        count += len(level.hashes)
        while self._levels and len(self._levels[-1].hashes) < _GROWTH * count:
            merging.append(self._levels.pop())
            count += len(merging[-1].hashes)
        self._levels.append(_sorted(merging))
        self._ages.append((int(level.positions.max(initial=0)) + 1, newest_s))
        expired = 0
        while self._ages and self._ages[0][1] <= now_s - self._retention_s:
            expired, _ = self._ages.popleft()
        if expired:
            self._levels = [_from_position(one, expired) for one in self._levels]

    def _candidates(self, hashes: Words) -> list[int]:
        """Return, in order, the positions where an id with one of these hashes was appended."""
        recent = self._recent
        found = {recent[one] for one in recent.keys() & hashes.tolist()} if recent else set()
        wanted = np.sort(hashes)
        for level in self._levels:
            low = np.searchsorted(level.hashes, wanted, "left")
            high = np.searchsorted(level.hashes, wanted, "right")
            for index in np.flatnonzero(high > low).tolist():
                found.update(level.positions[low[index] : high[index]].tolist())
        return sorted(found)

    def _looked_up(
        self, connection: sqlite3.Connection, positions: Sequence[int]
    ) -> Iterator[tuple[bytes, SeenRequest]]:
        """Yield what lies at these positions, in order; each row is read once."""
        row: DedupHashes | None = None
        for position in positions:
            if row is None or position >= row.first + row.records:
                row = self._row_at(connection, position)
                if row is None:
                    continue
            offset = (position - row.first) * DEDUP_HASH_BYTES
            middle = offset + ID_HASH_BYTES
            body = row.prints[middle : offset + DEDUP_HASH_BYTES]
            yield row.prints[offset:middle], SeenRequest(Lsn(position), body, row.appended_s)

    def _row_at(self, connection: sqlite3.Connection, position: int) -> DedupHashes | None:
        """Return the row that holds a position; None when it was remembered and has expired."""
        for table in ("block", "remembered"):
            found = connection.execute(
                f"{_SELECT} FROM {table} WHERE first <= ? ORDER BY first DESC LIMIT 1", (position,)
            ).fetchone()
            if found is not None and position < found[0] + found[1]:
                row = DedupHashes._make(found)
                verify_dedup_hashes(row, self._file)
                return row
        return None


def _sorted(levels: Sequence[SortedRun]) -> SortedRun:
    hashes = np.concatenate([level.hashes for level in levels])
    positions = np.concatenate([level.positions for level in levels])
    order = np.argsort(hashes, kind="stable")
    return SortedRun(hashes[order], positions[order])


def _from_position(level: SortedRun, first: int) -> SortedRun:
    kept = level.positions >= first
    return SortedRun(level.hashes[kept], level.positions[kept])
