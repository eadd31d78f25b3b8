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
    # An epoch in one task needs no components, and the import would take a fifth of the processor time of a
    # driver's start.
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    order = np.argsort(accesses.entity)
    entity, position = accesses.entity[order], accesses.position[order].astype(np.int64)
    begins = np.flatnonzero(np.diff(entity, prepend=~entity[:1]))
    written = np.logical_or.reduceat(accesses.wrote[order], begins)
    joins = np.repeat(written, np.diff(begins, append=entity.size))
    joins[begins] = False  # the first access of an entity has no neighbour before it
    later = np.flatnonzero(joins)
    ends = position[later - 1], position[later]
    graph = coo_array((np.ones(later.size, np.int8), ends), shape=(count, count))
    labels: Labels = connected_components(graph, directed=False)[1]
    return labels
