"""The first round: requests that probably access the same entity run in one task."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.access import AccessSet, Positions, TaskAccess
from penstock.engine.access_memory import AccessMemory, FirstRounds
from penstock.engine.mentions import NONE, Mentions
from penstock.engine.order import hinted_access
from penstock.engine.step import EpochRun

Accessed = list[tuple[int, int, bool]]
"""Position, entity, and whether it was written."""

tasks_of = st.integers(1, 4)
entities = st.integers(0, 2**64 - 1)


def number(entity: int) -> int:
    """Return a fingerprint, whose bits are all in use, as those of a hash."""
    return (entity * 0x9E3779B97F4A7C15 + 0x123456789ABCDEF1) % 2**64


def blob(*some: int) -> bytes:
    return b"".join(number(entity).to_bytes(8, "little") for entity in some)


def access(accessed: Accessed) -> TaskAccess:
    columns = AccessSet(
        np.array([position for position, _, _ in accessed], np.uint32),
        np.array([number(entity) for _, entity, _ in accessed], np.uint64),
        np.array([wrote for _, _, wrote in accessed], np.bool_),
    )
    return TaskAccess(columns, np.empty(0, np.uint32))


def learn(rounds: FirstRounds, hints: list[bytes], accessed: Accessed, tasks: int = 2) -> None:
    """Let an epoch run to its end; every round has the same accesses."""
    run = EpochRun(len(hints), rounds.spread(hints, tasks))
    while (now := run.next_round()) is not None:
        run.absorb([_of(accessed, positions) for positions in now.tasks])
    rounds.learn(run)


def _of(accessed: Accessed, positions: Positions) -> TaskAccess:
    return access([row for row in accessed if row[0] in positions])


def together(tasks: list[Positions]) -> list[list[int]]:
    return sorted(task.tolist() for task in tasks)


def test_related_requests_stay_together() -> None:
    """Requests that share a root or an argument run in one task, in log order."""
    tasks = FirstRounds().spread([blob(1), blob(2), blob(1, 3), blob(2), blob(3)], 2)
    assert together(tasks) == [[0, 2, 4], [1, 3]]


@given(st.integers(1, 40), tasks_of)
def test_unrelated_requests_are_spread_evenly(count: int, tasks: int) -> None:
    """Of unrelated requests each task gets the same number, or one more."""
    hints = [blob(one) for one in range(count)]
    sizes = [task.size for task in FirstRounds().spread(hints, tasks)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 20), st.integers(0, 40), st.integers(2, 4))
def test_a_large_component_leaves_the_rest_to_others(related: int, count: int, tasks: int) -> None:
    """Beside a component that must stay whole, the rest fills the other tasks evenly."""
    hints = [blob(1)] * related + [blob(10 + one) for one in range(count)]
    sizes = sorted(task.size for task in FirstRounds().spread(hints, tasks))
    fair = -(-(related + count) // tasks)
    assert sizes[-1] == max(related, fair)
    assert sizes[-2] - sizes[0] <= 1


def test_memory_keeps_requests_together() -> None:
    """Two orders of one user run in the same task, when they have run before."""
    rounds = FirstRounds()
    hints = [blob(1), blob(2), blob(3), blob(4)]
    user, other = 50, 60
    accessed = [(0, 1, True), (1, 2, True), (2, 3, True), (3, 4, True)]
    accessed += [(0, user, True), (2, user, True), (1, other, True), (3, other, True)]
    assert together(rounds.spread(hints, 2)) == [[0, 1], [2, 3]]
    learn(rounds, hints, accessed)
    assert together(rounds.spread(hints, 2)) == [[0, 2], [1, 3]]
    assert together(rounds.spread([hints[3], b"", hints[0], hints[1]], 2)) == [[0, 3], [1, 2]]


def test_announced_accesses_are_not_remembered() -> None:
    """An account that was the target of a transfer is no part of the next transfer of its source."""
    rounds = FirstRounds()
    hints = [blob(1, 2), blob(3, 4)]
    learn(rounds, hints, [(0, 1, True), (0, 2, True), (1, 3, True), (1, 4, True)])
    assert together(rounds.spread([blob(1, 5), blob(2, 6)], 2)) == [[0], [1]]


def test_the_newest_accesses_count() -> None:
    """A root that has accessed another entity than before runs with the other users of this entity."""
    rounds = FirstRounds()
    hints = [blob(one) for one in range(4)]
    roots = [(one, one, True) for one in range(4)]
    learn(rounds, hints, [*roots, (0, 50, True), (1, 50, True), (2, 60, True), (3, 60, True)])
    learn(rounds, hints, [*roots, (0, 60, True), (2, 60, True), (1, 50, True), (3, 50, True)])
    assert together(rounds.spread(hints, 2)) == [[0, 2], [1, 3]]


def test_an_entity_that_is_only_read_joins_nothing() -> None:
    """A catalogue that all requests read, or name, does not bring them into one task."""
    rounds = FirstRounds()
    hints = [blob(one, 99) for one in range(8)]
    assert [task.size for task in rounds.spread(hints, 2)] == [8, 0]
    reads = [(one, 99, False) for one in range(8)] + [(one, 98, False) for one in range(8)]
    learn(rounds, hints, [(one, one, True) for one in range(8)] + reads)
    assert [task.size for task in rounds.spread(hints, 2)] == [4, 4]


def test_memory_leaves_no_task_alone_with_the_work() -> None:
    """If remembered accesses join most transactions, requests are spread by their hints."""
    rounds = FirstRounds()
    roots = [9, 0, 1, 2, 3, 4, 5, 9]
    hints = [blob(root) for root in roots]
    accessed = [(place, root, True) for place, root in enumerate(roots)]
    learn(rounds, hints, accessed + [(place, 99, True) for place in range(8)])
    assert together(rounds.spread(hints, 2)) == [[0, 5, 6, 7], [1, 2, 3, 4]]
    others = [blob(root) for root in (20, 0, 21, 1, 22, 2)]
    assert together(rounds.spread(others, 2)) == [[0, 2, 4], [1, 3, 5]]


def test_a_slot_has_the_newest_root() -> None:
    """Two roots with the same slot do not get each other's accesses."""
    memory = AccessMemory(slots=1)
    for root, entity in ((1, 50), (2, 60)):
        memory.learn(hinted_access([blob(root)]), access([(0, entity, True)]).accesses)
    _, known = memory.expected(hinted_access([blob(2), b"", blob(1), blob(2, 60)]))
    assert known.position.tolist() == [0, 3]
    assert len(set(known.entity.tolist())) == 1


def test_a_root_has_a_bounded_number_of_entities() -> None:
    """Of many accesses the table keeps the first seven."""
    memory = AccessMemory(slots=1)
    memory.learn(
        hinted_access([blob(1)]), access([(0, 50 + one, True) for one in range(20)]).accesses
    )
    _, known = memory.expected(hinted_access([blob(1)]))
    assert known.position.tolist() == [0] * 7


@given(
    st.lists(
        st.tuples(
            st.lists(st.lists(entities, max_size=4), min_size=1, max_size=12),
            st.lists(st.tuples(st.integers(0, 11), entities, st.booleans()), max_size=60),
        ),
        max_size=4,
    ),
    st.integers(2, 4),
)
def test_every_position_runs_once(
    epochs: list[tuple[list[list[int]], Accessed]], tasks: int
) -> None:
    """With any memory, each request is in one task, in log order."""
    rounds = FirstRounds()
    for named, accessed in epochs:
        hints = [blob(*some) for some in named]
        spread = rounds.spread(hints, tasks)
        assert sorted(np.concatenate(spread).tolist()) == list(range(len(hints)))
        assert all((np.diff(task.astype(np.int64)) > 0).all() for task in spread)
        learn(rounds, hints, [row for row in accessed if row[0] < len(hints)], tasks)


def pairs(*mentioned: tuple[int, int]) -> Mentions:
    return np.array([[number(one), number(other)] for one, other in mentioned], np.uint64)


def learn_rows(rounds: FirstRounds, *mentioned: tuple[int, int]) -> None:
    """Let an epoch of one task write rows with mentions."""
    rounds.learn(EpochRun.single_task(1), [NONE, pairs(*mentioned)])


def test_mentions_keep_the_first_requests_of_roots_together() -> None:
    """Two orders that mention one user run in the same task, though they have never run."""
    rounds = FirstRounds()
    hints = [blob(1), blob(2), blob(3), blob(4)]
    learn_rows(rounds, (1, 50), (1, 70), (2, 60), (3, 50), (4, 80), (4, 60))
    assert together(rounds.spread(hints, 2)) == [[0, 2], [1, 3]]


def test_accesses_are_known_better_than_mentions() -> None:
    """When a root has run, what it accessed counts, and not what its row mentions."""
    rounds = FirstRounds()
    hints = [blob(1), blob(2), blob(3), blob(4)]
    learn_rows(rounds, *((one, 50) for one in range(1, 5)))
    accessed = [(0, 60, True), (2, 60, True), (1, 70, True), (3, 70, True)]
    learn(rounds, hints, [*((one, one + 1, True) for one in range(4)), *accessed])
    assert together(rounds.spread(hints, 2)) == [[0, 2], [1, 3]]


def test_a_mentioned_entity_that_is_only_read_joins_nothing() -> None:
    """Orders that mention one catalogue, which nobody changes, are spread."""
    rounds = FirstRounds()
    learn(rounds, [blob(1), blob(2)], [(0, 1, True), (1, 2, True), (0, 99, False), (1, 99, False)])
    learn_rows(rounds, *((one, 99) for one in range(3, 11)))
    hints = [blob(one) for one in range(3, 11)]
    assert [task.size for task in rounds.spread(hints, 2)] == [4, 4]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=60), tasks_of)
def test_any_mentions_leave_every_request_in_one_task(
    mentioned: list[tuple[int, int]], tasks: int
) -> None:
    """Whatever rows mention, more than a root can remember too, each request runs once."""
    rounds = FirstRounds()
    if mentioned:
        learn_rows(rounds, *sorted(mentioned))
    parts = rounds.spread([blob(one) for one in range(10)], tasks)
    assert sorted(np.concatenate(parts).tolist()) == list(range(10))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=12),
        min_size=1,
        max_size=8,
    )
)
def test_memory_learns_many_epochs_at_once(epochs: list[list[tuple[int, int]]]) -> None:
    """Memory that learns the mentions of many epochs at once knows the same as memory that learns them in turn."""
    mentions = [pairs(*sorted(epoch)) for epoch in epochs]
    at_once, in_turn = AccessMemory(slots=16), AccessMemory(slots=16)
    at_once.learn_mentions(mentions)
    for each in mentions:
        in_turn.learn_mentions([each])
    hinted = hinted_access([blob(one) for one in range(10)])
    (_, some), (_, others) = at_once.expected(hinted), in_turn.expected(hinted)
    assert some.position.tolist() == others.position.tolist()
    assert some.entity.tolist() == others.entity.tolist()
    assert some.wrote.tolist() == others.wrote.tolist()
