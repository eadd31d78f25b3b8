"""The log: the only way in. Requests are appended here, become durable, and get their order.

This module fixes the port. `memory` and `sqlite` are adapters; both pass one conformance suite.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from penstock.base.ids import ONLY_PARTITION, LogPartition, Lsn, RequestId

PROMOTED_MAX: Final = 1_000
"""Scheduled entries that one call of `promote` appends at most."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What a caller appends.

    `body` is the encoded request, opaque to the log. `touches` holds one little-endian 64-bit
    fingerprint for each entity that the request is known to touch before it runs (its root and
    the references in its arguments). `time_us` is the append time in microseconds since the Unix
    epoch; it is what `penstock.now()` answers.
    """

    request_id: RequestId
    body: bytes
    touches: bytes
    time_us: int


class Record(msgspec.Struct, frozen=True, array_like=True):
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

    def append(self, entries: Sequence[Entry]) -> list[Lsn]:
        """Append durably (fsync before return) and atomically; return the position of each.

        An entry whose request id is known with the same body and unexpired gets the position of
        the first append and adds nothing. Concurrent calls from several threads share one fsync.

        Raises:
            RequestConflict: An id is known with another body, or is scheduled (with whatever body:
                it will be appended when it is due, not before); nothing of this call is appended.
            RecordTooLarge: A body exceeds the limit; nothing of this call is appended.
            LogUnavailable: The disk is full or fails, or the log is closed; nothing was acknowledged.
        """

    def schedule(self, entry: Entry, due_us: int) -> None:
        """Keep an entry durably (fsync before return) until `promote` appends it.

        `due_us` is in microseconds since the Unix epoch, below 2**63. An entry whose request id is
        known with the same body, in the log or as scheduled, adds nothing: the first due time
        stands. From here on the id is taken; its retention counts from when it is appended.

        Raises:
            RequestConflict: The id is known with another body.
            RecordTooLarge: The body exceeds the limit.
            LogUnavailable: As for `append`.
        """

    def scheduled(self, request_id: RequestId) -> int | None:
        """Return when a request is due, in microseconds; None when it does not wait (any more)."""

    def promote(self, now_us: int) -> int:
        """Append what is due at `now_us`, at most `PROMOTED_MAX` entries; return how many.

        In the order of due times, of equal ones in the order in which they were scheduled, each
        with `time_us = now_us`, in one transaction with their removal from the schedule: each
        exactly once, whoever calls this and whatever dies. Where nothing is due, nothing is written.

        Raises:
            Corrupt: A scheduled entry is damaged.
            LogUnavailable: As for `append`; nothing was moved, and the next call tries again.
        """

    def start(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the oldest position still held (equal to `end` when nothing is)."""

    def end(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the position after the newest durable record."""

    def wait(self, after: Lsn, timeout_ms: int, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Block until `end` exceeds `after` or the time is up; return `end`."""

    def read(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[Record]:
        """Return the records of [start, end), in order, checksums verified.

        Raises:
            Truncated: `start` lies before what is held.
            Corrupt: A record's checksum does not fit, or positions in the range are missing.
        """

    def touches(
        self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION
    ) -> list[bytes]:
        """Return the `touches` of the records of [start, end), in order."""

    def find(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return where a request id was first appended, while its retention lasts."""

    def limit(self, start: Lsn, records: int, size: int) -> Lsn:
        """Return the greatest end with at most `records` records and `size` body bytes from start.

        At least one record is let through when there is one, however large.

        Raises:
            Truncated: `start` lies before what is held.
        """

    def truncate(self, before: Lsn, partition: LogPartition = ONLY_PARTITION) -> None:
        """Forget records below `before`; their request ids stay known for their retention."""

    def close(self) -> None:
        """Release everything; append and read raise `LogUnavailable` afterwards."""
