"""How many tasks an epoch gets: one where spreading costs more than it saves.

Learned from what happened, because what transactions touch is known only after they ran. It
changes no outcome, only time.
"""

from typing import Final

REPEATED_TOO_MUCH: Final = 0.4
"""With half of the work on each of two cores, repeating more than about this much gains nothing."""

PROBE_EVERY: Final = 25
"""After so many epochs in one task, try again whether conflicts have become rare."""


class ParallelismPolicy:
    """Decides for one epoch after the other."""

    def __init__(self, partitions: int, small_epoch: int) -> None:
        """Begin by spreading."""
        self._partitions = partitions
        self._small_epoch = small_epoch
        self._repeated = 0.0
        self._alone = 0

    def tasks(self, count: int) -> int:
        """Return the number of tasks for an epoch of `count` transactions."""
        if count <= self._small_epoch or self._partitions == 1:
            return 1
        if self._repeated > REPEATED_TOO_MUCH and self._alone < PROBE_EVERY:
            self._alone += 1
            return 1
        return self._partitions

    def overflowed(self) -> None:
        """Take note that outputs were too large: one task can be cut short without loss."""
        self._repeated = 1.0
        self._alone = 0

    def learn(self, count: int, tasks: int, reran: int) -> None:
        """Take note of how an epoch went."""
        if tasks > 1:
            self._repeated = reran / count
            self._alone = 0
