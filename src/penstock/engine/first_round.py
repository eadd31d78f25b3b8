"""The first round: the assignment of transactions to tasks, before any of them has run.

It spreads components of the expected accesses: those of hints, and those that memory adds (`access_memory`).
A wrong guess costs time only, because `step` validates the real accesses. But a guess that joins too much would
leave most transactions to one task. So a component that is too large for an even spread is believed only if the last
spread epoch had one that was at least half as large.
"""

from collections.abc import Iterator

import numpy as np

from penstock.engine.access import AccessSet, Positions
from penstock.engine.access_memory import AccessMemory
from penstock.engine.conflicts import components
from penstock.engine.order import balance, hinted_access
from penstock.engine.step import EpochRun


class FirstRounds:
    """Spreads the epochs of a driver over tasks, one after the other."""

    def __init__(self) -> None:
        """Begin without knowledge."""
        self._memory = AccessMemory()
        self._hinted = AccessSet.empty()
        self._largest = 1.0  # the share of the largest component of the last spread epoch

    def spread(self, hints: list[bytes], tasks: int) -> list[Positions]:
        """Assign a whole epoch to tasks; requests with a common entity in their expected accesses stay together.

        Args:
            hints: The access hint of each request, in the order of positions.
            tasks: The number of tasks.

        Returns:
            For each task its positions, ascending; may be empty.
        """
        count = len(hints)
        self._hinted = hinted_access(hints)
        labels = np.zeros(count, np.int32)
        for expected in self._guesses():
            labels = components(count, expected)
            if np.bincount(labels).max(initial=0) <= count * max(1 / tasks, 2 * self._largest):
                break
        return balance(np.arange(count, dtype=np.uint32), labels, tasks)

    def learn(self, run: EpochRun) -> None:
        """Learn from an epoch: the last one that was spread, when its rounds have ended."""
        self._largest = run.largest
        self._memory.learn(self._hinted, run.accesses)

    def _guesses(self) -> Iterator[AccessSet]:
        """Yield the expected accesses, those that join most transactions first; the last ones join none."""
        yield self._memory.expected(self._hinted)
        yield self._hinted
        yield AccessSet.empty()
