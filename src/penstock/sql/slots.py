"""Slots that callers share fairly.

A caller has at most `per_caller` slots. The caller with the fewest slots gets the next one; callers with
equally many get it in the order of their requests.
"""

import threading
import time
from collections import Counter


class FairSlots:
    """A number of slots. Many threads may request slots at once."""

    def __init__(self, slots: int, per_caller: int) -> None:
        """Create free slots, of which one caller gets at most `per_caller`."""
        self._slots = slots
        self._per_caller = per_caller
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, object]] = []
        self._taken: Counter[str] = Counter()

    def take(self, caller: str, deadline: float) -> bool:
        """Wait for a slot until a deadline (`time.monotonic`); return whether there was one."""
        ticket = (caller, object())
        with self._changed:
            self._waiting.append(ticket)
            try:
                left_s = max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(lambda: self._next() is ticket, left_s):
                    return False
                self._taken[caller] += 1
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def take_now(self, caller: str) -> bool:
        """Take a slot if one is free now; return whether there was one."""
        with self._changed:
            free = not self._waiting and self._is_free(caller)
            if free:
                self._taken[caller] += 1
            return free

    def give(self, caller: str) -> None:
        """Return a slot."""
        with self._changed:
            self._taken[caller] -= 1
            self._taken += Counter()  # removes callers without slots
            self._changed.notify_all()

    def _is_free(self, caller: str) -> bool:
        return self._taken.total() < self._slots and self._taken[caller] < self._per_caller

    def _next(self) -> tuple[str, object] | None:
        free = [ticket for ticket in self._waiting if self._is_free(ticket[0])]
        return min(free, key=lambda ticket: self._taken[ticket[0]], default=None)
