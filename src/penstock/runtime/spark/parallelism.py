"""How many records and tasks an epoch gets, and whether its two passes overlap.

An epoch gets one task, if several cost more time than they save. It takes all records that wait, as far as its expected time
allows: its callers have their replies, and send their next requests, while the epoch after it runs. The policy learns from finished epochs, because access sets and times are known
only after execution. It changes no outcome, only time.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.engine.access_memory import FirstRounds
from penstock.engine.step import EpochRun
from penstock.log.api import Log
from penstock.runtime.spark.messages import LogRange, TaskResult, request_count

REPEATED_TOO_MUCH: Final = 0.4
"""Share of transactions that run again, above which two cores are not faster than one."""

PROBE_EVERY: Final = 25
"""Epochs in one task, after which one epoch is spread to see whether conflicts have become rare."""


SMALL_MS: Final = 100.0
"""The expected time of an epoch which is worth several tasks, however few its records are."""

_KEPT: Final = 0.8
"""The weight of all earlier epochs, when the time of a record is learnt from another one."""

OVERLAP_SAVES_MS: Final = 30.0
"""Milliseconds that an overlap must save in an epoch, because it costs a job."""

_REPEATED_COST: Final = 2.5
"""How much longer an epoch takes, relative to its requests, for the share of them that runs again; so two tasks need
as long as one at `REPEATED_TOO_MUCH`."""


class EpochPlan(NamedTuple):
    """The tasks of an epoch.

    Attributes:
        overlapped: Whether another task runs the workflow steps while the only task runs the requests.
        divided: Whether the workflow steps run after all requests, so that large atoms can be divided.
    """

    tasks: int
    overlapped: bool = False
    divided: bool = False


IN_ONE_TASK: Final = EpochPlan(1)


class ParallelismPolicy:
    """Decides for one epoch after another; the first large epoch is spread."""

    def __init__(
        self,
        small_epoch: int,
        large_atom: int = 0,
        longest_ms: float = math.inf,
        *,
        overlaps: bool = True,
    ) -> None:
        """Decide without any experience.

        Args:
            small_epoch: The most records of a small epoch.
            large_atom: The events of an atom that is divided; 0: none is.
            longest_ms: The expected time of the longest epoch; 0: no time decides.
            overlaps: Whether the two passes of an epoch may overlap.
        """
        self._overlaps = overlaps
        self._longest_ms = longest_ms
        self._small_epoch = (
            small_epoch  # the most requests of an epoch that always runs in a single task
        )
        self._divides = large_atom > 0
        self._repeated = 0.0  # share of transactions that ran again in the last spread epoch
        self._in_one_task = 0  # large epochs since then
        self._together = 0  # epochs whose passes run in one task, after outputs that were too large
        self._requests_ms = self._steps_ms = 0.0  # of a record of the last large epoch
        self._each_ms = (
            0.0  # the processor time that a record is expected to take; 0 before the first epoch
        )

    def width(self, most: int) -> int:
        """Return the number of records of the next epoch, at most `most`."""
        each_ms = self._each_ms
        if not each_ms:
            return most
        return max(1, int(min(most, self._longest_ms / each_ms)))

    def plan(self, count: int, partitions: int) -> EpochPlan:
        """Return the tasks for an epoch of `count` requests; at most one for each partition runs requests."""
        self._together = max(0, self._together - 1)
        plan = self._tasks(count, partitions)
        if self._divides and plan.tasks == 1 < partitions:
            return EpochPlan(1, divided=not self._together)
        return plan

    def _tasks(self, count: int, partitions: int) -> EpochPlan:
        is_small = count <= self._small_epoch and count * self._each_ms <= SMALL_MS
        if is_small or partitions == 1:
            return IN_ONE_TASK
        is_torn = self._repeated > REPEATED_TOO_MUCH and self._in_one_task < PROBE_EVERY
        self._in_one_task += 1
        requests_ms, steps_ms = count * self._requests_ms, count * self._steps_ms
        if is_torn:
            otherwise_ms = requests_ms + steps_ms
        else:
            repeated = 1 + _REPEATED_COST * min(self._repeated, REPEATED_TOO_MUCH)
            otherwise_ms = requests_ms * repeated / partitions + steps_ms
        saved_ms = otherwise_ms - max(requests_ms, steps_ms)
        if self._overlaps and not self._together and saved_ms > OVERLAP_SAVES_MS:
            return EpochPlan(1, overlapped=True)
        return IN_ONE_TASK if is_torn else EpochPlan(partitions)

    def overflowed(self) -> None:
        """Use one task after outputs that were too large, because one task can stop early."""
        self._repeated = 1.0
        self._in_one_task = 0
        self._together = PROBE_EVERY

    def learn(self, count: int, tasks: int, reran: int, results: Sequence[TaskResult]) -> None:
        """Learn from a finished epoch how often transactions ran again, and how long requests and steps took.

        Args:
            reran: Executions beyond the first of each transaction.
            results: The results of its tasks; those of the first round come first.
        """
        busy_ms = sum(result.phases_ms.get("busy", 0.0) for result in results) / count
        if busy_ms > 0 and self._longest_ms:
            # The geometric mean forgets a transaction that creates a million entities after a few epochs.
            self._each_ms = (self._each_ms or busy_ms) ** _KEPT * busy_ms ** (1 - _KEPT)
        if tasks > 1:
            self._repeated = reran / count
            self._in_one_task = 0
        if count > self._small_epoch:
            steps_ms = sum(result.phases_ms.get("steps", 0.0) for result in results)
            ran_ms = sum(result.phases_ms.get("run", 0.0) for result in results[:tasks])
            within_ms = sum(result.phases_ms.get("steps", 0.0) for result in results[:tasks])
            self._requests_ms, self._steps_ms = (ran_ms - within_ms) / count, steps_ms / count


def planned(log: Log, ranges: list[LogRange], tasks: int, first_rounds: FirstRounds) -> EpochRun:
    """Spread an epoch over tasks by the accesses that are expected of its requests.

    Args:
        log: The log, which has the access hints of the requests.
    """
    count = request_count(ranges)
    if tasks == 1:
        return EpochRun.single_task(count)
    hints = [log.hints(part.start, part.end, part.partition) for part in ranges]
    if len(hints) == 1:
        return EpochRun(count, first_rounds.spread(hints[0], tasks))
    order = sorted(
        (lsn, part.partition, hint)
        for part, of_part in zip(ranges, hints, strict=True)
        for lsn, hint in enumerate(of_part, part.start)
    )
    return EpochRun(count, first_rounds.spread([hint for _, _, hint in order], tasks))
