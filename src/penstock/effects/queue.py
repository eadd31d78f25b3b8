"""The queue of the effect process: the effects that wait, and when each is tried again.

It is an SQLite file of this host, fed from the journal. The epoch that it has reached is in it, in the same transaction as the
rows. So it is a cache: if the file is lost, the process fills it again, and only the numbers of earlier tries are gone. It keeps a
million effects on the disk, and a few in memory.
"""

import sqlite3
import time
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.ids import Epoch
from penstock.log.clock import ClockSteps
from penstock.model.waiting_effect import WaitingEffect, decode_waiting_effect
from penstock.process.presence import boot_id

_CACHE_KB: Final = 8_192
_VERSION: Final = 1
_COMMIT_S: Final = 0.05
"""The time after which changes are committed; each commit costs as much as an effect."""

_TABLES: Final = f"""
PRAGMA user_version = {_VERSION};
CREATE TABLE IF NOT EXISTS position (journal TEXT NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effects (
    seq INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    function TEXT NOT NULL,
    owner TEXT NOT NULL,
    status INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    error TEXT NOT NULL,
    row BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS clock (boot TEXT NOT NULL, ahead_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS steps (first_after INTEGER NOT NULL, step_us INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_turn ON effects (status, function, owner, seq);
CREATE INDEX IF NOT EXISTS by_time ON effects (due_us) WHERE status = 1;
"""


_OF_SYSTEM: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_BUSY,
    }
)


def _is_of_system(error: sqlite3.Error) -> bool:
    """Say whether the disk or the memory is the reason of an error, and not the content of the file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF in _OF_SYSTEM and code != sqlite3.SQLITE_IOERR_SHORT_READ


class Status(IntEnum):
    """The status of an effect in the effect process.

    READY: It is called for the first time when a place is free. LATER: It waits for its next try. RUNNING: It is called, or its
    beginning is being noted. DEAD: It is a dead letter. LOST: A `once=True` effect that an earlier process has begun. RETRY: Its
    next try is due. SETTLED: The log has its outcome. BEGUN: A `once=True` effect that this process has begun, and calls next.
    """

    READY = 0
    LATER = 1
    RUNNING = 2
    DEAD = 3
    LOST = 4
    RETRY = 5
    SETTLED = 6
    BEGUN = 7


class Queued(NamedTuple):
    """An effect in the queue.

    Attributes:
        key: The key of its row, without the name of the class.
        owner: Whose effect it is; see `WaitingEffect.group`.
        row: Its row.
        seq: Its number in the order in which the effects came.
        tries: The calls of its function until now.
        deaths: How often it has ended its process.
        error: The last error.
    """

    key: str
    owner: str
    row: bytes
    effect: WaitingEffect
    tries: int
    deaths: int
    error: str
    seq: int


class Counts(NamedTuple):
    """The effects of one function, by their status."""

    function: str
    waiting: int
    running: int
    dead: int


_INSERT: Final = (
    "INSERT INTO effects (seq, key, function, owner, status, due_us, tries, deaths, error, row)"
    " VALUES (?, ?, ?, ?, ?, 0, 0, 0, '', ?)"
)
_SELECT: Final = "SELECT key, owner, row, tries, deaths, error, seq FROM effects"


class Queue:
    """The queue; for one thread. `commit` ends the changes of the calls before it."""

    def __init__(self, path: Path, claim: str) -> None:
        """Open the file, or begin it.

        Args:
            claim: The name of this process, which is in the rows of `once=True` effects that it has begun.
        """
        self._claim = claim
        self._owners: dict[tuple[Status, str], str] = {}  # whose turn was last
        # A look at an empty part of the index costs as much as an effect, and there is a look for each call that ends.
        self._empty: set[Status] = set()
        self._committed_s = 0.0
        self._ended: set[str] = (
            set()
        )  # settled since the last commit; most rows are gone before the next
        self._next_us: int | None = (
            0  # when the next effect may be due; None if no effect waits for its time
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = self._opened(path)
        except sqlite3.DatabaseError as error:
            if _is_of_system(error):
                raise
            # A damaged cache is made again.
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._connection = self._opened(path)
        self._connection.execute(
            "DELETE FROM steps WHERE NOT EXISTS (SELECT 1 FROM effects WHERE seq < first_after)"
        )
        # The number of the first effect that came after a step of the clock, and how far the clock went.
        self._steps: list[tuple[int, int]] = self._connection.execute(
            "SELECT first_after, step_us FROM steps"
        ).fetchall()
        (self._next_seq,) = self._connection.execute(
            "SELECT max(ifnull((SELECT max(seq) FROM effects), 0) + 1, ifnull(max(first_after), 0)) FROM steps"
        ).fetchone()
        self._boot = boot_id()
        former = self._connection.execute(
            "SELECT ahead_us FROM clock WHERE boot = ? AND boot != ''", (self._boot,)
        ).fetchone()
        self._clock = ClockSteps(*(former or ()))
        self._follow_clock()
        self._note_clock()
        self._take_over()

    @staticmethod
    def _opened(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        # The journal is the truth; after a crash of the machine the queue is filled again or goes on at an earlier epoch.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        connection.executescript(_TABLES)
        connection.execute("SELECT count(*) FROM position").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _take_over(self) -> None:
        """Let the effects that an earlier process was calling be called again; those with `once=True` are lost."""
        for queued in self._select(" WHERE status = ?", Status.RUNNING):
            begun = queued.effect.state == "begun"
            self.put(queued.key, Status.LOST if begun else Status.RETRY)
        # Those that it had begun, and that were not in its hands yet.
        for queued in self._select(" WHERE status = ?", Status.BEGUN):
            self.put(queued.key, Status.LOST)
        self.commit()

    def _select(self, where: str, *values: object) -> list[Queued]:
        return [*map(_queued, self._connection.execute(_SELECT + where, values).fetchall())]

    def position(self) -> tuple[str, Epoch] | None:
        """Return the journal and the epoch of the rows; None for a queue that was not filled."""
        position = self._connection.execute("SELECT journal, epoch FROM position").fetchone()
        return None if position is None else (position[0], Epoch(position[1]))

    def clear(self) -> None:
        """Forget everything."""
        self._empty.clear()
        self._next_us = 0
        self._connection.execute("DELETE FROM effects")
        self._connection.execute("DELETE FROM position")

    def reach(self, journal: str, epoch: Epoch) -> None:
        """Note the epoch that the rows have reached."""
        self._connection.execute("DELETE FROM position")
        self._connection.execute("INSERT INTO position VALUES (?, ?)", (journal, epoch))
        self.commit_at_times()

    def settle(self, key: str) -> None:
        """Note that the log has the outcome of an effect."""
        self._ended.add(key)

    def commit(self) -> None:
        """End the transaction, and begin the next."""
        self._committed_s = time.monotonic()
        # Only of those that run: the row of an effect may have its outcome already, as a dead letter has.
        self._connection.executemany(
            "UPDATE effects SET status = ? WHERE key = ? AND status = ?",
            [(Status.SETTLED, key, Status.RUNNING) for key in sorted(self._ended)],
        )
        self._ended.clear()
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")

    def commit_at_times(self) -> None:
        """Commit if the last commit was some time ago: a crash only repeats what lies behind it."""
        if time.monotonic() - self._committed_s >= _COMMIT_S:
            self.commit()

    def take(self, rows: Iterable[tuple[str, bytes | None]]) -> None:
        """Take rows of the state, by their keys; None for one that is gone."""
        for key, row in rows:
            if row is None:
                self._ended.discard(key)
                self._connection.execute("DELETE FROM effects WHERE key = ?", (key,))
            else:
                self._take_row(key, row, decode_waiting_effect(row))

    def _take_row(self, key: str, row: bytes, effect: WaitingEffect) -> None:
        status = Status.READY
        if effect.state == "dead":
            status = Status.DEAD
        elif effect.state == "begun":
            status = Status.BEGUN if effect.error == self._claim else Status.LOST
        # Nearly all are new, and a look before would cost as much as the row.
        fresh = (self._next_seq, key, effect.function, effect.group, status, row)
        self._next_seq += 1
        if self._connection.execute(f"{_INSERT} ON CONFLICT (key) DO NOTHING", fresh).rowcount:
            self._empty.discard(status)
            return
        known, former_row, due_us = self._connection.execute(
            "SELECT status, row, due_us FROM effects WHERE key = ?", (key,)
        ).fetchone()
        former = decode_waiting_effect(former_row)
        if former.round != effect.round:
            self._ended.discard(key)
            self._connection.execute("DELETE FROM effects WHERE key = ?", (key,))
            self._connection.execute(_INSERT, fresh)
        else:
            if effect.state != "waiting":
                due_us = 0
            elif former.nudges != effect.nudges and known == Status.LATER:
                status = Status.RETRY  # an operator asks for a try at once
            else:
                status = Status(known)  # its tries stay
            self._connection.execute(
                "UPDATE effects SET status = ?, due_us = ?, row = ? WHERE key = ?",
                (status, due_us, row, key),
            )
        self._empty.discard(status)

    def next(self, status: Status, function: str) -> Queued | None:
        """Return the next effect of a function, in turns of their owners; None if no effect has this status.

        Args:
            status: `BEGUN`, `READY` or `RETRY`.
        """
        last = self._owners.get((status, function), "")
        turn = " INDEXED BY by_turn WHERE status = ? AND function = ? AND owner > ? ORDER BY owner, seq LIMIT 1"
        queued = self._select(turn, status, function, last)
        if not queued and last:
            queued = self._select(turn, status, function, "")
        if not queued:
            self._owners.pop((status, function), None)
            return None
        self._owners[status, function] = queued[0].owner
        return queued[0]

    def lost(self, most: int) -> list[Queued]:
        """Return effects whose outcome is unknown, and is not in the log yet."""
        return self._select(" WHERE status = ? LIMIT ?", Status.LOST, most)

    def settled(self) -> list[Queued]:
        """Return the effects whose outcome the log has, as an earlier process has noted."""
        return self._select(" WHERE status = ?", Status.SETTLED)

    def call(self, queued: Queued) -> None:
        """Note that an effect is called; the call counts as a try also if this process ends in it."""
        self._connection.execute(
            "UPDATE effects SET status = ?, tries = tries + 1 WHERE key = ?",
            (Status.RUNNING, queued.key),
        )

    def take_back(self, key: str) -> None:
        """Undo `call` for an effect whose function was not called."""
        self._empty.discard(Status.READY)
        self._connection.execute(
            "UPDATE effects SET status = ?, tries = tries - 1 WHERE key = ? AND status = ?",
            (Status.READY, key, Status.RUNNING),
        )

    def put(self, key: str, status: Status) -> None:
        """Set the status of an effect."""
        self._empty.discard(status)
        self._connection.execute("UPDATE effects SET status = ? WHERE key = ?", (status, key))

    def put_later(self, key: str, due_us: int, deaths: int, error: str) -> None:
        """Let an effect wait for its next try."""
        self._next_us = due_us if self._next_us is None else min(self._next_us, due_us)
        self._connection.execute(
            "UPDATE effects SET status = ?, due_us = ?, deaths = ?, error = ? WHERE key = ? AND status = ?",
            (Status.LATER, due_us, deaths, error, key, Status.RUNNING),
        )

    def sent_us(self, queued: Queued) -> int:
        """Return when an effect was sent, by the clock as it goes now: it may have jumped since."""
        steps = (step_us for first_after, step_us in self._steps if queued.seq < first_after)
        return queued.effect.time_us + sum(steps)

    def wake(self, now_us: int) -> int | None:
        """Let the effects that are due be called; return when the next one is due, None if none is."""
        self._follow_clock()
        if self._next_us is None or now_us < self._next_us:
            return self._next_us
        self._empty.discard(Status.RETRY)
        self._connection.execute(
            "UPDATE effects SET status = ? WHERE status = 1 AND due_us <= ?", (Status.RETRY, now_us)
        )
        next_due = self._connection.execute(
            "SELECT min(due_us) FROM effects INDEXED BY by_time WHERE status = 1"
        ).fetchone()
        self._next_us = next_due[0]
        return self._next_us

    def _follow_clock(self) -> None:
        """Let the pauses, and the times since the effects were sent, stay as long as they were if the clock has jumped."""
        if step_us := self._clock.step_us():
            later = "UPDATE effects SET due_us = due_us + ? WHERE status = 1"
            self._connection.execute(later, (step_us,))
            self._steps.append((self._next_seq, step_us))
            self._connection.execute("INSERT INTO steps VALUES (?, ?)", self._steps[-1])
            self._note_clock()
            self._next_us = 0

    def _note_clock(self) -> None:
        """Let the next process on this machine know how the clock goes."""
        self._connection.execute("DELETE FROM clock")
        now = (self._boot, self._clock.ahead_us)
        self._connection.execute("INSERT INTO clock VALUES (?, ?)", now)

    def functions(self, status: Status) -> list[str]:
        """Return the functions that have effects with a status."""
        # A loose scan of the index: as many steps as functions, however many effects wait.
        names: list[str] = []
        last = ""
        if status in self._empty:
            return names
        while True:
            following = self._connection.execute(
                "SELECT function FROM effects INDEXED BY by_turn WHERE status = ? AND function > ?"
                " ORDER BY function LIMIT 1",
                (status, last),
            ).fetchone()
            if following is None:
                if not names:
                    self._empty.add(status)
                return names
            last = following[0]
            names.append(last)

    def counts(self) -> list[Counts]:
        """Return how many effects of each function wait, run and are dead."""
        rows = self._connection.execute(
            "SELECT function, sum(status NOT IN (2, 3)), sum(status = 2), sum(status = 3) FROM effects GROUP BY function"
        )
        return [Counts(*row) for row in rows.fetchall()]

    def close(self) -> None:
        """End the transaction, and close the file."""
        self._note_clock()
        self.commit()
        self._connection.execute("COMMIT")
        self._connection.close()


def _queued(columns: tuple[str, str, bytes, int, int, str, int]) -> Queued:
    key, owner, row, tries, deaths, error, seq = columns
    return Queued(key, owner, row, decode_waiting_effect(row), tries, deaths, error, seq)
