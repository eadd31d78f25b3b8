"""`SqliteLog`: the embedded log, one file that many threads and processes append to and read.

An append is on the disk before it is acknowledged (`database`). Positions have no gaps and are never
reused. Ids stay known for the retention (`request_id_index`). Damage is found and
named (`block`). Callers that append at the same time share one fsync (`GroupCommit`). Readers block no
other process.

It needs a local file system: SQLite's write-ahead log does not work over a network. An object
belongs to the process that opened it; a forked child opens the log again (pickling does that).
"""

import copyreg
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Final, NamedTuple, TypedDict, cast

import msgspec

from penstock.base.ids import ONLY_PARTITION, LogPartition, Lsn, RequestId
from penstock.base.instants import instant_of
from penstock.errors import (
    Corrupt,
    LogUnavailable,
    PenstockError,
    RequestConflict,
    Truncated,
)
from penstock.files.bell import QUIET_S, Bell
from penstock.log import block as blocks
from penstock.log import schedule
from penstock.log.api import Entry, Record, marked
from penstock.log.block import (
    ID_HASH_BYTES,
    Block,
    body_hashes_of,
    id_hashes_of,
    whole_body_hashes_of,
)
from penstock.log.clock import LogTime, no_jump, wall_clock_us
from penstock.log.database import (
    CHECKPOINT_BYTES,
    INSERT_BLOCK,
    LOCK_TIMEOUT_MS,
    Database,
    delete_expired_ids,
    delete_some_blocks,
    end_of,
    newest_append_s,
    start_of,
)
from penstock.log.request_id_index import RequestIdIndex, SeenRequest
from penstock.log.schedule import ScheduledEntry
from penstock.model.request import call_in, check_size, uncancelled_body

GROUP_BYTES: Final = 16_777_216
"""A group takes no further call once its bodies have this many bytes."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """The entries that a caller appends or schedules, and later the outcome."""

    entries: Sequence[Entry]
    id_hashes: list[bytes]
    body_hashes: list[bytes]
    dedup_hashes: list[bytes]  # for each entry, its id hash and its body hash joined
    size: int  # bytes of bodies
    by_whole_bodies: bool = False  # compare and hash as versions up to 0.2.0 did
    due_us: int | None = None  # schedule the only entry instead of appending it
    positions: list[Lsn] | None = None
    failure: PenstockError | None = None
    signal: threading.Event = field(default_factory=threading.Event)

    @property
    def settled(self) -> bool:
        """Whether there is an outcome."""
        return self.positions is not None or self.failure is not None

    def settle(self, outcome: list[Lsn] | PenstockError) -> None:
        """Set the outcome: the positions, or the failure."""
        if isinstance(outcome, PenstockError):
            self.failure = outcome
        else:
            self.positions = outcome

    def outcome(self) -> list[Lsn]:
        """Return the positions, or raise the failure."""
        if self.positions is not None:
            return self.positions
        assert self.failure is not None, "a call is settled before its caller goes on"
        # Each caller gets an exception of its own: the calls of a group share one failure, and a
        # thread that raises an exception writes to it.
        raise type(self.failure)(str(self.failure)) from self.failure


def pending_append(
    entries: Sequence[Entry],
    seed: int,
    record_bytes_max: int | None,
    *,
    by_whole_bodies: bool = False,
) -> PendingAppend:
    """Hash the ids and bodies of entries.

    Args:
        record_bytes_max: The longest body; None if a body may have any length.
        by_whole_bodies: Compare and hash as versions up to 0.2.0 did.
    """
    sizes = [len(entry.body) for entry in entries]
    if record_bytes_max is not None and max(sizes, default=0) > record_bytes_max:
        largest = entries[sizes.index(max(sizes))]
        check_size(largest.body, record_bytes_max, str(largest.request_id))
    id_hashes = id_hashes_of([entry.request_id for entry in entries], seed)
    hashes_of = whole_body_hashes_of if by_whole_bodies else body_hashes_of
    body_hashes = hashes_of([entry.body for entry in entries], seed)
    dedup_hashes = list(map(add, id_hashes, body_hashes))
    return PendingAppend(entries, id_hashes, body_hashes, dedup_hashes, sum(sizes), by_whole_bodies)


class GroupCommit:
    """Forms groups of calls. `carry_out` settles each call of a group, or raises for all."""

    def __init__(
        self, carry_out: Callable[[Sequence[PendingAppend]], None], tidy_up: Callable[[], None]
    ) -> None:
        self._carry_out = carry_out
        self._tidy_up = tidy_up
        self._lock = threading.Lock()
        self._waiting: deque[PendingAppend] = deque()
        self._has_leader = False

    def submit(self, call: PendingAppend) -> list[Lsn]:
        """Carry out a call, in this thread or in the leader's, and return its outcome."""
        with self._lock:
            self._waiting.append(call)
            # The first caller that finds no leader carries out all calls that wait: no extra
            # thread, and one fsync for all of them (DeWitt et al., Implementation Techniques for
            # Main Memory Database Systems, 1984, 5.2).
            leads = not self._has_leader
            self._has_leader = True
        if not leads:
            call.signal.wait()
        if not call.settled:  # the signal made this thread the leader
            self._lead()
        return call.outcome()

    def _lead(self) -> None:
        group = self._take_group()
        try:
            self._carry_out(group)
        except PenstockError as failure:
            _fail(group, failure)
        finally:
            # An interrupt of this thread must not leave the other callers waiting.
            _fail(group, LogUnavailable("the append was interrupted before its commit"))
            for call in group:
                call.signal.set()
            try:
                self._tidy_up()
            finally:
                self._hand_over()

    def _take_group(self) -> list[PendingAppend]:
        group: list[PendingAppend] = []
        size = 0
        with self._lock:
            while self._waiting and size <= GROUP_BYTES:
                group.append(self._waiting.popleft())
                size += group[-1].size
        assert group, "the leader's own call is among those that wait"
        return group

    def _hand_over(self) -> None:
        with self._lock:
            if self._waiting:
                # The next caller leads, so that no caller waits for groups that formed after its
                # own.
                self._waiting[0].signal.set()
            else:
                self._has_leader = False


def _fail(group: Sequence[PendingAppend], failure: PenstockError) -> None:
    for call in group:
        if not call.settled:
            call.failure = failure


class Moved(NamedTuple):
    """Entries that were appended outside of a group: their first position, their ids, and their bytes."""

    first: Lsn
    id_hashes: list[bytes]
    size: int

    @property
    def positions(self) -> range:
        """The position of each."""
        return range(self.first, self.first + len(self.id_hashes))


class Deduplicator:
    """Admits the calls of one group, in order; a call as a whole or not at all, and each id once.

    Attributes:
        first, end: The positions [first, end) of the admitted entries.
        dedup_hashes: For each of them, the hashes of its id and body.

    Args:
        known: Those of the group's requests that were appended before, by the hash of their id.
        is_same: Says whether an entry is the same request as one of `known`.
        end: The position of the next entry.
        now_s: Seconds since the Unix epoch.
    """

    def __init__(
        self,
        known: Mapping[bytes, SeenRequest],
        waiting: Mapping[bytes, ScheduledEntry],
        is_same: Callable[[Entry, SeenRequest], bool],
        end: Lsn,
        now_s: int,
    ) -> None:
        self.first = end
        self.end = end
        self.entries: list[Entry] = []
        self.dedup_hashes: list[bytes] = []
        self.fresh: dict[bytes, Lsn] = {}
        self.postponed: list[ScheduledEntry] = []
        self._waiting = dict(waiting)
        self._known = known
        self._is_same = is_same
        self._now_s = now_s

    def outcome(self, call: PendingAppend) -> list[Lsn] | RequestConflict:
        """Admit a call; return what `admit` returns, or the conflict that it raises."""
        try:
            return self.admit(call)
        except RequestConflict as conflict:
            return conflict

    def admit(self, call: PendingAppend) -> list[Lsn]:
        """Return the position of each entry of a call; nothing for an entry to schedule.

        Raises:
            RequestConflict: An id is known with another call, or an entry to append is scheduled;
                nothing of the call is admitted.
        """
        if call.due_us is not None:
            self._postpone(call, call.due_us)
            return []
        if self._waiting:
            self._refuse_waiting(call)
        positions = self._admit_all_new(call)
        if positions is None:
            positions = self._admit_one_by_one(call)
        assert self.end - self.first == len(self.entries), "positions have no gaps"
        return positions

    def _admit_all_new(self, call: PendingAppend) -> list[Lsn] | None:
        """Admit the usual call, which has no known id and no id twice; None for any other."""
        hashes = call.id_hashes
        if not (self._known.keys().isdisjoint(hashes) and self.fresh.keys().isdisjoint(hashes)):
            return None
        positions = cast("list[Lsn]", [*range(self.end, self.end + len(hashes))])
        fresh = dict(zip(hashes, positions, strict=True))
        if len(fresh) < len(hashes):
            return None
        self._take(list(call.entries), call.dedup_hashes, fresh)
        return positions

    def _admit_one_by_one(self, call: PendingAppend) -> list[Lsn]:
        positions: list[Lsn] = []
        entries: list[Entry] = []
        dedup_hashes: list[bytes] = []
        fresh: dict[bytes, SeenRequest] = {}
        for entry, id_hash, body in zip(
            call.entries, call.id_hashes, call.body_hashes, strict=True
        ):
            # The first append of an id wins, also inside one call; `fresh` is added only when the
            # whole call is admitted.
            seen = self._seen(id_hash) or fresh.get(id_hash)
            if seen is None:
                seen = SeenRequest(Lsn(self.end + len(entries)), body, self._now_s)
                fresh[id_hash] = seen
                entries.append(entry)
                dedup_hashes.append(id_hash + body)
            elif seen.body_hash != body and not self._repeats(call, entry, seen):
                raise _conflict(entry, seen)
            positions.append(seen.lsn)
        self._take(entries, dedup_hashes, {id_hash: seen.lsn for id_hash, seen in fresh.items()})
        return positions

    def _repeats(self, call: PendingAppend, entry: Entry, seen: SeenRequest) -> bool:
        """Say whether an entry is a request that was appended before this group, although their hashes differ."""
        return not call.by_whole_bodies and seen.lsn < self.first and self._is_same(entry, seen)

    def _seen(self, id_hash: bytes) -> SeenRequest | None:
        """Return the first append of a request, before this group or in it."""
        lsn = self.fresh.get(id_hash)
        if lsn is None:
            return self._known.get(id_hash)
        return SeenRequest(lsn, self.dedup_hashes[lsn - self.first][ID_HASH_BYTES:], self._now_s)

    def _postpone(self, call: PendingAppend, due_us: int) -> None:
        (entry,), (id_hash,), (body,) = call.entries, call.id_hashes, call.body_hashes
        seen = self._seen(id_hash)
        waiting = self._waiting.get(id_hash)
        if seen is not None:
            if seen.body_hash != body and not self._repeats(call, entry, seen):
                raise _conflict(entry, seen)
        elif waiting is None:
            # An id is appended or scheduled, never both, so later calls of the group must see it.
            self._waiting[id_hash] = ScheduledEntry(due_us, id_hash, entry)
            self.postponed.append(self._waiting[id_hash])
        elif waiting.entry.body != entry.body and (
            call.by_whole_bodies or call_in(waiting.entry.body) != call_in(entry.body)
        ):
            raise RequestConflict(
                f"request {entry.request_id!r} was scheduled before, with another body"
            )

    def _refuse_waiting(self, call: PendingAppend) -> None:
        for entry, id_hash in zip(call.entries, call.id_hashes, strict=True):
            if id_hash in self._waiting:
                raise RequestConflict(
                    f"request {entry.request_id!r} is scheduled for "
                    f"{instant_of(self._waiting[id_hash].due_us).isoformat()}; it is appended then, "
                    "and not before"
                )

    def _take(
        self, entries: list[Entry], dedup_hashes: list[bytes], fresh: dict[bytes, Lsn]
    ) -> None:
        self.entries += entries
        self.dedup_hashes += dedup_hashes
        self.fresh.update(fresh)
        self.end = Lsn(self.end + len(entries))


def _conflict(entry: Entry, seen: SeenRequest) -> RequestConflict:
    return RequestConflict(
        f"request {entry.request_id!r} was appended before, with another body, at lsn {seen.lsn}"
    )


OVERLAPPING: Final = (
    "FROM block WHERE first < :end AND first >= "
    "(SELECT coalesce(max(first), 0) FROM block WHERE first <= :start) ORDER BY first"
)
"""Selects the blocks that overlap [start, end)."""


def end_of_range(connection: sqlite3.Connection, start: Lsn, end: Lsn, size: int, file: str) -> Lsn:
    """Return the greatest end, up to `end`, of a range from `start`; see `Log.limit`.

    Args:
        start: The first record.
        end: The end that the number of records allows.
        size: The most bytes of bodies.
    """
    reach = start
    rows = connection.execute(f"SELECT * {OVERLAPPING}", {"start": start, "end": end})
    for block in map(Block._make, rows):
        blocks.verify(block, file)
        end = _before_control(block, start, end)
        sizes = blocks.body_sizes_of(block)[max(start - block.first, 0) : end - block.first]
        totals = [total for total in accumulate(sizes) if total <= size]
        reach = Lsn(reach + len(totals))
        if len(totals) < len(sizes) or reach >= end:
            break
        size -= totals[-1]
    return max(reach, min(Lsn(start + 1), end), start)


def controls(connection: sqlite3.Connection, start: Lsn, end: Lsn) -> list[Lsn]:
    """Return the positions of the control records in [start, end); see `Log.controls`."""
    rows = connection.execute(f"SELECT first, shape {OVERLAPPING}", {"start": start, "end": end})
    return [
        lsn
        for first, shape in rows
        for lsn in blocks.controls_of(first, shape)
        if start <= lsn < end
    ]


def _before_control(block: Block, start: Lsn, end: Lsn) -> Lsn:
    """Return the end of a range from `start` that keeps control records apart from others."""
    for lsn in blocks.controls_of(block.first, block.shape):
        if lsn >= start:
            return min(end, Lsn(max(lsn, start + 1)))
    return end


_TRUNCATED_BYTES: Final = 16_777_216
_RECORD_BYTES: Final = 100  # besides the body, roughly
_COMMIT_BYTES: Final = 8_192  # two pages, besides the records
_WAIT_FIRST_S: Final = 0.001
_WAIT_LAST_S: Final = 0.005


class _Settings(TypedDict):
    path: Path
    record_bytes_max: int
    retention_s: int
    lock_timeout_ms: int
    clock_us: Callable[[], int]
    on_jump: Callable[[int], None]


class SqliteLog:
    """A log in one SQLite file of one partition.

    Args:
        path: The file; it is created if it is missing. Its directory also gets `-wal` and `-shm`
            files while the log is in use, and always the `-lock` file of the writers' lock.
        retention_s: How long request ids are remembered, by the log's own time (`clock`).
        lock_timeout_ms: How long to wait for another process's append before giving up.
        clock_us: This machine's clock, in microseconds since the Unix epoch.
        on_jump: Receives the seconds of each jump of this clock that is noticed when the log is used.

    Raises:
        LogUnavailable: The file cannot be opened.
    """

    _follows = False  # whether the file is a copy of a topic, and this object may write to it

    def __init__(
        self,
        path: Path | str,
        *,
        record_bytes_max: int = 1_048_576,
        retention_s: int = 7 * 86_400,
        lock_timeout_ms: int = LOCK_TIMEOUT_MS,
        clock_us: Callable[[], int] = wall_clock_us,
        on_jump: Callable[[int], None] = no_jump,
    ) -> None:
        self.settings: Final = _Settings(
            path=Path(path),
            record_bytes_max=record_bytes_max,
            retention_s=retention_s,
            lock_timeout_ms=lock_timeout_ms,
            clock_us=clock_us,
            on_jump=on_jump,
        )
        self._path = Path(path)
        self._record_bytes_max = record_bytes_max
        self._retention_s = retention_s
        self._database = Database(self._path, lock_timeout_ms, follows=self._follows)
        self._index = RequestIdIndex(str(self._path), retention_s)
        self._index_lock = threading.Lock()
        self._group = GroupCommit(self._commit, self._tidy_up)
        self._appended = Bell((_WAIT_FIRST_S, _WAIT_LAST_S))
        self._told = self._database.mark_path
        self._known = threading.Lock()
        self._known_end = Lsn(0)
        self._bytes_since_checkpoint = 0
        self._schedule_examined = False
        with self._database.closed_on_error(), self._database.using() as connection:
            (self._seed,) = connection.execute("SELECT seed FROM position").fetchone()
            self._time = LogTime(clock_us, newest_append_s(connection), on_jump)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def partitions(self) -> Sequence[LogPartition]:
        """The one partition, number 0."""
        return (ONLY_PARTITION,)

    def append(self, entries: Sequence[Entry], *, limited: bool = True) -> list[Lsn]:
        """Append durably and atomically; return the position of each. See `Log.append`.

        If COMMIT itself fails, the records are almost certainly not in the log, but a crash at that
        moment can make them appear. Appending the same ids again settles it.
        """
        self._check(ONLY_PARTITION)
        return self._group.submit(self._pending(entries, limited=limited)) if entries else []

    def check_writable(self) -> None:
        """Write a page durably. See `Log.check_writable`."""
        self._check(ONLY_PARTITION)
        with self._database.writing() as connection:
            connection.execute("UPDATE position SET start = start")

    def schedule(self, entry: Entry, due_us: int, *, limited: bool = True) -> None:
        """Keep an entry durably until it is due. See `Log.schedule`; shares the fsync of appends."""
        assert -(2**63) <= due_us < 2**63, "a due time takes 64 bits"
        self._check(ONLY_PARTITION)
        (call := self._pending([entry], limited=limited)).due_us = due_us
        self._group.submit(call)

    def scheduled(self, request_id: RequestId) -> int | None:
        """Return when a request is due. See `Log.scheduled`."""
        self._check(ONLY_PARTITION)
        id_hash = blocks.id_hash_of(request_id, self._seed)
        with self._database.using() as connection:
            entry = schedule.find(connection, [id_hash], str(self._path)).get(id_hash)
        return None if entry is None else entry.due_us

    def upcoming(self, count_max: int) -> list[tuple[int, Entry]]:
        """Return the scheduled entries that are due next. See `Log.upcoming`."""
        self._check(ONLY_PARTITION)
        with self._database.using() as connection:
            return schedule.upcoming(connection, count_max, str(self._path))

    def scheduled_ids(self, beginning: str, count_max: int) -> list[RequestId]:
        """Return scheduled ids that begin with a text. See `Log.scheduled_ids`."""
        self._check(ONLY_PARTITION)
        with self._database.using() as connection:
            return schedule.ids(connection, beginning, count_max, str(self._path))

    def promote(self, now_us: int) -> int:
        """Append the entries that are due, and remove them, in one transaction. See `Log.promote`."""
        if not self._any_due(now_us):
            return 0
        promoted = self._promote(
            lambda connection: schedule.take_due(connection, now_us, str(self._path)),
            lambda entry: msgspec.structs.replace(entry, time_us=now_us),
        )
        return len(promoted)

    def _any_due(self, now_us: int) -> bool:
        """Say whether an entry is due; the first look checks the whole schedule."""
        self._check(ONLY_PARTITION)
        with self._database.reading() as connection:
            if not self._schedule_examined:  # damage could make an entry never be due
                schedule.verify(connection, str(self._path))
                self._schedule_examined = True
            return schedule.is_due(connection, now_us)

    def append_scheduled(
        self, request_id: RequestId, now_us: int, mark: Callable[[bytes], bytes] | None = None
    ) -> Lsn | None:
        """Append a scheduled entry now, in one transaction. See `Log.append_scheduled`."""
        self._check(ONLY_PARTITION)
        id_hash = blocks.id_hash_of(request_id, self._seed)
        appended = self._promote(
            lambda connection: schedule.take(connection, id_hash, str(self._path)),
            lambda entry: msgspec.structs.replace(marked(entry, mark), time_us=now_us),
        )
        return Lsn(appended[0]) if appended else None

    def repeat(self, entry: Entry, after: Lsn, mark: Callable[[bytes], bytes] | None = None) -> Lsn:
        """Append a request again, in one transaction. See `Log.repeat`."""
        self._check(ONLY_PARTITION)
        newest: Lsn | None = None

        def take(connection: sqlite3.Connection) -> list[ScheduledEntry]:
            nonlocal newest
            newest = self._newer_attempt(connection, self._pending([entry]), after, self._now_s())
            return [] if newest is not None else [ScheduledEntry(0, b"", entry)]

        appended = self._promote(take, lambda taken: marked(taken, mark))
        return Lsn(appended[0]) if newest is None else newest

    def _newer_attempt(
        self, connection: sqlite3.Connection, attempt: PendingAppend, after: Lsn, now_s: int
    ) -> Lsn | None:
        """Return the newest attempt of a request if it is newer than a position; raises as `repeat`."""
        (entry,), (id_hash,), (body_hash,) = (
            attempt.entries,
            attempt.id_hashes,
            attempt.body_hashes,
        )
        seen = self._index.seen(connection, [id_hash], now_s).get(id_hash)
        if schedule.find(connection, [id_hash], str(self._path)):
            raise RequestConflict(f"request {entry.request_id!r} is scheduled")
        if seen is None:
            return None
        if seen.body_hash != body_hash and (
            attempt.by_whole_bodies or not self._is_same(connection, entry, seen)
        ):
            raise RequestConflict(f"request {entry.request_id!r} has another body")
        return seen.lsn if seen.lsn > after else None

    def _is_same(self, connection: sqlite3.Connection, entry: Entry, seen: SeenRequest) -> bool:
        """Say whether an entry is a request that was appended before, although their hashes differ.

        It is if a version up to 0.2.0 has appended that one: its hash covers the rights of the caller.
        """
        if whole_body_hashes_of([entry.body], self._seed) == [seen.body_hash]:
            return True
        # With other rights than at that time, only the record itself tells the call. After its truncation nothing does, and
        # the repetition is refused: a conflict is safe, a second effect is not. `start` decides, and not the rows: an
        # interrupted truncation leaves some, on one host of many, and all hosts must find the same.
        if seen.lsn < start_of(connection):
            return False
        (held,) = self._held_blocks(connection, seen.lsn, Lsn(seen.lsn + 1))
        body = uncancelled_body(blocks.records_of([held])[seen.lsn - held.first].body)
        return whole_body_hashes_of([body], self._seed) == [seen.body_hash] and call_in(
            body
        ) == call_in(entry.body)

    def _promote(
        self,
        take: Callable[[sqlite3.Connection], list[ScheduledEntry]],
        promoted: Callable[[Entry], Entry],
    ) -> range:
        """Append `promoted(entry)` for each entry that `take` removes; return the positions."""
        now_s = self._now_s()
        with self._index_lock:
            with self._database.writing() as connection:
                self._index.refresh(connection, end_of(connection), now_s)
                moved = self._move(connection, take(connection), promoted, now_s)
            self._index.learn(moved.id_hashes, moved.first, now_s)
        self._appended_up_to(Lsn(moved.positions.stop), len(moved.positions), moved.size)
        self._tidy_up()
        return moved.positions

    def _move(
        self,
        connection: sqlite3.Connection,
        taken: Sequence[ScheduledEntry],
        promoted: Callable[[Entry], Entry],
        now_s: int,
        *,
        by_whole_bodies: bool = False,
    ) -> Moved:
        """Append `promoted(entry)` for each entry taken, within a transaction; the caller lets the index learn the ids.

        Each id stays that of the scheduled body. An entry is appended even if the index knows its
        id: a clock that was set back may have made an expired id valid again.
        """
        entries = [scheduled.entry for scheduled in taken]
        call = pending_append(entries, self._seed, None, by_whole_bodies=by_whole_bodies)
        end = end_of(connection)
        packed = blocks.pack(end, list(map(promoted, entries)), call.dedup_hashes, now_s)
        connection.executemany(INSERT_BLOCK, packed)
        return Moved(end, call.id_hashes, call.size)

    def _pending(self, entries: Sequence[Entry], *, limited: bool = False) -> PendingAppend:
        return pending_append(entries, self._seed, self._record_bytes_max if limited else None)

    def start(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the oldest position still held. See `Log.start`."""
        self._check(partition)
        with self._database.using() as connection:
            return start_of(connection)

    def end(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the position after the newest durable record."""
        self._check(partition)
        with self._database.using() as connection:
            return end_of(connection)

    def wait(self, after: Lsn, timeout_ms: int, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Block until `end` exceeds `after` or the time is up; return `end`.

        Appends of this process wake it at once. Of those of other processes Linux tells. Where it does not, this asks
        SQLite whether the file has changed, which takes microseconds, every 1 ms at first and 5 ms later.
        """
        self._check(partition)
        deadline = time.monotonic() + timeout_ms / 1000
        bell, pause_s = self._appended, _WAIT_FIRST_S
        version_seen: int | None = None
        end = Lsn(0)
        while True:
            heard = bell.rings  # a ring after the look ends the pause at once
            with self._database.using() as connection:
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                if version != version_seen or self._known_end > after:
                    end, version_seen = end_of(connection), version
            left_s = deadline - time.monotonic()
            # The connection is free while this thread sleeps: `close` waits for it.
            if end > after or left_s <= 0:
                return end
            if not bell.is_watched and bell.can_be_watched and bell.watch_write(self._told):
                continue  # with another look: of a write before the watch nobody tells
            bell.wait(heard, min(QUIET_S if bell.is_watched else pause_s, left_s))
            pause_s = min(pause_s * 2, _WAIT_LAST_S)

    def read(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[Record]:
        """Return the records of [start, end), in order, checksums verified. See `Log.read`."""
        held = self._blocks(start, end, partition)
        records = blocks.records_of(held)
        return records[start - held[0].first : end - held[0].first] if held else []

    def hints(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[bytes]:
        """Return the hints of the records of [start, end), in order."""
        held = self._blocks(start, end, partition)
        hints = blocks.hints_of(held)
        return hints[start - held[0].first : end - held[0].first] if held else []

    def find(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return where a request id was first appended. See `Log.find`."""
        self._check(ONLY_PARTITION)
        id_hash = blocks.id_hash_of(request_id, self._seed)
        with self._index_lock, self._database.reading() as connection:
            now_s = self._now_s()
            self._index.refresh(connection, end_of(connection), now_s)
            seen = self._index.seen(connection, [id_hash], now_s).get(id_hash)
        return None if seen is None else (ONLY_PARTITION, seen.lsn)

    def limit(self, start: Lsn, records: int, size: int) -> Lsn:
        """Return the end of a range with limited records and bytes. See `Log.limit`."""
        self._check(ONLY_PARTITION)
        with self._database.reading() as connection:
            end = Lsn(min(end_of(connection), start + max(records, 1)))
            self._check_held(start, start_of(connection))
            return end_of_range(connection, start, end, size, str(self._path))

    def controls(self, start: Lsn, end: Lsn) -> list[Lsn]:
        """Return the positions of the control records in a range. See `Log.controls`."""
        self._check(ONLY_PARTITION)
        with self._database.reading() as connection:
            return controls(connection, max(start, start_of(connection)), end)

    def checksum(self, lsn: Lsn) -> str:
        """Return nothing: the high-water mark of the file finds what is lost. See `Log.checksum`."""
        self._check(ONLY_PARTITION)
        return ""

    def truncate(self, before: Lsn, partition: LogPartition = ONLY_PARTITION) -> None:
        """Forget records below `before`; their request ids stay known for their retention.

        A position above `end` counts as `end`. Space is reused, the file does not shrink. Rows are
        deleted in small transactions, so that appends need not wait long.
        """
        self._check(partition)
        with self._database.writing() as connection:
            before = self._move_start(connection, before, self._now_s())
        self._delete_blocks(before)

    def _move_start(self, connection: sqlite3.Connection, before: Lsn, now_s: int) -> Lsn:
        """Let the log begin at a position, within a transaction; return the start. `_delete_blocks` frees the space."""
        start = start_of(connection)
        before = max(min(before, end_of(connection)), start)
        if before > start:
            connection.execute("UPDATE position SET start = ?", (before,))
            delete_expired_ids(connection, now_s - self._retention_s)
        return before

    def _delete_blocks(self, before: Lsn) -> None:
        # This also deletes the rows that an interrupted truncation left.
        deleted = True
        while deleted:
            with self._database.writing() as connection:
                deleted = delete_some_blocks(connection, before, _TRUNCATED_BYTES) > 0
            if deleted:
                self._database.checkpoint()

    def close(self) -> None:
        """Release everything; append and read raise `LogUnavailable` afterwards."""
        self._database.close()
        self._appended.ring()

    def _check(self, partition: LogPartition) -> None:
        if partition != ONLY_PARTITION:
            raise LogUnavailable(f"{self._path}: there is no partition {partition}")
        self._database.check_usable()

    def _check_held(self, start: Lsn, oldest: Lsn) -> None:
        if start < oldest:
            raise Truncated(f"{self._path}: {start} was asked for, {oldest} is the oldest held")

    @property
    def clock_jumps(self) -> int:
        """How often this machine's clock has jumped while this process used the log."""
        return self._time.jumps

    def _now_s(self) -> int:
        return self._time.now_s()

    def _blocks(self, start: Lsn, end: Lsn, partition: LogPartition) -> list[Block]:
        """Return the verified blocks that hold all of [start, end)."""
        self._check(partition)
        if start >= end:
            return []
        with self._database.reading() as connection:
            return self._held_blocks(connection, start, end)

    def _held_blocks(self, connection: sqlite3.Connection, start: Lsn, end: Lsn) -> list[Block]:
        self._check_held(start, start_of(connection))
        wanted = {"start": start, "end": end}
        rows = connection.execute(f"SELECT * {OVERLAPPING}", wanted).fetchall()
        held = [Block._make(row) for row in rows]
        reach = start
        for block in held:
            if block.first > reach or block.end <= reach:
                break
            blocks.verify(block, str(self._path))
            reach = block.end
        if reach < end:
            raise Corrupt(f"{self._path}: no record at lsn {reach}; [{start}, {end}) was asked for")
        return held

    def _commit(self, group: Sequence[PendingAppend]) -> None:
        """Append a group in one transaction and settle every call of it, or raise for all."""
        now_s = self._now_s()
        with self._index_lock:
            with self._database.writing() as connection:
                end = end_of(connection)
                self._index.refresh(connection, end, now_s)
                admitted, outcomes = self._admit(connection, group, end, now_s)
            # Only after the commit: an id of a transaction that was undone must not count as known.
            self._index.learn(list(admitted.fresh), admitted.first, now_s)
        for call, outcome in zip(group, outcomes, strict=True):
            call.settle(outcome)
        records, size = sum(len(call.entries) for call in group), sum(call.size for call in group)
        self._appended_up_to(admitted.end, records, size)

    def _admit(
        self, connection: sqlite3.Connection, group: Sequence[PendingAppend], end: Lsn, now_s: int
    ) -> tuple[Deduplicator, list[list[Lsn] | RequestConflict]]:
        """Append and schedule a group within a transaction, from `end` on; return also the outcome of each call.

        The index knows all ids up to the end, and the caller lets it learn those of the group.
        """
        id_hashes = [id_hash for call in group for id_hash in call.id_hashes]
        admitted = Deduplicator(
            self._index.seen(connection, id_hashes, now_s),
            schedule.find(connection, id_hashes, str(self._path)),
            partial(self._is_same, connection),
            end,
            now_s,
        )
        outcomes = [admitted.outcome(call) for call in group]
        packed = blocks.pack(admitted.first, admitted.entries, admitted.dedup_hashes, now_s)
        connection.executemany(INSERT_BLOCK, packed)
        schedule.add(connection, admitted.postponed)
        return admitted, outcomes

    def _appended_up_to(self, end: Lsn, records: int, size: int) -> None:
        with self._known:
            self._bytes_since_checkpoint += _COMMIT_BYTES + _RECORD_BYTES * records + size
            self._known_end = max(end, self._known_end)
        self._appended.ring()

    def _tidy_up(self) -> None:
        """Checkpoint when due, after the group was acknowledged.

        If there is no space or the lock is not free, the next append tries again. The acknowledged
        records are safe in the write-ahead log meanwhile.
        """
        if self._database.closed or self._bytes_since_checkpoint < CHECKPOINT_BYTES:
            return
        with suppress(LogUnavailable):
            self._database.checkpoint()
            self._bytes_since_checkpoint = 0


def _reduce(log: SqliteLog) -> tuple[Callable[[_Settings], SqliteLog], tuple[_Settings]]:
    return _reopen, (log.settings,)


def _reopen(settings: _Settings) -> SqliteLog:
    return SqliteLog(**settings)


# Unpickling a log opens the file again, in the process that unpickles it.
copyreg.pickle(SqliteLog, _reduce)
