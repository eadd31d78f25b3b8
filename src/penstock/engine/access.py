"""Access sets: which entities the transactions of an epoch read and wrote, as columns of numbers; and their conflicts.

An entity that any transaction wrote joins all transactions that accessed it: this is the conflict graph. Transactions in
different connected components cannot affect each other, in any order and place of execution. The graph has transactions
only: accesses are sorted by entity, and an edge joins the neighbours that accessed the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.uint32]
"""Positions of transactions in their epoch, from 0, in log order; shape (n,)."""

Fingerprints = npt.NDArray[np.uint64]
"""64-bit hashes of entity keys; shape (n,)."""

Flags = npt.NDArray[np.bool_]

Labels = npt.NDArray[np.int32]
"""The number of the component of each position; shape (transactions,)."""


@dataclass(frozen=True, slots=True)
class AccessSet:
    """Read and write sets: row *i* says that `position[i]` accessed the entity `entity[i]`.

    Attributes:
        position: The transaction's position in its epoch; uint32, shape (n,).
        entity: Fingerprint of the entity's key; uint64, shape (n,).
        wrote: True for a write, False for a read; bool, shape (n,).
    """

    position: Positions
    entity: Fingerprints
    wrote: Flags

    @classmethod
    def empty(cls) -> Self:
        """Return an access set without rows."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.uint64), np.empty(0, np.bool_))

    def union(self, others: Sequence["AccessSet"]) -> "AccessSet":
        """Return the rows of this access set, followed by the rows of the others."""
        parts = [self, *others]
        return AccessSet(
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.entity for part in parts]),
            np.concatenate([part.wrote for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class TaskAccess:
    """The accesses of a task's transactions, and the transactions that escaped."""

    accesses: AccessSet
    escaped: Positions


def components(count: int, accesses: AccessSet) -> Labels:
    """Label the transactions 0 … count-1 of an epoch by connected component.

    Returns:
        int32, shape (count,). Transactions that share only entities that were never written have
        different labels.
    """
    if accesses.position.size == 0:
        return np.arange(count, dtype=np.int32)
    assert int(accesses.position.max()) < count, "positions lie in the epoch"
    order = np.argsort(accesses.entity)
    entity, position = accesses.entity[order], accesses.position[order].astype(np.int64)
    begins = np.flatnonzero(np.diff(entity, prepend=~entity[:1]))
    written = np.logical_or.reduceat(accesses.wrote[order], begins)
    joins = np.repeat(written, np.diff(begins, append=entity.size))
    joins[begins] = False  # the first access of an entity has no neighbour before it
    later = np.flatnonzero(joins)
    least = _least_members(count, position[later - 1], position[later])
    numbers = np.cumsum(least == np.arange(count), dtype=np.int32) - 1
    labels: Labels = numbers[least]
    return labels


def _least_members(
    count: int, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the least member of the component of each of `count` nodes; edges join `left` and `right`.

    Each node points to a member of its component that is not greater, and at last to the least one (Shiloach and
    Vishkin, 1982). SciPy has the same, but its import would take a fifth of the processor time of a driver's start.
    """
    least = np.arange(count, dtype=np.int64)
    while left.size:
        # Each node points to its least neighbour. If a node has no smaller one, all of its neighbours now point to it, or one
        # of them points to a node that is still smaller, which the next round finds. So two rounds leave half of the nodes.
        np.minimum.at(least, np.maximum(left, right), np.minimum(left, right))
        while not np.array_equal(least, further := least[least]):
            least = further
        left, right = least[left], least[right]
        apart = left != right
        left, right = left[apart], right[apart]
    return least
