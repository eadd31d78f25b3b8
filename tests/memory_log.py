"""`MemoryLog`: the log of one process, without durability.

It keeps every other promise of the port. `SqliteLog` is compared with it, so its code is as
plain as possible.
"""

import threading
from collections.abc import Callable, Sequence

import msgspec

from penstock.base.ids import ONLY_PARTITION, LogPartition, Lsn, RequestId
from penstock.base.instants import instant_of
from penstock.errors import Corrupt, LogUnavailable, RequestConflict, Truncated
from penstock.log.api import PROMOTED_MAX, Entry, Record, marked
from penstock.log.clock import wall_clock_us
from penstock.model.request import call_in, check_size


class MemoryLog:
    """A log of one partition in this process's memory. Arguments are those of `SqliteLog`.

    Expired ids stay in memory until the log is closed.
    """

    def __init__(
        self,
        *,
        record_bytes_max: int = 1_048_576,
        retention_s: int = 7 * 86_400,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._record_bytes_max = record_bytes_max
        self._retention_s = retention_s
        self._clock_us = clock_us
        self._entries: list[Entry] = []  # of the records [start, end)
        self._start = Lsn(0)
        self._seen: dict[RequestId, tuple[Lsn, bytes, int]] = {}  # position, body, seconds
        self._scheduled: dict[RequestId, tuple[int, Entry]] = {}  # due_us; in order of arrival
        self._changed = threading.Condition()
        self._closed = False

    @property
    def partitions(self) -> Sequence[LogPartition]:
        """The one partition, number 0."""
        return (ONLY_PARTITION,)

    def append(self, entries: Sequence[Entry], *, limited: bool = True) -> list[Lsn]:
        """Append atomically; return the position of each. See `Log.append`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            fresh: dict[RequestId, tuple[Lsn, bytes, int]] = {}
            added: list[Entry] = []
            positions: list[Lsn] = []
            for entry in entries:
                self._check_size(entry, limited=limited)
            for entry in entries:
                if entry.request_id in self._scheduled:
                    raise RequestConflict(
                        f"request {entry.request_id!r} is scheduled for "
                        f"{instant_of(self._scheduled[entry.request_id][0]).isoformat()}; it is "
                        "appended then"
                    )
                known = fresh.get(entry.request_id) or self._known(entry.request_id)
                if known is None:
                    known = (Lsn(self._end() + len(added)), entry.body, self._now_s())
                    fresh[entry.request_id] = known
                    added.append(entry)
                elif call_in(known[1]) != call_in(entry.body):
                    raise RequestConflict(
                        f"request {entry.request_id!r} was appended before, with another body, "
                        f"at lsn {known[0]}"
                    )
                positions.append(known[0])
            self._entries += added
            self._seen.update(fresh)
            self._changed.notify_all()
            return positions

    def check_writable(self) -> None:
        """Do nothing: memory has room. See `Log.check_writable`."""
        self._check(ONLY_PARTITION)

    def schedule(self, entry: Entry, due_us: int, *, limited: bool = True) -> None:
        """Keep an entry until it is due. See `Log.schedule`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            self._check_size(entry, limited=limited)
            known = self._known(entry.request_id)
            waiting = self._scheduled.get(entry.request_id)
            body = known[1] if known else waiting[1].body if waiting else None
            if body is None:
                self._scheduled[entry.request_id] = (due_us, entry)
            elif call_in(body) != call_in(entry.body):
                raise RequestConflict(f"request {entry.request_id!r} has another body already")

    def scheduled(self, request_id: RequestId) -> int | None:
        """Return when a request is due. See `Log.scheduled`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            waiting = self._scheduled.get(request_id)
            return None if waiting is None else waiting[0]

    def upcoming(self, count_max: int) -> list[tuple[int, Entry]]:
        """Return the scheduled entries that are due next. See `Log.upcoming`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            return sorted(self._scheduled.values(), key=lambda waiting: waiting[0])[:count_max]

    def scheduled_ids(self, beginning: str, count_max: int) -> list[RequestId]:
        """Return scheduled ids that begin with a text. See `Log.scheduled_ids`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            return sorted(name for name in self._scheduled if name.startswith(beginning))[
                :count_max
            ]

    def promote(self, now_us: int) -> int:
        """Append the entries that are due, in order. See `Log.promote`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            waiting = sorted(self._scheduled.values(), key=lambda scheduled: scheduled[0])
            due = [entry for due_us, entry in waiting if due_us <= now_us][:PROMOTED_MAX]
            for entry in due:
                del self._scheduled[entry.request_id]
                self._seen[entry.request_id] = (self._end(), entry.body, self._now_s())
                self._entries.append(msgspec.structs.replace(entry, time_us=now_us))
            self._changed.notify_all()
            return len(due)

    def append_scheduled(
        self, request_id: RequestId, now_us: int, mark: Callable[[bytes], bytes] | None = None
    ) -> Lsn | None:
        """Append a scheduled entry now. See `Log.append_scheduled`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            waiting = self._scheduled.pop(request_id, None)
            if waiting is None:
                return None
            lsn, entry = self._end(), waiting[1]
            self._seen[request_id] = (lsn, entry.body, self._now_s())
            self._entries.append(msgspec.structs.replace(marked(entry, mark), time_us=now_us))
            self._changed.notify_all()
            return lsn

    def repeat(self, entry: Entry, after: Lsn, mark: Callable[[bytes], bytes] | None = None) -> Lsn:
        """Append a request again. See `Log.repeat`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            if entry.request_id in self._scheduled:
                raise RequestConflict(f"request {entry.request_id!r} is scheduled")
            known = self._known(entry.request_id)
            if known is not None and call_in(known[1]) != call_in(entry.body):
                raise RequestConflict(f"request {entry.request_id!r} has another body")
            if known is not None and known[0] > after:
                return known[0]
            lsn = self._end()
            self._seen[entry.request_id] = (lsn, entry.body, self._now_s())
            self._entries.append(marked(entry, mark))
            self._changed.notify_all()
            return lsn

    def start(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the oldest position still held. See `Log.start`."""
        with self._changed:
            self._check(partition)
            return self._start

    def end(self, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Return the position after the newest record."""
        with self._changed:
            self._check(partition)
            return self._end()

    def wait(self, after: Lsn, timeout_ms: int, partition: LogPartition = ONLY_PARTITION) -> Lsn:
        """Block until `end` exceeds `after` or the time is up; return `end`."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._end() > after, max(timeout_ms, 0) / 1000
            )
            self._check(partition)
            return self._end()

    def read(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[Record]:
        """Return the records of [start, end), in order. See `Log.read`."""
        return [
            Record(Lsn(lsn), entry.request_id, entry.body, entry.time_us)
            for lsn, entry in enumerate(self._held(start, end, partition), start)
        ]

    def hints(self, start: Lsn, end: Lsn, partition: LogPartition = ONLY_PARTITION) -> list[bytes]:
        """Return the `touches` of the records of [start, end), in order."""
        return [entry.hint for entry in self._held(start, end, partition)]

    def find(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return where a request id was first appended. See `Log.find`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            known = self._known(request_id)
            return None if known is None else (ONLY_PARTITION, known[0])

    def limit(self, start: Lsn, records: int, size: int) -> Lsn:
        """Return the end of a range with limited records and bytes. See `Log.limit`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            self._check_held(start)
            end = start
            while end < self._end() and end - start < max(records, 1):
                entry = self._entries[end - self._start]
                size -= len(entry.body)
                if (size < 0 or entry.is_control) and end > start:
                    break
                end = Lsn(end + 1)
                if entry.is_control:
                    break
            return end

    def controls(self, start: Lsn, end: Lsn) -> list[Lsn]:
        """Return the positions of the control records in a range. See `Log.controls`."""
        with self._changed:
            self._check(ONLY_PARTITION)
            held = enumerate(self._entries, self._start)
            return [Lsn(lsn) for lsn, entry in held if entry.is_control and start <= lsn < end]

    def checksum(self, lsn: Lsn) -> str:
        """Return nothing: memory loses no end. See `Log.checksum`."""
        return ""

    def truncate(self, before: Lsn, partition: LogPartition = ONLY_PARTITION) -> None:
        """Forget records below `before` (at most `end`); their ids stay known."""
        with self._changed:
            self._check(partition)
            before = min(before, self._end())
            if before > self._start:
                del self._entries[: before - self._start]
                self._start = before

    def close(self) -> None:
        """Release everything; append and read raise `LogUnavailable` afterwards."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check(self, partition: LogPartition) -> None:
        if partition != ONLY_PARTITION:
            raise LogUnavailable(f"there is no partition {partition}")
        if self._closed:
            raise LogUnavailable("the log is closed")

    def _check_size(self, entry: Entry, *, limited: bool) -> None:
        if limited:
            check_size(entry.body, self._record_bytes_max, str(entry.request_id))

    def _check_held(self, start: Lsn) -> None:
        if start < self._start:
            raise Truncated(f"{start} was asked for, {self._start} is the oldest held")

    def _end(self) -> Lsn:
        return Lsn(self._start + len(self._entries))

    def _now_s(self) -> int:
        return self._clock_us() // 1_000_000

    def _known(self, request_id: RequestId) -> tuple[Lsn, bytes, int] | None:
        known = self._seen.get(request_id)
        if known is None or self._now_s() - known[2] >= self._retention_s:
            return None
        return known

    def _held(self, start: Lsn, end: Lsn, partition: LogPartition) -> list[Entry]:
        with self._changed:
            self._check(partition)
            if start >= end:
                return []
            self._check_held(start)
            if end > self._end():
                raise Corrupt(f"no record at lsn {self._end()}; [{start}, {end}) was asked for")
            return self._entries[start - self._start : end - self._start]
