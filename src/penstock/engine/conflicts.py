"""Which transactions can affect each other: components of the graph transactions x entities.

An entity joins the transactions that touched it if one of them wrote it. Two transactions in
different components cannot affect each other, in whatever order and place they run. Connected
components are scipy's (Pearce's algorithm); this module builds the graph.
"""

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from penstock.engine.touches import Touches

Labels = npt.NDArray[np.int32]
"""For each position the number of its component."""


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
