"""The identity index: which request ids the embedded log has seen, and where.

It promises to know every id for the retention after its append, whether or not its record has
been truncated, in memory that does not grow with the log: the ids of the newest blocks are kept
in a dictionary, filled from the blocks themselves; older ones lie in a table. They move there in
large sorted batches, because random keys inserted one by one would write a page for each. (The
idea of O'Neil et al., *The Log-Structured Merge-Tree*, 1996, with two levels.)

Two generations of the table take turns. When the younger is as old as the retention, all that is
in the older has expired, and it is emptied at once; no search for expired rows is ever needed.

Ids are known by a 128-bit hash seeded per file, bodies by a 64-bit one. When to merge is left to
the caller, as is the lock: no two methods may run at once on one index.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.base.ids import Lsn
from penstock.log.block import Block, split_prints, verify

MERGE_COUNT: Final = 65_536
"""Ids in memory beyond which they should be merged into the table."""

_PROBES: Final = 1024


class Sighting(NamedTuple):
    """The first append of a request id."""

    lsn: Lsn
    body: bytes  # 64-bit hash of the body
    appended_s: int


class IdentityIndex:
    """What one process knows of the ids in one file; refreshed inside the caller's transaction."""

    def __init__(self, file: str, retention_s: int) -> None:
        self._file = file
        self._retention_s = retention_s
        self._recent: dict[bytes, Sighting] = {}  # of the records [indexed, known)
        self._indexed = Lsn(0)
        self._known = Lsn(0)

    @property
    def pending(self) -> int:
        """How many ids wait in memory for a merge."""
        return len(self._recent)

    def refresh(self, connection: sqlite3.Connection, end: Lsn) -> None:
        """Learn what other processes appended or merged, up to `end`.

        Raises:
            Corrupt: A block's digest does not fit.
        """
        (indexed,) = connection.execute("SELECT indexed FROM position").fetchone()
        if indexed != self._indexed:
            self._recent.clear()
            self._indexed = self._known = Lsn(indexed)
        if self._known >= end:
            return
        rows = connection.execute(
            "SELECT * FROM block WHERE first >= ? ORDER BY first", (self._known,)
        )
        for block in map(Block._make, rows):
            verify(block, self._file)
            for lsn, (mark, body) in enumerate(split_prints(block), block.first):
                self._recent[mark] = Sighting(Lsn(lsn), body, block.appended_s)
        self._known = end

    def seen(
        self, connection: sqlite3.Connection, marks: Sequence[bytes], now_s: int
    ) -> dict[bytes, Sighting]:
        """Return the unexpired sightings of those marks that are known."""
        found = self._in_tables(connection, marks) if self._indexed else {}
        recent = self._recent
        found.update({mark: recent[mark] for mark in recent.keys() & marks})
        oldest_s = now_s - self._retention_s
        return {mark: one for mark, one in found.items() if one.appended_s > oldest_s}

    def learn(self, fresh: Mapping[bytes, Sighting], end: Lsn) -> None:
        """Take in what this process has just appended, up to `end`, and committed."""
        self._recent.update(fresh)
        self._known = end

    def merge(self, connection: sqlite3.Connection, now_s: int) -> None:
        """Move the ids in memory into the table; call `forget_merged` once that is committed."""
        generation, since_s = connection.execute(
            "SELECT generation, since_s FROM position"
        ).fetchone()
        if now_s - since_s >= self._retention_s:
            generation, since_s = 1 - generation, now_s
            connection.execute(f"DELETE FROM identity_{generation}")  # noqa: S608 - 0 or 1
        connection.executemany(
            f"INSERT OR REPLACE INTO identity_{generation} VALUES (?, ?, ?, ?)",  # noqa: S608
            sorted((mark, *sighting) for mark, sighting in self._recent.items()),
        )
        connection.execute(
            "UPDATE position SET generation = ?, since_s = ?, indexed = ?",
            (generation, since_s, self._known),
        )

    def forget_merged(self) -> None:
        """Drop from memory what a committed `merge` has moved."""
        self._recent.clear()
        self._indexed = self._known

    def _in_tables(
        self, connection: sqlite3.Connection, marks: Sequence[bytes]
    ) -> dict[bytes, Sighting]:
        found: dict[bytes, Sighting] = {}
        for low in range(0, len(marks), _PROBES):
            some = list(marks[low : low + _PROBES])
            # Padded to a power of two, so that the statements are few and stay prepared.
            some += some[-1:] * ((1 << (len(some) - 1).bit_length()) - len(some))
            holes = ",".join("?" * len(some))
            for generation in (0, 1):
                rows = connection.execute(
                    f"SELECT * FROM identity_{generation} WHERE mark IN ({holes})",  # noqa: S608
                    some,
                )
                for mark, *rest in rows:
                    sighting = Sighting._make(rest)
                    if mark not in found or found[mark].lsn < sighting.lsn:
                        found[mark] = sighting
        return found
