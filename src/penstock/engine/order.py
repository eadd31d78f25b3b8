"""Who runs what: spreading an epoch's transactions over tasks, in log order within each.

Where a transaction runs never changes an outcome, only how often it runs. So everything here may
be heuristic, and is: keep together what is related, put the large first, balance the rest.
"""

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from penstock.base.ids import BUCKETS
from penstock.engine.conflicts import Labels, components
from penstock.engine.touches import Fingerprints, Positions, Touches


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where tasks run and entities live, when there is more than one host.

    Attributes:
        of_task: The host of each task, numbered from 0.
        of_bucket: The host of each of the 1,024 buckets.
    """

    of_task: tuple[int, ...]
    of_bucket: npt.NDArray[np.int64]

    def of(self, entities: Fingerprints) -> npt.NDArray[np.int64]:
        """Return the hosts on which entities live."""
        return self.of_bucket[(entities % np.uint64(BUCKETS)).astype(np.int64)]

    def foreign(self, entities: Fingerprints, task: int) -> Fingerprints:
        """Return the entities, each once, that a task's host does not hold."""
        found: Fingerprints = np.unique(entities[self.of(entities) != self.of_task[task]])
        return found


def known_touches(blobs: list[bytes]) -> Touches:
    """Read the fingerprints that log entries carry: what requests touch before they run.

    All count as written, because nothing more is known of them.
    """
    entity = np.frombuffer(b"".join(blobs), np.dtype("<u8")).astype(np.uint64)
    counts = np.fromiter((len(blob) >> 3 for blob in blobs), np.int64, len(blobs))
    position = np.repeat(np.arange(len(blobs), dtype=np.uint32), counts)
    return Touches(position, entity, np.ones(entity.size, np.bool_))


def spread(blobs: list[bytes], tasks: int) -> list[Positions]:
    """Assign a whole epoch to tasks; requests that share a root or an argument stay together."""
    labels = components(len(blobs), known_touches(blobs))
    return balance(np.arange(len(blobs), dtype=np.uint32), labels, tasks)


def balance(positions: Positions, labels: Labels, tasks: int) -> list[Positions]:
    """Assign positions to tasks, whole components only, large ones first, the rest evenly.

    Args:
        positions: What is to be run, ascending.
        labels: The component of every position of the epoch.
        tasks: How many tasks there are; some may get nothing.
    """
    if tasks == 1:
        return [positions]
    _, index, sizes = np.unique(labels[positions], return_inverse=True, return_counts=True)
    task_of = _place(sizes, tasks)[index]
    return [positions[task_of == task] for task in range(tasks)]


def place(
    positions: Positions, labels: Labels, touches: Touches, hosts: Hosts, tasks: int
) -> list[Positions]:
    """Assign components to the hosts where most of their entities live, as load allows.

    Large components choose first. A host whose tasks have their fair share takes no more.
    """
    _, index, sizes = np.unique(labels[positions], return_inverse=True, return_counts=True)
    component = np.full(labels.size, -1, np.int64)
    component[positions] = index
    concerned = component[touches.position] >= 0
    homes = np.zeros((sizes.size, max(hosts.of_task) + 1), np.int64)
    of_touch = component[touches.position[concerned]], hosts.of(touches.entity[concerned])
    np.add.at(homes, of_touch, 1)
    fair = positions.size / tasks
    loads = [0] * tasks
    task_of = np.zeros(sizes.size, np.int64)
    for one in np.argsort(-sizes, kind="stable").tolist():
        home = int(homes[one].argmax())
        there = [task for task in range(tasks) if hosts.of_task[task] == home]
        chosen = min(there, key=loads.__getitem__) if there else -1
        if chosen < 0 or (loads[chosen] and loads[chosen] + sizes[one] > fair + 1):
            chosen = min(range(tasks), key=loads.__getitem__)
        task_of[one] = chosen
        loads[chosen] += int(sizes[one])
    return [positions[task_of[index] == task] for task in range(tasks)]


def _place(sizes: npt.NDArray[np.int64], tasks: int) -> npt.NDArray[np.int64]:
    """Return a task for each component: greedy by load for those of several transactions."""
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


def _level(loads: list[tuple[int, int]], count: int) -> npt.NDArray[np.int64]:
    """Return tasks for `count` equal components, so that loads end as equal as can be.

    Like water: it stands equally high over the lightest tasks, and does not reach the others.
    """
    height, task = np.array(sorted(loads), np.int64).T
    levels = (count + height.cumsum()) // np.arange(1, task.size + 1)  # over the first 1, 2, …
    reached = np.count_nonzero(levels >= height)
    room = levels[reached - 1] - height[:reached]
    room[: count - room.sum()] += 1
    return np.repeat(task[:reached], room)
