"""The log: each request is appended here, becomes durable, and gets its place in the order.

This module defines the port. `sqlite` and `kafka` are its adapters; they pass one conformance suite.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from penstock.base.ids import ONLY_PARTITION, LogPartition, Lsn, RequestId

PROMOTED_MAX: Final = 1_000
"""The most scheduled entries that a call of `promote` appends."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A request that a caller appends.

    Attributes:
        request_id: The request's id.
        body: The encoded request, of which the log knows the call only (`model.request.call_in`): two bodies with one id are
            the same request if their calls are equal.
        hint: One little-endian 64-bit fingerprint for each entity that the request is known to
            touch before it runs: its root and the references in its arguments.
        time_us: When it was appended, in microseconds since the Unix epoch; `penstock.now()`
            returns it.
        is_control: Whether `limit` keeps it apart from other records: a control record, or one that continues a
            cascade.
    """

    request_id: RequestId
    body: bytes
    hint: bytes
    time_us: int
    is_control: bool = False


def marked(entry: Entry, mark: Callable[[bytes], bytes] | None) -> Entry:
    """Return an entry with the body that `mark` returns for its body; None: the entry itself."""
    if mark is None:
        return entry
    return msgspec.structs.replace(entry, body=mark(entry.body), hint=b"")


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A durable entry with its position."""

    lsn: Lsn
    request_id: RequestId
    body: bytes
    time_us: int


class Log(Protocol):
    """Durable, ordered, deduplicating sequence of records; safe for many processes and threads.

    Positions count from 0 without gaps in each partition. A failed append leaves no trace.
    """

    @property
    def partitions(self) -> Sequence[LogPartition]:
        """The partitions, in order. Embedded logs have one, number 0."""

    def append(self, entries: Sequence[Entry], *, limited: bool = True) -> list[Lsn]:
        """Append durably (fsync before return) and atomically; return the position of each.

        If a request id is known with the same call and has not expired, its entry gets the position
        of the first append, and is not appended. Concurrent calls of several threads share one fsync.

        Args:
            limited: Refuse a body that exceeds the limit. A record that a committed epoch appends may have any size.

        Raises:
            RequestConflict: An id is known with another call, or is scheduled with any call and
                will be appended when it is due; nothing of this call is appended.
            RecordTooLarge: A body exceeds the limit; nothing of this call is appended.
            LogUnavailable: The disk is full or fails, or the log is closed; nothing is acknowledged.
        """

    def check_writable(self) -> None:
        """Write durably, without an append, to learn whether an append would succeed.

        Raises:
            LogUnavailable: The disk is full or fails, or the log is closed.
        """

    def schedule(self, entry: Entry, due_us: int, *, limited: bool = True) -> None:
        """Keep an entry durably (fsync before return) until `promote` appends it.

        `due_us` is in microseconds since the Unix epoch, below 2**63. If the request id is known with
        the same call, in the log or as scheduled, the entry is not added, and the first due time
        stays. The id is taken from now on; its retention counts from when the entry is appended.
        `limited` is as for `append`; `promote` and `append_scheduled` refuse no size.

        Raises:
            RequestConflict: The id is known with another call.
            RecordTooLarge: The body exceeds the limit.
            LogUnavailable: See `append`.
        """

    def scheduled(self, request_id: RequestId) -> int | None:
        """Return when a request is due, in microseconds; None if it is not scheduled any more."""

    def upcoming(self, count_max: int) -> list[tuple[int, Entry]]:
        """Return the scheduled entries that are due next, with their due times in microseconds.

        They are in the order in which `promote` appends them, and at most `count_max`.

        Raises:
            Corrupt: One of them is damaged.
        """

    def scheduled_ids(self, beginning: str, count_max: int) -> list[RequestId]:
        """Return the ids of scheduled entries that begin with a text, sorted, and at most `count_max`.

        Raises:
            Corrupt: A scheduled entry is damaged.
        """

    def promote(self, now_us: int) -> int:
        """Append the entries that are due at `now_us`, at most `PROMOTED_MAX`; return how many.

        They are appended in the order of their due times, and entries with equal due times in the
        order of scheduling, each with `time_us = now_us`. The same transaction removes them from the
        schedule, so each is appended exactly once, also if several processes call this, or die. If
        no entry is due, nothing is written.

        Raises:
            Corrupt: A scheduled entry is damaged.
            LogUnavailable: See `append`; no entry was moved, and the next call tries again.
        """

    def append_scheduled(
        self, request_id: RequestId, now_us: int, mark: Callable[[bytes], bytes] | None = None
    ) -> Lsn | None:
        """Append a scheduled entry now, whenever it is due: because it may go on, or because it was cancelled.

        One transaction removes the entry from the schedule and appends it, so only one of this call and `promote`
        appends it. Its id stays the id of the first body: an append or a schedule with that call is a repetition.

        Args:
            mark: Returns the body to append for the scheduled body; the record has no hint. None: the entry as it is.

        Returns:
            The position of the record, which is durable; None if the request is not scheduled, or
            not any more.

        Raises:
            Corrupt: The scheduled entry is damaged.
            LogUnavailable: See `append`; call again to learn whether the entry was appended.
        """

    def repeat(self, entry: Entry, after: Lsn, mark: Callable[[bytes], bytes] | None = None) -> Lsn:
        """Append a request again, as the next attempt of its id, and return the position.

        If the id has a newer position than `after`, the newer position is returned and nothing is appended: of several
        callers that have seen the same attempt, only the first appends. The id stays the id of the first body, and its retention begins again.

        Args:
            entry: The request, with the body of its first append.
            after: The position of its newest attempt.
            mark: Returns the body to append for the body of the request; None: the same body.

        Raises:
            RequestConflict: The id has another call, or is scheduled.
            LogUnavailable: See `append`.
        """

    def start(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the oldest position still held; equal to `end` if no record is."""

    def end(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the position after the newest durable record."""

    def wait(self, after: Lsn, timeout_ms: int, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Block until `end` exceeds `after` or the time is up; return `end`."""

    def read(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[Record]:
        """Return the records of [start, end), in order, checksums verified.

        Raises:
            Truncated: `start` is before the oldest position held.
            Corrupt: A record's checksum does not fit, or positions in the range are missing.
        """

    def hints(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[bytes]:
        """Return the hints of the records of [start, end), in order."""

    def find(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return where a request id was appended last; None after its retention."""

    def limit(self, start: Lsn, records: int, size: int) -> Lsn:
        """Return the greatest end with at most `records` records and `size` body bytes from `start`.

        The range has at least one record if there is one, also if its body is larger. An entry with `is_control`
        is a range of its own: a range ends before it, or consists of it.

        Raises:
            Truncated: `start` is before the oldest position held.
        """

    def controls(self, start: Lsn, end: Lsn) -> list[Lsn]:
        """Return the positions of the entries with `is_control` in [start, end), in order.

        Positions that the log does not hold have none.
        """

    def checksum(self, lsn: Lsn) -> str:
        """Return the checksum of a record, which the commit of its epoch notes; empty if there is none to compare.

        The next driver compares it, so a log outside of the data directory that has lost its end is found.

        Raises:
            Diverged: The log ends before the record.
        """

    def truncate(self, before: Lsn, partition: LogPartition = ONLY_PARTITION) -> None:
        """Forget records below `before`; their request ids stay known for their retention."""

    def close(self) -> None:
        """Release everything; append and read raise `LogUnavailable` afterwards."""
