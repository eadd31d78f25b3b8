"""Task assignment: each position once, in log order, related transactions together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import BUCKETS
from penstock.engine.access import AccessSet, Positions
from penstock.engine.order import Hosts, balance, hinted_access, place

tasks_of = st.integers(1, 4)
component_lists = st.lists(st.integers(0, 5), min_size=1, max_size=20)


def blob(*entities: int) -> bytes:
    return b"".join(entity.to_bytes(8, "little") for entity in entities)


def check(given_tasks: list[Positions], positions: list[int], labels: list[int]) -> None:
    """Every position once, ascending in its task, and no component in two tasks."""
    assert sorted(np.concatenate(given_tasks).tolist()) == positions
    seen: set[int] = set()
    for task in given_tasks:
        assert (np.diff(task.astype(np.int64)) > 0).all(), "log order"
        mine = {labels[position] for position in task.tolist()}
        assert not mine & seen, "a component is in two tasks"
        seen |= mine


@given(component_lists, tasks_of, st.data())
def test_balance_keeps_components_whole(labels: list[int], tasks: int, data: st.DataObject) -> None:
    """Every position that runs again is assigned once, in log order, in whole components."""
    wanted = data.draw(st.sets(st.sampled_from(labels), min_size=1))
    positions = [position for position, label in enumerate(labels) if label in wanted]
    given_tasks = balance(np.array(positions, np.uint32), np.array(labels, np.int32), tasks)
    assert len(given_tasks) == tasks
    check(given_tasks, positions, labels)


@given(component_lists, tasks_of, st.integers(1, 3), st.integers(0, 9))
def test_place_keeps_components_whole(labels: list[int], tasks: int, hosts: int, seed: int) -> None:
    """Placing by where entities live assigns every transaction once, whole components only."""
    chance = np.random.default_rng(seed)
    positions = list(range(len(labels)))
    touched = AccessSet(
        np.array(positions, np.uint32),
        chance.integers(0, 2**63, len(labels), np.uint64),
        np.ones(len(labels), np.bool_),
    )
    where = Hosts(
        tuple(task % hosts for task in range(tasks)), chance.integers(0, min(hosts, tasks), BUCKETS)
    )
    given_tasks = place(
        np.array(positions, np.uint32), np.array(labels, np.int32), touched, where, tasks
    )
    check(given_tasks, positions, labels)


def test_place_prefers_the_host_of_most_entities() -> None:
    """Of two components each goes to the host where its entities live."""
    of_bucket = np.arange(BUCKETS) % 2
    touched = AccessSet(
        np.array([0, 0, 1, 1], np.uint32),
        np.array([1, 3, 2, 4], np.uint64),
        np.ones(4, np.bool_),
    )
    first, second = place(
        np.array([0, 1], np.uint32),
        np.array([0, 1], np.int32),
        touched,
        Hosts((0, 1), of_bucket),
        2,
    )
    assert (first.tolist(), second.tolist()) == ([1], [0])


def test_foreign_entities_are_those_of_other_hosts() -> None:
    """A task needs the entities that its host does not hold, each once."""
    hosts = Hosts((0, 1), np.arange(BUCKETS) % 2)
    entities = np.array([4, 3, 3, 6, 5], np.uint64)
    assert hosts.foreign(entities, 0).tolist() == [3, 5]
    assert hosts.foreign(entities, 1).tolist() == [4, 6]


def test_known_touches_are_read_back() -> None:
    """The fingerprints in log entries come back with the position of their entry."""
    touched = hinted_access([blob(5, 2**64 - 1), b"", blob(5)])
    assert touched.position.tolist() == [0, 0, 2]
    assert touched.entity.tolist() == [5, 2**64 - 1, 5]
    assert touched.wrote.all()
