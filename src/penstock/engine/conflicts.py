"""Conflict graph: which transactions of an epoch can affect each other.

An entity that any transaction wrote joins all transactions that accessed it. Transactions in different connected
components cannot affect each other, in any order and place of execution.

The graph has transactions only: accesses are sorted by entity, and an edge joins the neighbours that accessed the same
one. `scipy.sparse.csgraph.connected_components` computes the components. The first computation imports scipy: an epoch in
one task needs none, and the import would take a fifth of the processor time of a driver's start.
"""

import numpy as np
import numpy.typing as npt

from penstock.engine.access import AccessSet

Labels = npt.NDArray[np.int32]
"""The number of the component of each position; shape (transactions,)."""


def components(count: int, accesses: AccessSet) -> Labels:
    """Label the transactions 0 … count-1 of an epoch by connected component.

    Returns:
        int32, shape (count,). Transactions that share only entities that were never written have
        different labels.
    """
    if accesses.position.size == 0:
        return np.arange(count, dtype=np.int32)
    assert int(accesses.position.max()) < count, "positions lie in the epoch"
    from scipy.sparse import coo_array  # noqa: PLC0415 -- see the module
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415 -- see the module

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
