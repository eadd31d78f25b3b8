"""Which transactions can affect each other: components of the graph transactions x entities.

An entity joins the transactions that touched it if one of them wrote it. Two transactions in
different components cannot affect each other, in whatever order and place they run. Connected
components are scipy's (Pearce's algorithm); this module builds the graph.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Positions = npt.NDArray[np.uint32]
"""Positions of transactions in their epoch, from 0, in log order."""

Fingerprints = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int32]
"""For each position the number of its component."""


@dataclass(frozen=True, slots=True)
class Touches:
    """Who touched what: row *i* says that `position[i]` touched the entity `entity[i]`.

    Attributes:
        position: Of the transaction.
        entity: Fingerprint of the entity's key.
        wrote: Whether it changed the entity, or only looked.
    """

    position: Positions
    entity: Fingerprints
    wrote: Flags

    @classmethod
    def none(cls) -> Self:
        """Return no touches."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.uint64), np.empty(0, np.bool_))

    def and_also(self, others: list["Touches"]) -> "Touches":
        """Return these touches and those of others."""
        every = [self, *others]
        return Touches(
            np.concatenate([one.position for one in every]),
            np.concatenate([one.entity for one in every]),
            np.concatenate([one.wrote for one in every]),
        )


def components(count: int, touches: Touches) -> Labels:
    """Label the transactions 0 … count-1 of an epoch by component.

    An entity that nobody wrote joins nothing.
    """
    if touches.position.size == 0:
        return np.arange(count, dtype=np.int32)
    entities, index = np.unique(touches.entity, return_inverse=True)
    written = np.zeros(entities.size, np.bool_)
    written[index[touches.wrote]] = True
    joins = written[index]
    ends = touches.position[joins].astype(np.int64), index[joins] + count
    size = count + entities.size
    graph = coo_array((np.ones(ends[0].size, np.int8), ends), shape=(size, size))
    labels: Labels = connected_components(graph, directed=False)[1]
    return labels[:count]
