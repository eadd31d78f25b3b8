"""Group commit: concurrent calls of one process share one transaction and one fsync.

The first caller that finds nobody at work leads: it carries out every call that waits, then hands
the lead to the next waiting caller. There is no thread of its own. It promises that each call is
carried out once, in the order of arrival, and that every caller learns its own outcome. What
carrying out means is left to the function given.

Source: DeWitt et al., *Implementation Techniques for Main Memory Database Systems*, 1984, §5.2.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.base.ids import Lsn
from penstock.errors import LogUnavailable, PenstockError
from penstock.log.api import Entry

GROUP_BYTES: Final = 16_777_216
"""A group takes in no further call once it holds this many bytes of bodies."""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """What one caller wants appended or scheduled, and its outcome once there is one."""

    entries: Sequence[Entry]
    marks: list[bytes]  # hashes of the request ids
    bodies: list[bytes]  # hashes of the bodies
    prints: list[bytes]  # both
    size: int  # bytes of bodies
    due_us: int | None = None  # schedule its one entry instead of appending it
    positions: list[Lsn] | None = None
    failure: PenstockError | None = None
    signal: threading.Event = field(default_factory=threading.Event)

    @property
    def settled(self) -> bool:
        """Whether there is an outcome."""
        return self.positions is not None or self.failure is not None

    def outcome(self) -> list[Lsn]:
        """Return the positions, or raise the failure."""
        if self.positions is not None:
            return self.positions
        assert self.failure is not None, "a call is settled before its caller goes on"
        # A new one for each caller: the calls of a group share one failure, and each thread that
        # raises an exception writes to it.
        raise type(self.failure)(str(self.failure)) from self.failure


class GroupCommit:
    """Gathers calls into groups. `carry_out` settles each call of a group, or raises for all."""

    def __init__(
        self, carry_out: Callable[[Sequence[PendingAppend]], None], tidy_up: Callable[[], None]
    ) -> None:
        self._carry_out = carry_out
        self._tidy_up = tidy_up
        self._lock = threading.Lock()
        self._waiting: deque[PendingAppend] = deque()
        self._led = False

    def submit(self, call: PendingAppend) -> list[Lsn]:
        """Have a call carried out, by this thread or another, and return its outcome."""
        with self._lock:
            self._waiting.append(call)
            leads = not self._led
            self._led = True
        if not leads:
            call.signal.wait()
        if not call.settled:  # told to lead, not that it is done
            self._lead()
        return call.outcome()

    def _lead(self) -> None:
        group = self._take_group()
        try:
            self._carry_out(group)
        except PenstockError as failure:
            _fail(group, failure)
        finally:
            # Also after an interrupt of this very thread: nobody may wait for ever.
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
                self._led = False


def _fail(group: Sequence[PendingAppend], failure: PenstockError) -> None:
    for call in group:
        if not call.settled:
            call.failure = failure
