"""`FairSlots`: the order in which callers get places.

Promises that a caller has no more places than `each`, that the caller with the fewest places comes
first and callers with equally many in the order of their questions, and that no caller waits beyond the
given time. Names of callers are compared, and mean nothing here.
"""

import threading
import time
from collections import Counter


class FairSlots:
    """A number of places. Many threads may ask for one at once."""

    def __init__(self, places: int, each: int) -> None:
        """Have so many places, and so many for one caller."""
        self._places = places
        self._each = each
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, object]] = []
        self._taken: Counter[str] = Counter()

    def take(self, caller: str, deadline: float) -> bool:
        """Wait for a place; False if none was free in time."""
        mine = (caller, object())
        with self._changed:
            self._waiting.append(mine)
            try:
                left_s = max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(lambda: self._next() is mine, left_s):
                    return False
                self._taken[caller] += 1
                return True
            finally:
                self._waiting.remove(mine)
                self._changed.notify_all()

    def take_now(self, caller: str) -> bool:
        """Take a place if one is free now."""
        with self._changed:
            free = not self._waiting and self._is_free(caller)
            if free:
                self._taken[caller] += 1
            return free

    def give(self, caller: str) -> None:
        """Give a place back."""
        with self._changed:
            self._taken[caller] -= 1
            self._taken += Counter()  # forgets callers who have none
            self._changed.notify_all()

    def _is_free(self, caller: str) -> bool:
        return self._taken.total() < self._places and self._taken[caller] < self._each

    def _next(self) -> tuple[str, object] | None:
        free = [one for one in self._waiting if self._is_free(one[0])]
        return min(free, key=lambda one: self._taken[one[0]], default=None)
