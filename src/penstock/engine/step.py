"""The rounds of one epoch, as a state machine without I/O.

The caller runs each `Round` on its tasks, passes their results to `absorb`, and repeats
until `next_round` returns None. Then the latest run of every transaction is valid, and its earlier
runs are void.

Why the result equals serial execution in log order:

1. A task executes its transactions in log order over the committed state. A component of the
   conflict graph (`access`) that a run executed whole, without an escape, read the values
   that serial execution would have read: no transaction outside the component wrote any of it.
2. Every other component runs again, whole, in one task. Then all components are validated again, the
   finished ones too, because a transaction that runs again may access other entities than before.
3. The access sets of all runs of a transaction are united, so components only grow. The rounds end,
   at the latest when one task has executed the whole epoch.

Sources: the order is fixed before execution, as in Calvin (Thomson et al., SIGMOD 2012). Transactions
run before their read and write sets are known, and those in conflict run again, as in Aria (Lu et
al., PVLDB 2020) and, for stateful dataflows, Styx (Psarakis et al., arXiv 2023, SIGMOD 2025). Unlike
Aria, no transaction moves to a later batch, so the outcome is that of the log's order.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from penstock.engine.access import (
    AccessSet,
    Fingerprints,
    Flags,
    Labels,
    Positions,
    TaskAccess,
    components,
)
from penstock.engine.order import Hosts, balance, place


@dataclass(frozen=True, slots=True)
class Round:
    """The work of one round.

    Attributes:
        number: The number of the round, from 1.
        tasks: The positions of each task, ascending; may be empty.
        ships: The entities that each task needs and its host does not hold.
    """

    number: int
    tasks: tuple[Positions, ...]
    ships: tuple[Fingerprints, ...]


class EpochRun:
    """The rounds of one epoch.

    Attributes:
        tasks: Number of tasks of each round.
        accesses: The accesses of all runs of its transactions, so far.

    Args:
        first: The positions of each task, ascending; together every position once.
        hosts: The hosts of tasks and entities; None if every task can read every entity.
    """

    def __init__(self, count: int, first: list[Positions], hosts: Hosts | None = None) -> None:
        assert sum(task.size for task in first) == count, "the first round runs everything"
        self._count = count
        self.tasks = len(first)
        self._hosts = hosts
        self.accesses = AccessSet.empty()
        self._run = np.full(count, -1, np.int64)  # of the latest run: round * tasks + task
        self._escaped = np.zeros(count, np.bool_)
        self._next: tuple[Positions, ...] | None = tuple(first)
        self._last: tuple[Positions, ...] = ()
        self.rounds = 0
        self.reran = 0

    @classmethod
    def single_task(cls, count: int) -> Self:
        """Begin an epoch that a task runs whole, where no conflict is possible."""
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
            self._run[positions] = self.rounds * self.tasks + task
            self._escaped[positions] = False
        return Round(self.rounds, self._last, self._ships())

    def absorb(self, results: list[TaskAccess]) -> None:
        """Take the results of the last round, one for each task in order, and validate."""
        assert len(results) == len(self._last), "every task reports"
        for result in results:
            self._escaped[result.escaped] = True
        self.accesses = self.accesses.union([result.accesses for result in results])
        if self._ran_in_one_task():
            return
        labels = components(self._count, self.accesses)
        again = np.flatnonzero(self._unfinished(labels)).astype(np.uint32)
        if again.size:
            self._next = tuple(
                balance(again, labels, self.tasks)
                if self._hosts is None
                else place(again, labels, self.accesses, self._hosts, self.tasks)
            )

    def superseded(self, number: int) -> Positions:
        """Return the positions that have run, or run now, in a later round than `number`.

        The output of round `number` for these positions is void.
        """
        return np.flatnonzero(self._run >= (number + 1) * self.tasks).astype(np.uint32)

    def _ships(self) -> tuple[Fingerprints, ...]:
        if self._hosts is None or self.accesses.position.size == 0:
            return (np.empty(0, np.uint64),) * self.tasks
        return tuple(
            self._hosts.foreign(
                self.accesses.entity[np.isin(self.accesses.position, positions)], task
            )
            for task, positions in enumerate(self._last)
        )

    def _ran_in_one_task(self) -> bool:
        return bool((self._run == self._run[:1]).all()) and not self._escaped.any()

    def _unfinished(self, labels: Labels) -> Flags:
        """Flag the transactions whose component was not executed whole, without escape, by one run.

        Returns:
            bool, shape (count,).
        """
        size = int(labels.max(initial=-1)) + 1
        lowest = np.full(size, np.iinfo(np.int64).max)
        highest: npt.NDArray[np.int64] = np.full(size, -1, np.int64)
        np.minimum.at(lowest, labels, self._run)
        np.maximum.at(highest, labels, self._run)
        torn: Flags = lowest != highest
        torn[labels[self._escaped]] = True
        return torn[labels]
