"""`Window`: the number of requests that the log may hold before further ones wait for their turn.

It is the number that is processed in a given time, at the rate of the last epochs. So a quiet principal waits for
about this time, whether the handlers are fast or slow. Little's law gives the size: rate times time. A
smaller window makes smaller epochs and so lowers the rate, but not without end: epochs of any size are faster
than the given time.
"""

from typing import Final

SIZE_MIN: Final = 64
SIZE_FIRST: Final = 1_000
"""The size before a rate is known."""

_WEIGHT: Final = 0.5
"""The weight of the newest rate in the moving average."""


class Window:
    """The window of one gateway.

    Attributes:
        size: The number of requests; at least `SIZE_MIN`.
    """

    def __init__(self, time_s: float) -> None:
        """Let the log hold the requests of this time; 0 sets no bound."""
        self.size = SIZE_FIRST
        self._time_s = time_s
        self._busy_since: tuple[int, float] | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return self._time_s > 0

    def note(self, committed: int, now_s: float, *, busy: bool) -> None:
        """Take the progress of the driver after an epoch.

        Args:
            committed: The log position after the epoch.
            now_s: Seconds that never go back.
            busy: Whether the log held more requests then. Only the time between two epochs that
                followed each other without a pause shows the driver's rate.
        """
        before = self._busy_since
        self._busy_since = (committed, now_s) if busy else None
        if before is None or committed <= before[0] or now_s <= before[1]:
            return
        rate_per_s = (committed - before[0]) / (now_s - before[1])
        size = (1 - _WEIGHT) * self.size + _WEIGHT * rate_per_s * self._time_s
        self.size = max(SIZE_MIN, round(size))
