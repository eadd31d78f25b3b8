"""Later records: the requests that the cascades of an epoch append to the log, each exactly once.

They are rows of the epoch, so they exist when its commit is durable. They are appended before the next epoch is
committed, so only those of the newest epoch can be missing in the log, and they can only be behind its positions.

A record that continues a cascade is an epoch of its own, so no request of the same epoch waits for a cascade. The log gets
one of them at a time: at once if an epoch has cut or continued a cascade and no other record waits, else after as much
time as that epoch took. So all cascades together take at most half of the time. No cascade overtakes another one: they continue in turn, in the order in
which they were cut, so the order of the log never depends on how long an epoch took. The control record that continues a removal of rows
takes its turn among them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from penstock.base.ids import Lsn, RequestId
from penstock.journal.api import Commit, Journal, PartKind
from penstock.log.api import Entry, Log
from penstock.log.clock import ClockSteps, time_after, wall_clock_us
from penstock.model.control import is_control
from penstock.model.request import NOT_CUT, cut_of

_PAUSE: Final = 1.5
"""The time of other records, for each second of an epoch that continues a cascade: its changes cost time afterwards, too."""

_PAUSE_MAX_US: Final = 60_000_000
"""A longer time until a record that continues a cascade is no pause."""

_BATCH: Final = 10_000
"""Records of the log that are looked at together."""

_UPCOMING: Final = 1_000
"""Scheduled entries among which a new driver looks for those that continue cascades, which are due soon."""


class LaterRecords:
    """Appends the later records of the newest epoch."""

    def __init__(
        self,
        log: Log,
        journal: Journal,
        last: Commit | None,
        retention_s: int,
        fill: Callable[[bytes], bytes],
    ) -> None:
        self._log = log
        self._journal = journal
        self._retention_us = (
            retention_s * 1_000_000
        )  # how long the log knows an id after its append
        self._fill = fill  # the journal has catch-up records without their atoms
        self._owed: Commit | None = None
        rests = [(due, rest) for due, rest in log.upcoming(_UPCOMING) if rest.is_control]
        # The records that continue cascades and have not run, in their order; the first may be in the log already.
        self._rests = deque(rest.request_id for _, rest in rests)
        self._free_us = max((due for due, _ in rests), default=0)  # when the next one may come
        self._clock = ClockSteps()
        # The first one is due within the pause of one epoch, unless the clock was set back since.
        self._is_set_back = bool(rests) and rests[0][0] > wall_clock_us() + _PAUSE_MAX_US
        if (
            last is not None
        ):  # an earlier driver may have died before it appended them; the log drops what it has
            self.owe(last)

    def owe(self, commit: Commit) -> None:
        """Name the newest epoch; `append` appends its records."""
        has_work = self._rests or commit.parts_of(PartKind.APPENDS)
        self._owed = commit if has_work else None

    def append(self, took_s: float = 0.0) -> None:
        """Append the records that are owed.

        Args:
            took_s: How long their epoch took, in seconds.

        Raises:
            OperationalError: The log or the journal fails; the next call tries again.
        """
        commit = self._owed
        if commit is None:
            return
        now_us = wall_clock_us()
        if self._clock.step_us() < 0 or self._is_set_back:
            self._go_on(now_us)
        at_once, continuing = self._divided(commit, now_us)
        # Behind an epoch of other callers the next one waits until it is due: those who send one request after the
        # other leave the log empty for a moment after each epoch.
        may_go_on = self._has_continued(commit) or bool(continuing)
        if may_go_on and self._is_idle(commit) and not self._next_goes_on(now_us) and continuing:
            first = next(iter(continuing))
            at_once[first] = continuing.pop(first)
            self._rests.append(first)
        if at_once:
            self._log.append(list(at_once.values()), limited=False)
        for entry in continuing.values():
            self._free_us = max(self._free_us, now_us) + int(took_s * _PAUSE * 1e6)
            self._log.schedule(entry, self._free_us, limited=False)
            self._rests.append(entry.request_id)
        self._owed = None

    def _go_on(self, now_us: int) -> None:
        """Append the scheduled records, which are due by a clock that was set back since: else they wait for as long as it went."""
        self._free_us, self._is_set_back = now_us, False
        for rest in self._rests:
            self._log.append_scheduled(rest, now_us)

    def _has_continued(self, commit: Commit) -> bool:
        """Forget the records that have run by now, and say whether there are any."""
        has_run = False
        while self._rests and (place := self._log.find(self._rests[0])) is not None:
            partition, lsn = place
            if lsn >= commit.positions[partition]:
                break
            self._rests.popleft()
            has_run = True
        return has_run

    def _next_goes_on(self, now_us: int) -> bool:
        """Append the scheduled record whose cascade was cut first, before it is due; return False if there is none."""
        while self._rests:
            if self._log.append_scheduled(self._rests[0], now_us) is not None:
                return True
            self._rests.popleft()  # it has run so long ago that the log has forgotten it
        return False

    def _divided(
        self, commit: Commit, now_us: int
    ) -> tuple[dict[RequestId, Entry], dict[RequestId, Entry]]:
        """Schedule the records that have a delay, and return the others: those that continue no long work, and those that do."""
        at_once: dict[RequestId, Entry] = {}
        continuing: dict[RequestId, Entry] = {}
        known = self._known(commit)
        for request_id, body, time_us, delay_us in self._rows(commit):
            if request_id in known:
                continue
            entry = Entry(request_id, body, b"", time_us if delay_us else time_after(time_us))
            if delay_us:
                self._log.schedule(entry, time_us + delay_us, limited=False)
            elif cut_of(body) != NOT_CUT or is_control(body):
                # If two tasks have cut a cascade, the row of the second one comes last, and has both places.
                continuing[request_id] = msgspec.structs.replace(entry, is_control=True)
            elif (filled := self._filled(entry)) is not None:
                at_once[request_id] = filled
        return at_once, continuing

    def _filled(self, entry: Entry) -> Entry | None:
        """Return an entry as the log takes it; None if an earlier driver has appended it."""
        whole = self._fill(entry.body)
        if whole is entry.body:
            return entry
        # An earlier driver may have filled it with other atoms, before retention removed some.
        if self._log.find(entry.request_id) is not None:
            return None
        return msgspec.structs.replace(entry, body=whole)

    def _is_idle(self, commit: Commit) -> bool:
        """Say whether no record waits behind the positions of a commit."""
        return all(
            self._log.end(partition) <= position for partition, position in commit.positions.items()
        )

    def _rows(self, commit: Commit) -> Iterator[tuple[RequestId, bytes, int, int]]:
        """Yield id, body, time and delay of the records, in the order of the records that caused them."""
        names = ("request_id", "request", "time_us", "delay_us")
        parts = self._journal.read_all(commit.parts_of(PartKind.APPENDS), ("lsn", *names))
        if not parts:
            return
        rows = pa.concat_tables(parts).sort_by("lsn")
        for request_id, *rest in zip(*(rows[name].to_pylist() for name in names), strict=True):
            yield RequestId(request_id), *rest

    def _known(self, commit: Commit) -> set[RequestId]:
        """Return the ids behind the positions of a commit that is so old that the log may have forgotten them."""
        if commit.time_us + self._retention_us > wall_clock_us():
            return set()
        known: set[RequestId] = set()
        for partition, position in commit.positions.items():
            start, end = position, self._log.end(partition)
            while start < end:
                upto = Lsn(min(start + _BATCH, end))
                known |= {record.request_id for record in self._log.read(start, upto, partition)}
                start = upto
        return known
