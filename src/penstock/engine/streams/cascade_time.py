"""The time of cascades in an epoch: a cascade that has used its share is cut, so that no caller waits for its end.

Each pass of an epoch has its own share, so a cascade takes at most twice the share of an epoch. A record whose cascade
is cut halves the share of the records behind it: however many endless cascades an epoch has, they take little time.
The place of each cut is in the record that continues the cascade. So no other run reads a clock.
"""

from collections.abc import Callable
from typing import Final

SHARE_S: Final = 0.05
"""The share of the requests of a cascade, and of its workflow steps."""

SHARE_MIN_S: Final = 0.001
"""The least share, behind many cascades that were cut."""


class CascadeTime:
    """Measures the running cascade."""

    def __init__(self, clock: Callable[[], float], share_s: float = SHARE_S) -> None:
        """Begin an epoch.

        Args:
            clock: Returns seconds.
            share_s: The share of the first cascade.
        """
        self._clock = clock
        self._share_s = share_s
        self._end_s = 0.0

    def begin(self) -> None:
        """Begin the requests, or the workflow steps, of a record."""
        self._end_s = self._clock() + self._share_s

    def is_over(self) -> bool:
        """Say whether the share is used."""
        return self._clock() >= self._end_s

    def cut(self) -> None:
        """Note that a cascade was cut because its share was used."""
        self._share_s = max(SHARE_MIN_S, self._share_s / 2)
