"""Access sets: which entities the transactions of an epoch read and wrote, as columns of numbers."""

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
