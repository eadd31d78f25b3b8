"""The first round: the assignment of transactions to tasks, before any of them has run.

It spreads components of the expected accesses: those of hints, and those that memory adds (`access_memory`).
A wrong guess costs time only, because `step` validates the real accesses.

Memory may be out of date, and join too much. Then one task would have most of the work; and of a component that is so
large in truth, some member is always unknown, and makes it run again. So if a component with the remembered accesses is
too large for an even spread, only the hints count.
"""

from collections.abc import Iterable

import numpy as np

from penstock.engine.access import AccessSet, Positions
from penstock.engine.access_memory import AccessMemory
from penstock.engine.conflicts import components
from penstock.engine.mentions import Mentions
from penstock.engine.order import balance, hinted_access
from penstock.engine.step import EpochRun


class FirstRounds:
    """Spreads the epochs of a driver over tasks, one after the other."""

    def __init__(self) -> None:
        self._memory = AccessMemory()
        self._hinted = AccessSet.empty()

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
        named, remembered = self._memory.expected(self._hinted)
        labels = components(count, named.union([remembered]))
        if remembered.position.size and np.bincount(labels).max() * tasks > count:
            labels = components(count, named)
        return balance(np.arange(count, dtype=np.uint32), labels, tasks)

    def learn(self, run: EpochRun, mentions: Iterable[Mentions] = ()) -> None:
        """Learn from an epoch when its rounds have ended: the last one that was spread, or one of a single task.

        Args:
            mentions: The mentions in the rows that the epoch's tasks have written.
        """
        for each in mentions:
            self._memory.learn_mentions(each)
        if run.tasks > 1:  # accesses are known better than mentions
            self._memory.learn(self._hinted, run.accesses)
