"""Placement: which task executes which transactions of an epoch, in log order within each task.

Placement never changes an outcome. It only decides how many transactions must run again. So this
module is heuristic: it keeps related transactions together, places large components first, and
balances the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from penstock.base.ids import BUCKETS
from penstock.engine.access import AccessSet, Fingerprints, Labels, Positions

Tasks = npt.NDArray[np.int64]
"""Numbers of tasks, from 0."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where tasks run and entities live, when there is more than one host.

    Attributes:
        of_task: The host of each task, numbered from 0.
        of_bucket: The host of each of the 1,024 buckets; int64, shape (1024,).
    """

    of_task: tuple[int, ...]
    of_bucket: npt.NDArray[np.int64]

    def of(self, entities: Fingerprints) -> npt.NDArray[np.int64]:
        """Return the host of each entity; int64, in the shape of `entities`."""
        return self.of_bucket[(entities % np.uint64(BUCKETS)).astype(np.int64)]

    def foreign(self, entities: Fingerprints, task: int) -> Fingerprints:
        """Return the distinct entities that a task's host does not hold."""
        foreign: Fingerprints = np.unique(entities[self.of(entities) != self.of_task[task]])
        return foreign


def hinted_access(hints: list[bytes]) -> AccessSet:
    """Return the access set that log entries announce, before any of them has run.

    Args:
        hints: The fingerprints of the entities in each request, in the order of positions:
            little-endian uint64, concatenated.
    """
    entity = np.frombuffer(b"".join(hints), np.dtype("<u8")).astype(np.uint64)
    counts = np.fromiter((len(hint) >> 3 for hint in hints), np.int64, len(hints))
    position = np.repeat(np.arange(len(hints), dtype=np.uint32), counts)
    # A hint does not tell reads from writes, so all accesses count as writes.
    return AccessSet(position, entity, np.ones(entity.size, np.bool_))


def balance(positions: Positions, labels: Labels, tasks: int) -> list[Positions]:
    """Assign whole components to tasks: large components first, then the rest evenly.

    Args:
        positions: The positions to run, ascending.
        labels: The component of every position of the epoch.
        tasks: Number of tasks.

    Returns:
        For each task its positions, ascending; may be empty.
    """
    if tasks == 1:
        return [positions]
    return _assign(positions, labels, tasks, lambda _, sizes: _place(sizes, tasks))


def place(
    positions: Positions, labels: Labels, accesses: AccessSet, hosts: Hosts, tasks: int
) -> list[Positions]:
    """Assign components to the hosts where most of their entities live, as load allows.

    Large components choose first. A host takes no component beyond the fair share of its tasks.

    Args:
        positions: The positions to run, ascending.
        labels: The component of every position of the epoch.
        tasks: Number of tasks.

    Returns:
        For each task its positions, ascending; may be empty.
    """

    def choose(index: Tasks, sizes: Tasks) -> Tasks:
        component = np.full(labels.size, -1, np.int64)
        component[positions] = index
        concerned = component[accesses.position] >= 0
        # homes[component, host]: how many accesses of the component go to entities of the host
        homes = np.zeros((sizes.size, max(hosts.of_task) + 1), np.int64)
        cells = component[accesses.position[concerned]], hosts.of(accesses.entity[concerned])
        np.add.at(homes, cells, 1)
        fair = positions.size / tasks
        loads = [0] * tasks
        task_of = np.zeros(sizes.size, np.int64)
        for number in np.argsort(-sizes, kind="stable").tolist():
            home = int(homes[number].argmax())
            local = [task for task in range(tasks) if hosts.of_task[task] == home]
            chosen = min(local, key=loads.__getitem__) if local else -1
            if chosen < 0 or (loads[chosen] and loads[chosen] + sizes[number] > fair + 1):
                chosen = min(range(tasks), key=loads.__getitem__)
            task_of[number] = chosen
            loads[chosen] += int(sizes[number])
        return task_of

    return _assign(positions, labels, tasks, choose)


def _assign(
    positions: Positions, labels: Labels, tasks: int, choose: Callable[[Tasks, Tasks], Tasks]
) -> list[Positions]:
    """Split positions by the task of their component, which `choose(index, sizes)` returns."""
    _, index, sizes = np.unique(labels[positions], return_inverse=True, return_counts=True)
    task_of = choose(index, sizes)[index]
    return [positions[task_of == task] for task in range(tasks)]


def _place(sizes: npt.NDArray[np.int64], tasks: int) -> Tasks:
    """Return the task of each component; components of several transactions go to the least load.

    Args:
        sizes: Transactions of each component; int64, shape (components,).
        tasks: Number of tasks.

    Returns:
        int64, shape (components,).
    """
    placed = np.zeros(sizes.size, np.int64)
    loads = [(0, task) for task in range(tasks)]
    heapify(loads)
    several = np.flatnonzero(sizes > 1)
    for component in several[np.argsort(-sizes[several], kind="stable")].tolist():
        load, task = loads[0]
        placed[component] = task
        heapreplace(loads, (load + int(sizes[component]), task))
    single = np.flatnonzero(sizes == 1)
    placed[single] = _level(loads, single.size)
    return placed


def _level(loads: list[tuple[int, int]], count: int) -> Tasks:
    """Return tasks for `count` components of one transaction, so that loads end nearly equal.

    Water filling: the lightest tasks rise to one common level, and the others get nothing.

    Args:
        loads: Load and number of each task.

    Returns:
        int64, shape (count,), ascending by load.
    """
    height, task = np.array(sorted(loads), np.int64).T
    levels = (count + height.cumsum()) // np.arange(1, task.size + 1)  # over the first 1, 2, …
    reached = np.count_nonzero(levels >= height)
    room = levels[reached - 1] - height[:reached]
    room[: count - room.sum()] += 1
    assert room.sum() == count, "every component has a task"
    return np.repeat(task[:reached], room)
