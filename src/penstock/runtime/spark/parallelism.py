"""How many tasks an epoch gets, and which: one, where spreading costs more than it saves.

The policy learns from finished epochs, because access sets are known only after execution. It changes
no outcome, only time.
"""

from typing import Final

from penstock.engine.order import spread
from penstock.engine.step import EpochRun
from penstock.log.api import Log
from penstock.runtime.spark.messages import LogRange, request_count

REPEATED_TOO_MUCH: Final = 0.4
"""Share of transactions that run again, above which two cores are not faster than one."""

PROBE_EVERY: Final = 25
"""Epochs in one task, after which one epoch is spread to see whether conflicts have become rare."""


class ParallelismPolicy:
    """Decides for one epoch after another; the first large epoch is spread."""

    def __init__(self, small_epoch: int) -> None:
        self._small_epoch = small_epoch
        self._repeated = 0.0  # share of transactions that ran again in the last spread epoch
        self._in_one_task = 0  # large epochs since then

    def tasks(self, count: int, partitions: int) -> int:
        """Return the number of tasks for an epoch of `count` transactions, at most one for each partition."""
        if count <= self._small_epoch or partitions == 1:
            return 1
        if self._repeated > REPEATED_TOO_MUCH and self._in_one_task < PROBE_EVERY:
            self._in_one_task += 1
            return 1
        return partitions

    def overflowed(self) -> None:
        """Use one task after outputs that were too large, because one task can stop early."""
        self._repeated = 1.0
        self._in_one_task = 0

    def learn(self, count: int, tasks: int, reran: int) -> None:
        """Learn how often transactions of a finished epoch ran again.

        Args:
            count: Transactions in the epoch.
            tasks: Tasks of the epoch.
            reran: Executions beyond the first of each transaction.
        """
        if tasks > 1:
            self._repeated = reran / count
            self._in_one_task = 0


def planned(log: Log, ranges: list[LogRange], tasks: int) -> EpochRun:
    """Spread an epoch over tasks by the access hints of its requests."""
    count = request_count(ranges)
    if tasks == 1:
        return EpochRun.single_task(count)
    hints = [log.touches(part.start, part.end, part.partition) for part in ranges]
    if len(hints) == 1:
        return EpochRun(count, spread(hints[0], tasks))
    order = sorted(
        (lsn, part.partition, hint)
        for part, of_part in zip(ranges, hints, strict=True)
        for lsn, hint in enumerate(of_part, part.start)
    )
    return EpochRun(count, spread([hint for _, _, hint in order], tasks))
