"""Admission: which entries of a group's calls are new, and where each entry goes.

It promises that a call is admitted whole or not at all, that the first append of an id wins, also
inside one call and between the calls of one group, that an id is appended or waits in the schedule
but never both, and that positions have no gaps. It touches no file: what is known already is given, what is new is handed over.
"""

from collections.abc import Mapping
from itertools import repeat

from penstock.base.ids import Lsn
from penstock.errors import RequestConflict
from penstock.log.api import Entry
from penstock.log.group_commit import PendingAppend
from penstock.log.request_id_index import SeenRequest
from penstock.log.schedule import ScheduledEntry


class Deduplicator:
    """Takes the calls of one group, in order.

    `entries` and `prints` are what is to be appended, `postponed` what is to be scheduled.
    """

    def __init__(
        self,
        known: Mapping[bytes, SeenRequest],
        waiting: Mapping[bytes, ScheduledEntry],
        end: Lsn,
        now_s: int,
    ) -> None:
        self.first = end
        self.end = end
        self.entries: list[Entry] = []
        self.prints: list[bytes] = []
        self.fresh: dict[bytes, SeenRequest] = {}
        self.postponed: list[ScheduledEntry] = []
        self._waiting = dict(waiting)
        self._known = known
        self._now_s = now_s

    def admit(self, call: PendingAppend) -> list[Lsn]:
        """Return the position of each entry of a call; none for one that is to be scheduled.

        Raises:
            RequestConflict: An id is known with another body, or one to append waits; nothing of
                the call is admitted.
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
        marks = call.marks
        if not (self._known.keys().isdisjoint(marks) and self.fresh.keys().isdisjoint(marks)):
            return None
        positions = [Lsn(lsn) for lsn in range(self.end, self.end + len(marks))]
        bodies = call.bodies
        fresh = dict(
            zip(marks, map(SeenRequest, positions, bodies, repeat(self._now_s)), strict=True)
        )
        if len(fresh) < len(marks):
            return None
        self._take(list(call.entries), call.prints, fresh)
        return positions

    def _admit_one_by_one(self, call: PendingAppend) -> list[Lsn]:
        positions: list[Lsn] = []
        entries: list[Entry] = []
        prints: list[bytes] = []
        fresh: dict[bytes, SeenRequest] = {}
        for entry, mark, body in zip(call.entries, call.marks, call.bodies, strict=True):
            sighting = self._known.get(mark) or self.fresh.get(mark) or fresh.get(mark)
            if sighting is None:
                sighting = SeenRequest(Lsn(self.end + len(entries)), body, self._now_s)
                fresh[mark] = sighting
                entries.append(entry)
                prints.append(mark + body)
            elif sighting.body != body:
                raise _conflict(entry, sighting)
            positions.append(sighting.lsn)
        self._take(entries, prints, fresh)
        return positions

    def _postpone(self, call: PendingAppend, due_us: int) -> None:
        (entry,), (mark,), (body,) = call.entries, call.marks, call.bodies
        sighting = self._known.get(mark) or self.fresh.get(mark)
        waiting = self._waiting.get(mark)
        if sighting is not None:
            if sighting.body != body:
                raise _conflict(entry, sighting)
        elif waiting is None:
            self._waiting[mark] = ScheduledEntry(due_us, mark, entry)
            self.postponed.append(self._waiting[mark])
        elif waiting.entry.body != entry.body:
            raise RequestConflict(
                f"request {entry.request_id!r} was scheduled before, with another body"
            )

    def _refuse_waiting(self, call: PendingAppend) -> None:
        for entry, mark in zip(call.entries, call.marks, strict=True):
            if mark in self._waiting:
                raise RequestConflict(
                    f"request {entry.request_id!r} is scheduled, due_us = "
                    f"{self._waiting[mark].due_us}; it is appended then, and not before"
                )

    def _take(
        self, entries: list[Entry], prints: list[bytes], fresh: dict[bytes, SeenRequest]
    ) -> None:
        self.entries += entries
        self.prints += prints
        self.fresh.update(fresh)
        self.end = Lsn(self.end + len(entries))


def _conflict(entry: Entry, sighting: SeenRequest) -> RequestConflict:
    return RequestConflict(
        f"request {entry.request_id!r} was appended before, with another body, at lsn "
        f"{sighting.lsn}"
    )
