"""Deduplication: which entries of a group's calls are new, and the position of each entry.

A call is admitted as a whole or not at all. The first append of a request id wins, also inside one
call and between the calls of one group. An id is appended or scheduled, never both. Positions have
no gaps. This module touches no file: the caller looks up the known ids and stores the new entries.
"""

from collections.abc import Mapping
from typing import cast

from penstock.base.ids import Lsn
from penstock.base.instants import instant_of
from penstock.errors import RequestConflict
from penstock.log.api import Entry
from penstock.log.block import ID_HASH_BYTES
from penstock.log.group_commit import PendingAppend
from penstock.log.request_id_index import SeenRequest
from penstock.log.schedule import ScheduledEntry


class Deduplicator:
    """Admits the calls of one group, in order.

    Attributes:
        first, end: The positions [first, end) of the admitted entries.
        dedup_hashes: For each of them, the hashes of its id and body.
    """

    def __init__(
        self,
        known: Mapping[bytes, SeenRequest],
        waiting: Mapping[bytes, ScheduledEntry],
        end: Lsn,
        now_s: int,
    ) -> None:
        """Begin a group.

        Args:
            known: Those of the group's requests that were appended before, by the hash of their id.
            end: The position of the next entry.
            now_s: Seconds since the Unix epoch.
        """
        self.first = end
        self.end = end
        self.entries: list[Entry] = []
        self.dedup_hashes: list[bytes] = []
        self.fresh: dict[bytes, Lsn] = {}
        self.postponed: list[ScheduledEntry] = []
        self._waiting = dict(waiting)
        self._known = known
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
            RequestConflict: An id is known with another body, or an entry to append is scheduled;
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
            seen = self._seen(id_hash) or fresh.get(id_hash)
            if seen is None:
                seen = SeenRequest(Lsn(self.end + len(entries)), body, self._now_s)
                fresh[id_hash] = seen
                entries.append(entry)
                dedup_hashes.append(id_hash + body)
            elif seen.body_hash != body:
                raise _conflict(entry, seen)
            positions.append(seen.lsn)
        self._take(entries, dedup_hashes, {id_hash: seen.lsn for id_hash, seen in fresh.items()})
        return positions

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
            if seen.body_hash != body:
                raise _conflict(entry, seen)
        elif waiting is None:
            self._waiting[id_hash] = ScheduledEntry(due_us, id_hash, entry)
            self.postponed.append(self._waiting[id_hash])
        elif waiting.entry.body != entry.body:
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
