"""Group commit: concurrent calls of one process share one transaction and one fsync.

The first caller that finds no leader becomes the leader. It carries out all calls that wait, then
makes the next waiting caller the leader; there is no extra thread. Each call is carried out once,
in the order of arrival, and each caller gets its own outcome.

Source: DeWitt et al., *Implementation Techniques for Main Memory Database Systems*, 1984, §5.2.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Final

from penstock.base.ids import Lsn
from penstock.errors import LogUnavailable, PenstockError, RecordTooLarge
from penstock.log.api import Entry
from penstock.log.block import body_hashes_of, id_hashes_of

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
    entries: Sequence[Entry], seed: int, record_bytes_max: int | None
) -> PendingAppend:
    """Hash the ids and bodies of entries.

    Args:
        record_bytes_max: The longest body; None if a body may have any length.
    """
    sizes = [len(entry.body) for entry in entries]
    if record_bytes_max is not None and max(sizes, default=0) > record_bytes_max:
        largest = entries[sizes.index(max(sizes))]
        raise RecordTooLarge(
            f"request {largest.request_id!r}: the body has {max(sizes)} bytes, "
            f"the limit is {record_bytes_max}"
        )
    id_hashes = id_hashes_of([entry.request_id for entry in entries], seed)
    body_hashes = body_hashes_of([entry.body for entry in entries], seed)
    dedup_hashes = list(map(add, id_hashes, body_hashes))
    return PendingAppend(entries, id_hashes, body_hashes, dedup_hashes, sum(sizes))


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
                self._waiting[0].signal.set()
            else:
                self._has_leader = False


def _fail(group: Sequence[PendingAppend], failure: PenstockError) -> None:
    for call in group:
        if not call.settled:
            call.failure = failure
