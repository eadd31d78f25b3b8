"""The log: the only way in. Requests are appended here, become durable, and get their order.

This module fixes the port. `memory` and `sqlite` are adapters; both pass one conformance suite.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.base.ids import LogPartition, Lsn, RequestId


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
            RequestConflict: An id is known with another body; nothing of this call is appended.
            RecordTooLarge: A body exceeds the limit; nothing of this call is appended.
            LogUnavailable: The disk is full or fails, or the log is closed; nothing was acknowledged.
        """

    def start(self, partition: LogPartition = LogPartition(0)) -> Lsn:
        """Return the oldest position still held (equal to `end` when nothing is)."""

    def end(self, partition: LogPartition = LogPartition(0)) -> Lsn:
        """Return the position after the newest durable record."""

    def wait(self, after: Lsn, timeout_ms: int, partition: LogPartition = LogPartition(0)) -> Lsn:
        """Block until `end` exceeds `after` or the time is up; return `end`."""

    def read(self, start: Lsn, end: Lsn, partition: LogPartition = LogPartition(0)) -> list[Record]:
        """Return the records of [start, end), in order, checksums verified.

        Raises:
            Truncated: `start` lies before what is held.
            Corrupt: A record's checksum does not fit, or positions in the range are missing.
        """

    def touches(
        self, start: Lsn, end: Lsn, partition: LogPartition = LogPartition(0)
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

    def truncate(self, before: Lsn, partition: LogPartition = LogPartition(0)) -> None:
        """Forget records below `before`; their request ids stay known for their retention."""

    def close(self) -> None:
        """Release everything; append and read raise `LogUnavailable` afterwards."""
