"""Conflict graph: which transactions of an epoch can affect each other.

The graph has a node for each transaction and for each entity. An edge joins a transaction and an
entity that it accessed, if any transaction wrote that entity. Transactions in different connected
components cannot affect each other, in any order and place of execution.

`scipy.sparse.csgraph.connected_components` computes the components. The first computation imports scipy: an epoch in
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

    entities, index = np.unique(accesses.entity, return_inverse=True)
    written = np.zeros(entities.size, np.bool_)
    written[index[accesses.wrote]] = True
    joins = written[index]
    # Nodes: transactions are 0 … count-1, and entity i is count + i.
    ends = accesses.position[joins].astype(np.int64), index[joins] + count
    size = count + entities.size
    graph = coo_array((np.ones(ends[0].size, np.int8), ends), shape=(size, size))
    labels: Labels = connected_components(graph, directed=False)[1]
    return labels[:count]
