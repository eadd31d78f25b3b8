"""`KafkaLog`: the log of many hosts. A topic orders their writes, and each host carries them out on a copy of its own.

A write is an *order*: to append, to schedule, to promote, and so on. A process sends it to the topic as a message, and waits
until this host has carried it out. Each host reads the topic and carries out one order after the other, by the code of
the embedded log, in one transaction with the place that it has reached. The effect of an order depends on the orders
before it alone: its time stands in it. So all copies are equal, with the same position for each record and the same first
append for each id (Schneider, *Implementing Fault-Tolerant Services Using the State Machine Approach*, 1990).

Whoever reads a log reads a file of its host. One process of a host reads the topic for all (`Follower`). An order may be
carried out twice without harm, so an unclear answer of a broker needs no care: the same request is sent again.

A copy is worth nothing: another one is made from the topic. It is not synced, and it is the topic that makes an append durable.
"""

import copyreg
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
import xxhash

from penstock.base.ids import ONLY_PARTITION, LogPartition, Lsn, RequestId
from penstock.errors import (
    ConfigError,
    Corrupt,
    Diverged,
    LogUnavailable,
    OperationalError,
    PenstockError,
    RequestConflict,
)
from penstock.files.lock import Claimed, claim
from penstock.log import block as blocks
from penstock.log import schedule
from penstock.log.api import Entry, Record, marked
from penstock.log.clock import STEP_MAX_S, no_jump, wall_clock_us
from penstock.log.database import (
    LOCK_TIMEOUT_MS,
    end_of,
    sqlite_errors_translated,
    start_of,
)
from penstock.log.kafka_config import KafkaConfig, TopicPlace
from penstock.log.request_id_index import RequestIdIndex
from penstock.log.schedule import ScheduledEntry
from penstock.log.sqlite import PendingAppend, SqliteLog, pending_append
from penstock.log.topic import Topic

_log = logging.getLogger(__name__)

T = TypeVar("T")

_NAME: Final = b"penstock"
"""The beginning of each message. The number of its format follows, in one byte."""

_FORMAT: Final = b"\x02"
_BY_WHOLE_BODIES: Final = b"\x01"
"""The format of versions up to 0.2.0, which compare repeated requests by whole bodies, with the rights of the caller.

An order is carried out in the same way for ever, so that a copy which is made from the topic is equal to one that such a
version has made. A host with such a version stops at the first newer message.
"""

_FORMATS: Final = frozenset({_BY_WHOLE_BODIES, _FORMAT})

_PIECE_OVERHEAD: Final = 128
"""Bytes of a message besides its piece of an order, at most."""

REMEMBERED_MESSAGES: Final = 65_536
"""Outcomes, and pieces of incomplete orders, are kept for so many messages."""

_WAIT_FIRST_S: Final = 0.0005
_WAIT_LAST_S: Final = 0.005
_ASK_S: Final = 0.02
"""A process that reads the topic itself asks SQLite this seldom for what another one may have carried out."""

_GIVE_WAY_S: Final = 2.0
"""A process that has sent no order for so long lets others read the topic: one that sends waits for what is read."""

_REST_S: Final = 60.0
"""The same while no message comes at all: each turn costs three questions to a broker, and nobody waits for it."""

_RETRY_S: Final = 1.0
"""Between two attempts to reach the brokers for the first time."""

_PAUSE_S: Final = 0.02
_LONG_PAUSE_S: Final = 0.5


class Call(msgspec.Struct, frozen=True, array_like=True):
    """The entries that a caller appends, all or none; with `due_us`, the only entry is scheduled instead."""

    entries: list[Entry]
    due_us: int | None


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """The calls that one process has taken together."""

    calls: list[Call]


class Promote(msgspec.Struct, frozen=True, array_like=True, tag="promote"):
    """`Log.promote`."""

    now_us: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """`Log.append_scheduled`. `digest` is that of the body that waits; `body` replaces it, None does not."""

    request_id: RequestId
    digest: bytes
    body: bytes | None
    now_us: int


class Repeat(msgspec.Struct, frozen=True, array_like=True, tag="repeat"):
    """`Log.repeat`. `body` replaces that of the entry; None does not."""

    entry: Entry
    after: Lsn
    body: bytes | None


class Truncate(msgspec.Struct, frozen=True, array_like=True, tag="truncate"):
    """`Log.truncate`."""

    before: Lsn


class Probe(msgspec.Struct, frozen=True, array_like=True, tag="probe"):
    """Nothing: it shows that the topic takes orders, and to whom it belongs."""


Order = Append | Promote | Release | Repeat | Truncate | Probe

Outcome = list[list[tuple[int, int]] | str]
"""For each call of an order its positions, as first positions and counts, or the conflict."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A message: an order, or a part of one that is too long for a message.

    Attributes:
        log: The identity of the log that it belongs to.
        writer: Names the process that has sent it.
        number: Counts the orders of this process.
        part: Counts the pieces of this order.
        time_s: The log's own time for the sender.
    """

    log: bytes
    writer: bytes
    number: int
    part: int
    parts: int
    time_s: int
    data: bytes


class Reached(NamedTuple):
    """How far a copy has read its topic.

    Attributes:
        log: The identity of the log; empty before the first message.
        next: The offset of the next message.
        time_s: The log's own time of the last order.
        digest: The digest of the last message; empty if none was read since the copy was made.
    """

    log: bytes
    next: int
    time_s: int
    digest: bytes


class _Sent(NamedTuple):
    """A complete order, with the place after its last message.

    Attributes:
        by_whole_bodies: Whether a version up to 0.2.0 has sent it.
    """

    by_whole_bodies: bool
    next: int
    writer: bytes
    number: int
    time_s: int
    order: Order


_ENCODER: Final = msgspec.msgpack.Encoder()
_ORDER: Final = msgspec.msgpack.Decoder(Order)
_PIECE: Final = msgspec.msgpack.Decoder(Piece)
_OUTCOME: Final = msgspec.msgpack.Decoder(Outcome)


class Following(NamedTuple):
    """What a process needs to write to a log in Kafka, and to read further than its host has.

    Attributes:
        topic_id: The id of the topic when the log began.
        log: The identity of the log, in each of its messages.
        least_s: The seconds for which the topic must keep its messages.
    """

    place: TopicPlace
    config: KafkaConfig
    topic_id: str
    log: bytes
    least_s: int


class KafkaLog(SqliteLog):
    """A log whose writes a topic orders. Other arguments are those of `SqliteLog`.

    Args:
        path: The copy of this host, which `new_copy` has made.
        following: The topic; None for a process that only reads what its host has.
    """

    _follows = True

    def __init__(
        self,
        path: Path | str,
        following: Following | None,
        *,
        record_bytes_max: int = 1_048_576,
        retention_s: int = 7 * 86_400,
        clock_us: Callable[[], int] = wall_clock_us,
        on_jump: Callable[[int], None] = no_jump,
    ) -> None:
        super().__init__(
            path,
            record_bytes_max=record_bytes_max,
            retention_s=retention_s,
            lock_timeout_ms=LOCK_TIMEOUT_MS,
            clock_us=clock_us,
            on_jump=on_jump,
        )
        self.following: Final = following
        self._writer = secrets.token_bytes(8)
        self._number = 0
        # Outcomes of orders for which this process waits; None until it has carried one out itself.
        self._own: dict[int, Outcome | None] = {}
        self._opening = threading.Lock()
        self._unreachable: LogUnavailable | None = None
        self._next_try_s = 0.0
        self._topic: Topic | None = None
        self._follower: Follower | None = None

    def connect(self) -> None:
        """Check that the topic is that of the log, and begin to follow it.

        Raises:
            ConfigError: Credentials or settings are wrong.
            Diverged: The topic is not the one that the log began in, or has lost messages.
            LogUnavailable: No broker answers.
        """
        self._connected()

    def check_writable(self) -> None:
        """Send an order that does nothing. See `Log.check_writable`."""
        self._check(ONLY_PARTITION)
        self._send(Probe())

    def promote(self, now_us: int) -> int:
        """Order that entries that are due are appended. See `Log.promote`."""
        if not self._any_due(now_us):
            return 0
        return len(_positions(self._send(Promote(now_us))[0]))

    def append_scheduled(
        self, request_id: RequestId, now_us: int, mark: Callable[[bytes], bytes] | None = None
    ) -> Lsn | None:
        """Order that a scheduled entry is appended now. See `Log.append_scheduled`."""
        waiting = self._strictly(lambda: self._waiting(request_id))
        if waiting is None:
            return None
        body = None if mark is None else mark(waiting.body)
        order = Release(request_id, _digest_of(waiting.body), body, now_us)
        return next(iter(_positions(self._send(order)[0])), None)

    def repeat(self, entry: Entry, after: Lsn, mark: Callable[[bytes], bytes] | None = None) -> Lsn:
        """Order that a request is appended again. See `Log.repeat`."""
        self._check(ONLY_PARTITION)
        order = Repeat(entry, after, None if mark is None else mark(entry.body))
        (position,) = _positions(self._send(order)[0])
        return position

    def truncate(self, before: Lsn, partition: LogPartition = ONLY_PARTITION) -> None:
        """Order that records are forgotten, on all hosts. See `Log.truncate`."""
        if before > self.start(partition):
            self._send(Truncate(before))

    def checksum(self, lsn: Lsn) -> str:
        """Return the checksum of a record, which is the same on all hosts. See `Log.checksum`."""
        if self.following is not None and lsn >= self.end():
            self._catch_up()
        with self._database.using() as connection:
            row = connection.execute(
                "SELECT first, records, shape FROM block WHERE first <= ? ORDER BY first DESC LIMIT 1",
                (lsn,),
            ).fetchone()
            end = end_of(connection)
        if lsn >= end:
            raise Diverged(
                f"{self._path} ends at {end}, but the journal has read the log up to {lsn + 1}: the topic has lost requests; "
                "restore a backup, or copy log.sqlite from a host that has them"
            )
        is_held = row is not None and lsn < row[0] + row[1]
        return f"{blocks.checksum_at(row[0], row[2], lsn):016x}" if is_held else ""

    def wait(self, after: Lsn, timeout_ms: int, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Block until this host has records behind a position. See `Log.wait`."""
        if self.following is not None:
            self._connected()
        return super().wait(after, timeout_ms, partition)

    def read(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[Record]:
        """Return records, which this host reads from the topic first if it must. See `Log.read`."""
        if self.following is not None and end > self.end(partition):
            self._catch_up()
        return super().read(start, end, partition)

    def scheduled(self, request_id: RequestId) -> int | None:
        """Return when a request is due. See `Log.scheduled`."""
        return self._strictly(lambda: SqliteLog.scheduled(self, request_id))

    def find(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return where a request id was appended last. See `Log.find`."""
        return self._strictly(lambda: SqliteLog.find(self, request_id))

    def close(self) -> None:
        """Release everything. See `Log.close`."""
        with self._opening:
            if self._follower is not None:
                self._follower.stop()
            if self._topic is not None:
                self._topic.close()
            self._follower = self._topic = None
            super().close()

    def reached(self) -> Reached:
        """Return how far this host has read the topic."""
        with self._database.using() as connection:
            return _reached(connection)

    def copy_to(self, path: Path) -> None:
        """Write this host's copy to a new file, from which another host can go on."""
        with (
            sqlite_errors_translated(path),
            closing(sqlite3.connect(path)) as copied,
            self._database.reading() as connection,
        ):
            connection.backup(copied)

    def forget_messages(self, before: int) -> None:
        """Delete the messages of the topic below an offset; the caller keeps a copy that has carried them out."""
        topic, _ = self._connected()
        topic.delete_before(before)

    def _commit(self, group: Sequence[PendingAppend]) -> None:
        """Send a group as one order, and settle every call of it, or raise for all."""
        calls = [Call(list(call.entries), call.due_us) for call in group]
        try:
            outcomes = self._send(Append(calls))
        except ConfigError as error:  # nothing that a caller of the application has done
            raise LogUnavailable(str(error)) from error
        for call, outcome in zip(group, outcomes, strict=True):
            is_conflict = isinstance(outcome, str)
            call.settle(RequestConflict(outcome) if is_conflict else _positions(outcome))

    def _strictly(self, look: Callable[[], T | None]) -> T | None:
        """Return what `look` finds: what this host lacks, it reads from the topic first."""
        seen = look()
        if seen is None and self.following is not None:
            self._catch_up()
            seen = look()
        return seen

    def _waiting(self, request_id: RequestId) -> Entry | None:
        self._check(ONLY_PARTITION)
        id_hash = blocks.id_hash_of(request_id, self._seed)
        with self._database.using() as connection:
            waiting = schedule.find(connection, [id_hash], str(self._path)).get(id_hash)
        return None if waiting is None else waiting.entry

    def _connected(self) -> "tuple[Topic, Follower]":
        with self._opening:
            self._database.check_usable()
            if self._topic is None or self._follower is None:
                self._open()
            assert self._topic is not None, "it is open now"
            assert self._follower is not None, "it is open now"
            self._follower.check()
            return self._topic, self._follower

    def _open(self) -> None:
        if self.following is None:
            raise LogUnavailable(f"{self._path}: the log was opened only to be read")
        if self._unreachable is not None and time.monotonic() < self._next_try_s:
            # To find it out takes seconds, which each request of a gateway would wait behind the others.
            raise LogUnavailable(str(self._unreachable)) from self._unreachable
        topic = Topic(self.following.place, self.following.config)
        try:
            topic.check(self.following.topic_id, self.following.least_s)
        except LogUnavailable as error:
            self._unreachable, self._next_try_s = error, time.monotonic() + _RETRY_S
            raise
        self._topic, self._follower = topic, Follower(self, topic, self.following)
        self._follower.start()

    def _send(self, order: Order) -> Outcome:
        """Send an order, and return its outcome, which this host has carried out.

        Raises:
            LogUnavailable: The brokers did not take it in time; they may still do.
        """
        topic, follower = self._connected()
        with self._opening:
            self._number += 1
            number = self._number
            self._own[number] = None
        sending = topic.send(list(self._messages(order, number, topic.value_bytes_max)))

        asked_s = 0.0

        def outcome() -> Outcome | None:
            nonlocal asked_s
            topic.poll()
            # Another process of this host may have carried it out; where this one reads the topic, that is rare.
            now_s = time.monotonic()
            if asks := not follower.leads or now_s - asked_s >= _ASK_S:
                asked_s = now_s
            carried_out = self._outcome(number, asks=asks)
            if carried_out is None and sending.failure is not None:
                raise topic.failure_of(sending.failure)
            return carried_out

        try:
            return self._awaited(
                topic,
                follower,
                outcome,
                lambda: self._late(topic, follower, is_sent=sending.settled),
            )
        finally:
            with self._known:
                self._own.pop(number, None)

    def _awaited(
        self,
        topic: Topic,
        follower: "Follower",
        look: Callable[[], T | None],
        late: Callable[[], LogUnavailable],
    ) -> T:
        """Return what `look` finds once this host has read it; raise the error that `late` makes when time is up."""
        follower.hurry()
        deadline, pause_s = topic.deadline(), _WAIT_FIRST_S
        heard = self._appended.rings
        while (seen := look()) is None:
            follower.check()
            if time.monotonic() > deadline:
                raise late()
            self._appended.wait(heard, pause_s)  # the connection is free meanwhile
            heard = self._appended.rings
            pause_s = min(pause_s * 1.5, _WAIT_LAST_S)
        return seen

    def _late(self, topic: Topic, follower: "Follower", *, is_sent: bool) -> LogUnavailable:
        if not is_sent:
            return topic.late()
        reason = follower.trouble or f"this host has read {self.reached().next} messages of it"
        return LogUnavailable(
            f"{topic.place} has the requests, but {reason}; the same requests may be sent again"
        )

    def _messages(self, order: Order, number: int, size: int) -> Iterator[bytes]:
        assert self.following is not None, "the topic is open"
        data, time_s = _ENCODER.encode(order), self._now_s()
        step = size - _PIECE_OVERHEAD
        starts = range(0, len(data), step)
        for part, start in enumerate(starts):
            piece = Piece(
                self.following.log,
                self._writer,
                number,
                part,
                len(starts),
                time_s,
                data[start : start + step],
            )
            yield _NAME + _FORMAT + _ENCODER.encode(piece)

    def _outcome(self, number: int, *, asks: bool) -> Outcome | None:
        """Return the outcome of an order; with `asks`, also if another process of this host has carried it out."""
        if (own := self._own.get(number)) is not None or not asks:
            return own
        with self._database.using() as connection:
            row = connection.execute(
                "SELECT data FROM outcome WHERE writer = ? AND number = ?", (self._writer, number)
            ).fetchone()
        return None if row is None else _OUTCOME.decode(row[0])

    def _catch_up(self) -> None:
        """Wait until this host has carried out what the topic has now."""
        topic, follower = self._connected()
        wanted = topic.ends().high

        def late() -> LogUnavailable:
            reason = follower.trouble or "the next look may succeed"
            return LogUnavailable(
                f"{topic.place} has {wanted} messages, of which this host has read {self.reached().next}; {reason}"
            )

        self._awaited(topic, follower, lambda: self.reached().next >= wanted or None, late)

    def carry_out(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Carry out the orders in messages of the topic, with their offsets, in one transaction.

        Messages below the place that the copy has reached are skipped.

        Raises:
            ConfigError: The topic belongs to another log, or a newer version of Penstock has written to it.
        """
        assert self.following is not None, "only a process that follows carries out"
        noted: list[tuple[_Sent, Outcome]] = []
        with self._index_lock:
            try:
                with self._database.writing() as connection:
                    reached = _reached(connection)
                    self._index.refresh(connection, end_of(connection), reached.time_s)
                    run = _Run(self.following, reached, connection)
                    sent = list(run.complete(messages))
                    for (is_append, time_s, _), group in groupby(sent, _alike):
                        if is_append:
                            noted += self._carry_out_appends(connection, list(group), time_s)
                        else:
                            noted += [(each, [self._carry_out(connection, each)]) for each in group]
                    _note_outcomes(connection, noted)
                    run.note()
                    end = end_of(connection)
                    # Where the log begins now, and not what an order asked for: that may be beyond the end of its time.
                    is_shorter = any(isinstance(each.order, Truncate) for each in sent)
                    before = start_of(connection) if is_shorter else None
            except BaseException:
                # It may have learnt ids that were undone.
                self._index = RequestIdIndex(str(self._path), self._retention_s)
                raise
        self._take_own(noted)
        size = sum(len(value) for _, value in messages)
        self._appended_up_to(end, len(messages), size)
        if before is not None:
            self._delete_blocks(before)
        self._tidy_up()

    def _take_own(self, noted: Sequence[tuple[_Sent, Outcome]]) -> None:
        """Keep the outcomes for which a call of this process waits."""
        with self._known:
            for sent, outcome in noted:
                if sent.writer == self._writer and sent.number in self._own:
                    self._own[sent.number] = outcome

    def _carry_out_appends(
        self, connection: sqlite3.Connection, sent: Sequence[_Sent], time_s: int
    ) -> Iterator[tuple[_Sent, Outcome]]:
        """Carry out orders to append of one time and format like those of one process: the outcome of each is the same."""
        calls: list[PendingAppend] = []
        counts: list[int] = []
        for each in sent:
            assert isinstance(each.order, Append), "they were grouped"
            for call in each.order.calls:
                pending = self._pending_of(each, call.entries)
                pending.due_us = call.due_us
                calls.append(pending)
            counts.append(len(each.order.calls))
        admitted, outcomes = self._admit(connection, calls, end_of(connection), time_s)
        self._index.learn(list(admitted.fresh), admitted.first, time_s)
        remaining = iter(outcomes)
        for each, count in zip(sent, counts, strict=True):
            yield (
                each,
                [
                    str(answer) if isinstance(answer, RequestConflict) else _runs(answer)
                    for answer in islice(remaining, count)
                ],
            )

    def _pending_of(self, sent: _Sent, entries: Sequence[Entry]) -> PendingAppend:
        return pending_append(entries, self._seed, None, by_whole_bodies=sent.by_whole_bodies)

    def _carry_out(
        self, connection: sqlite3.Connection, sent: _Sent
    ) -> list[tuple[int, int]] | str:
        """Carry out an order that is not to append."""
        match sent.order:
            case Promote(now_us):
                due = schedule.take_due(connection, now_us, str(self._path))
                return self._moved(connection, due, sent, time_us=now_us)
            case Release() as release:
                taken = self._released(connection, release)
                body, now_us = release.body, release.now_us
                return self._moved(connection, taken, sent, body=body, time_us=now_us)
            case Repeat() as repeat:
                return self._repeated(connection, repeat, sent)
            case Truncate(before):
                self._move_start(connection, before, sent.time_s)
            case Append() | Probe():
                pass
        return []

    def _released(
        self, connection: sqlite3.Connection, release: Release
    ) -> Sequence[ScheduledEntry]:
        """Take the entry that an order means; none if it does not wait any more."""
        id_hash = blocks.id_hash_of(release.request_id, self._seed)
        waiting = schedule.find(connection, [id_hash], str(self._path)).get(id_hash)
        if waiting is None or _digest_of(waiting.entry.body) != release.digest:
            return []
        return schedule.take(connection, id_hash, str(self._path))

    def _repeated(
        self, connection: sqlite3.Connection, repeat: Repeat, sent: _Sent
    ) -> list[tuple[int, int]] | str:
        """Append the next attempt of a request, unless there is a newer one."""
        try:
            attempt = self._pending_of(sent, [repeat.entry])
            newer = self._newer_attempt(connection, attempt, repeat.after, sent.time_s)
        except RequestConflict as conflict:
            return str(conflict)
        if newer is not None:
            return [(newer, 1)]
        taken = [ScheduledEntry(0, b"", repeat.entry)]
        return self._moved(connection, taken, sent, body=repeat.body)

    def _moved(
        self,
        connection: sqlite3.Connection,
        taken: Sequence[ScheduledEntry],
        sent: _Sent,
        *,
        body: bytes | None = None,
        time_us: int | None = None,
    ) -> list[tuple[int, int]]:
        """Append entries, with another body or another time if they are given; return their positions."""

        def promoted(entry: Entry) -> Entry:
            entry = marked(entry, None if body is None else lambda _: body)
            return entry if time_us is None else msgspec.structs.replace(entry, time_us=time_us)

        moved = self._move(
            connection, taken, promoted, sent.time_s, by_whole_bodies=sent.by_whole_bodies
        )
        self._index.learn(moved.id_hashes, moved.first, sent.time_s)
        return [(moved.first, len(moved.positions))]


class _Run:
    """Joins the pieces of orders in one transaction, and notes how far the copy is."""

    def __init__(
        self, following: Following, reached: Reached, connection: sqlite3.Connection
    ) -> None:
        self._following = following
        self._reached = reached
        self._connection = connection

    def complete(self, messages: Sequence[tuple[int, bytes]]) -> Iterator[_Sent]:
        """Yield the orders that end with one of some messages."""
        for offset, value in messages:
            if offset < self._reached.next:
                continue
            piece = self._piece(offset, value)
            following = offset + 1
            data = None if piece is None else self._joined(piece, following)
            time_s = self._reached.time_s
            if piece is not None and data is not None:
                # By at most a step, so that no clock of a host that is wrong forgets an id.
                ahead = piece.time_s - time_s if time_s else 0
                time_s = time_s + min(max(ahead, 0), STEP_MAX_S) if time_s else piece.time_s
                yield _Sent(
                    value.startswith(_NAME + _BY_WHOLE_BODIES),
                    following,
                    piece.writer,
                    piece.number,
                    time_s,
                    self._order(data),
                )
            self._reached = Reached(self._following.log, following, time_s, _digest_of(value))

    def note(self) -> None:
        """Write how far the copy is, and forget what nobody waits for."""
        place = self._reached
        self._connection.execute(
            "UPDATE followed SET log = ?, next = ?, time_s = ?, digest = ?", place
        )
        oldest = (place.next - REMEMBERED_MESSAGES,)
        self._connection.execute("DELETE FROM outcome WHERE next < ?", oldest)
        self._connection.execute("DELETE FROM piece WHERE next < ?", oldest)

    def _piece(self, offset: int, value: bytes) -> Piece | None:
        """Return the content of a message; None if others have put it into the topic."""
        place = self._following.place
        if not value.startswith(_NAME):
            piece = None
        elif value[len(_NAME) : len(_NAME) + 1] not in _FORMATS:
            raise ConfigError(
                f"{place}: a newer version of Penstock has written message {offset}; use it on this host, too"
            )
        else:
            piece = self._decoded(offset, value)
        is_ours = piece is not None and piece.log == self._following.log
        if not is_ours and not self._reached.log:
            raise ConfigError(
                f"{place} holds other messages, or the log of another data directory; name a topic that is empty"
            )
        if not is_ours:
            _log.error("a message of others is in the topic of the log", extra={"offset": offset})
        return piece if is_ours else None

    def _decoded(self, offset: int, value: bytes) -> Piece:
        try:
            piece: Piece = _PIECE.decode(value[len(_NAME) + 1 :])
            return piece
        except msgspec.DecodeError as error:
            raise Corrupt(
                f"{self._following.place}: message {offset} {_DAMAGED} ({error})"
            ) from error

    def _joined(self, piece: Piece, following: int) -> bytes | None:
        """Return the bytes of an order, of which a piece has arrived; None if others are missing."""
        if piece.parts == 1:
            return piece.data
        self._connection.execute(
            "INSERT OR REPLACE INTO piece VALUES (?, ?, ?, ?, ?)",
            (piece.writer, piece.number, piece.part, following, piece.data),
        )
        # What is older counts on no host, whether or not it has been deleted already.
        key = (piece.writer, piece.number, following - REMEMBERED_MESSAGES)
        rows = self._connection.execute(
            "SELECT data FROM piece WHERE writer = ? AND number = ? AND next >= ? ORDER BY part",
            key,
        ).fetchall()
        if len(rows) < piece.parts:
            return None
        self._connection.execute("DELETE FROM piece WHERE writer = ? AND number = ?", key[:2])
        return b"".join(data for (data,) in rows)

    def _order(self, data: bytes) -> Order:
        try:
            order: Order = _ORDER.decode(data)
            return order
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"{self._following.place}: an order is unknown to this version of Penstock ({error}); use the newer "
                "version that has sent it on this host, too"
            ) from error
        except msgspec.DecodeError as error:
            raise Corrupt(f"{self._following.place}: an order {_DAMAGED} ({error})") from error


class Follower:
    """Reads the topic for the processes of a host, of which one does so at a time.

    Attributes:
        trouble: Why the topic cannot be read now; empty if it can.
        leads: Whether this process reads the topic for its host.
    """

    def __init__(self, log: KafkaLog, topic: Topic, following: Following) -> None:
        self._log = log
        self._topic = topic
        self._following = following
        self._lock = log.path.with_name(log.path.name + "-follower")
        self._stopping = threading.Event()
        self._hurried = threading.Event()
        self._sent_s = 0.0
        self._failure: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-follower", daemon=True)
        self.trouble = ""
        self.leads = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; the thread is done when this returns."""
        self._stopping.set()
        self._hurried.set()
        self._thread.join()

    def hurry(self) -> None:
        """Note that this process waits for what it has sent."""
        self._sent_s = time.monotonic()
        self._hurried.set()

    def check(self) -> None:
        """Raise the error after which this process cannot follow any more."""
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                descriptor = claim(self._lock)
            except Claimed:  # another process reads for this host
                self.trouble = ""
                self._pause(_PAUSE_S if self._sends else _LONG_PAUSE_S)
                continue
            try:
                self.leads = True
                self._lead()
            except OperationalError as error:
                self.trouble = str(error)
                self._stopping.wait(_PAUSE_S * 10)
            except Exception as error:  # noqa: BLE001 -- each call of this process tells it
                is_known = isinstance(error, PenstockError)
                self._failure = error if is_known else LogUnavailable(repr(error))  # type: ignore[assignment]
                _log.error("the topic of the log is not followed", extra={"cause": str(error)})
                return
            finally:
                self.leads = False
                os.close(descriptor)
            self._stopping.wait(_PAUSE_S * 2)  # so that a process that waits may read

    @property
    def _sends(self) -> bool:
        return time.monotonic() - self._sent_s < _GIVE_WAY_S

    def _pause(self, seconds: float) -> None:
        self._hurried.wait(seconds)
        if self._hurried.is_set():
            self._hurried.clear()
            self._stopping.wait(_WAIT_LAST_S)

    def _lead(self) -> None:
        """Read and carry out, until another process may want to, or the topic cannot be read."""
        self._begin()
        until, troubles = time.monotonic() + _REST_S, self._topic.troubles
        # After a failure, the topic may not be what it was: `_begin` compares it again.
        while not self._stopping.is_set() and self._topic.troubles == troubles:
            if not self._sends and time.monotonic() > until:
                return
            messages, error = self._topic.consume()
            if messages:
                until = min(until, time.monotonic() + _GIVE_WAY_S)
                self._log.carry_out(messages)
            if error is not None:
                # One of these may know a reason that no retry mends.
                self._topic.check(self._following.topic_id, self._following.least_s)
                self._begin()
                raise error
            self.trouble = ""

    def _begin(self) -> None:
        """Begin to read behind the last message of the copy, which the topic must still have.

        Raises:
            Diverged: The topic has lost messages that this host has carried out, or lacks messages that it needs.
        """
        reached, ends = self._log.reached(), self._topic.ends()
        place, path = self._following.place, self._log.path
        if ends.high < reached.next:
            raise Diverged(
                f"{place} ends at message {ends.high}, but this host has carried out {reached.next}: the topic has lost "
                f"its end; {_GO_ON_ELSEWHERE}"
            )
        if ends.low > reached.next:
            raise Diverged(
                f"{place} begins at message {ends.low}, but this host has read it up to {reached.next}: it was away for too "
                f"long. Stop it and remove {path}, so that the next start takes a newer copy"
            )
        is_checked = bool(reached.digest) and ends.low < reached.next
        self._topic.begin(reached.next - is_checked)
        if is_checked:
            offset, value = self._topic.first()
            if offset != reached.next - 1 or _digest_of(value) != reached.digest:
                raise Diverged(
                    f"{place} has another message {reached.next - 1} than the one that this host has carried out: it has "
                    f"lost messages; {_GO_ON_ELSEWHERE}"
                )


_DAMAGED: Final = (
    "has the head of Penstock's and cannot be read: the topic is damaged, or another program has written to it; stop every "
    "host, penstock backup on one, restore into another directory, and run it with a new topic"
)

_GO_ON_ELSEWHERE: Final = (
    "this host has all of them: stop every host, penstock backup here, penstock restore into another directory, and run "
    "it with a new topic"
)


def _reached(connection: sqlite3.Connection) -> Reached:
    return Reached(*connection.execute("SELECT log, next, time_s, digest FROM followed").fetchone())


def _note_outcomes(connection: sqlite3.Connection, noted: Sequence[tuple[_Sent, Outcome]]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO outcome VALUES (?, ?, ?, ?)",
        [
            (sent.next, sent.writer, sent.number, _ENCODER.encode(outcome))
            for sent, outcome in noted
        ],
    )


def _alike(sent: _Sent) -> tuple[bool, int, bool]:
    """Return the properties that are the same for orders which are carried out together."""
    return isinstance(sent.order, Append), sent.time_s, sent.by_whole_bodies


def _runs(positions: Sequence[Lsn]) -> list[tuple[int, int]]:
    """Return positions as runs of consecutive ones: the first of each, and their number."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and sum(runs[-1]) == position:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((int(position), 1))
    return runs


def _positions(outcome: list[tuple[int, int]] | str) -> list[Lsn]:
    """Return the positions of an outcome; raises the conflict instead."""
    if isinstance(outcome, str):
        raise RequestConflict(outcome)
    return [Lsn(at) for first, count in outcome for at in range(first, first + count)]


def _digest_of(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


def _reduce(log: KafkaLog) -> tuple[object, ...]:
    settings = log.settings
    given = (settings["record_bytes_max"], settings["retention_s"], settings["clock_us"])
    return _reopen, (log.path, log.following, *given, settings["on_jump"])


def _reopen(
    path: Path,
    following: Following | None,
    record_bytes_max: int,
    retention_s: int,
    clock_us: Callable[[], int],
    on_jump: Callable[[int], None],
) -> KafkaLog:
    return KafkaLog(
        path,
        following,
        record_bytes_max=record_bytes_max,
        retention_s=retention_s,
        clock_us=clock_us,
        on_jump=on_jump,
    )


copyreg.pickle(KafkaLog, _reduce)  # type: ignore[arg-type]
