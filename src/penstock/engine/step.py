"""One epoch as a state machine: rounds go out, findings come in, until all is finished.

Pure: it neither runs anything nor knows where things run. Who drives it sends each `Round` to its
tasks, gives the findings of all of them to `absorb`, and goes on until `next_round` is None. Then
every transaction's latest run stands, and no other run of it does.

The argument. A run of a task executes its transactions in log order over the committed state. A
component of transactions x written entities that one run executed wholly, without an escape, read
and wrote exactly what the serial order would have: nothing outside it wrote what it read. Sets
of all runs of a transaction are united, so components only grow, and a component that grows runs
again whole in one task; so this ends, at the latest with all transactions in one task.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from penstock.engine.conflicts import Labels, components
from penstock.engine.order import Hosts, balance, place
from penstock.engine.touches import Finding, Fingerprints, Flags, Positions, Touches


@dataclass(frozen=True, slots=True)
class Round:
    """What runs now.

    Attributes:
        number: From 1.
        tasks: The positions for each task, ascending; may be empty.
        ships: The entities that each task needs and its host does not hold; on one host none.
    """

    number: int
    tasks: tuple[Positions, ...]
    ships: tuple[Fingerprints, ...]


class EpochRun:
    """The rounds of one epoch: `first` are the positions for each task of the first round.

    Attributes:
        reran: Transactions that ran more than once, so far.
        rounds: Rounds that ran, so far.
    """

    def __init__(self, count: int, first: list[Positions], hosts: Hosts | None = None) -> None:
        """Begin with the tasks of the first round, which together hold every position once.

        Args:
            count: Transactions in the epoch.
            first: For each task its positions, ascending.
            hosts: Where tasks and entities are; None where every task can read every entity.
        """
        assert sum(task.size for task in first) == count, "the first round runs everything"
        self._count = count
        self._tasks = len(first)
        self._hosts = hosts
        self._touches = Touches.none()
        self._run = np.full(count, -1, np.int64)  # round * tasks + task of the latest run
        self._escaped = np.zeros(count, np.bool_)
        self._next: tuple[Positions, ...] | None = tuple(first)
        self._last: tuple[Positions, ...] = ()
        self.rounds = 0
        self.reran = 0

    @classmethod
    def alone(cls, count: int) -> Self:
        """Begin an epoch that one task runs whole: nothing can be in conflict."""
        return cls(count, [np.arange(count, dtype=np.uint32)])

    def next_round(self) -> Round | None:
        """Return the round to run now; None when every component is finished."""
        if self._next is None:
            return None
        if self.rounds:
            self.reran += sum(task.size for task in self._next)
        self._last, self._next = self._next, None
        self.rounds += 1
        for task, positions in enumerate(self._last):
            self._run[positions] = self.rounds * self._tasks + task
            self._escaped[positions] = False
        return Round(self.rounds, self._last, self._ships())

    def absorb(self, findings: list[Finding]) -> None:
        """Take the findings of the last round, one for each task in order, and validate."""
        assert len(findings) == len(self._last), "every task reports"
        for finding in findings:
            self._escaped[finding.escaped] = True
        self._touches = self._touches.and_also([finding.touches for finding in findings])
        if self._alone():
            return
        labels = components(self._count, self._touches)
        again = np.flatnonzero(self._unfinished(labels)).astype(np.uint32)
        if again.size:
            self._next = tuple(
                balance(again, labels, self._tasks)
                if self._hosts is None
                else place(again, labels, self._touches, self._hosts, self._tasks)
            )

    def superseded(self, number: int) -> Positions:
        """Return the positions that have run, or run now, in a later round than `number`.

        What round `number` produced of them is void.
        """
        return np.flatnonzero(self._run >= (number + 1) * self._tasks).astype(np.uint32)

    def _ships(self) -> tuple[Fingerprints, ...]:
        """Return for each task of the round what its transactions touch and its host lacks."""
        if self._hosts is None or self._touches.position.size == 0:
            return (np.empty(0, np.uint64),) * self._tasks
        return tuple(
            self._hosts.foreign(
                self._touches.entity[np.isin(self._touches.position, positions)], task
            )
            for task, positions in enumerate(self._last)
        )

    def _alone(self) -> bool:
        """Say whether one run executed the whole epoch: then nothing can be in conflict."""
        return bool((self._run == self._run[:1]).all()) and not self._escaped.any()

    def _unfinished(self, labels: Labels) -> Flags:
        """Flag the transactions whose component no single run has executed without escape."""
        found = int(labels.max(initial=-1)) + 1
        lowest = np.full(found, np.iinfo(np.int64).max)
        highest: npt.NDArray[np.int64] = np.full(found, -1, np.int64)
        np.minimum.at(lowest, labels, self._run)
        np.maximum.at(highest, labels, self._run)
        torn: Flags = lowest != highest
        torn[labels[self._escaped]] = True
        return torn[labels]
