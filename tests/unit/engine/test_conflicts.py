"""Components of the graph transactions x entities, against a twin that merges sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.access import AccessSet, components

Touch = tuple[int, int, bool]
"""Position, entity, whether it was written."""

COUNT = 8
hint = st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 9), st.booleans()))


def columns(rows: list[Touch]) -> AccessSet:
    return AccessSet(
        np.array([row[0] for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.uint64) + np.uint64(2**63),  # as large as hashes are
        np.array([row[2] for row in rows], np.bool_),
    )


def groups_of(rows: list[Touch]) -> set[frozenset[int]]:
    labels = components(COUNT, columns(rows))
    assert labels.shape == (COUNT,)
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in labels}


def merged(rows: list[Touch]) -> set[frozenset[int]]:
    """Merge, one written entity after the other, the groups of all who touched it."""
    groups = {frozenset([position]) for position in range(COUNT)}
    for entity in {entity for _, entity, wrote in rows if wrote}:
        concerned = {position for position, touched, _ in rows if touched == entity}
        joined = {group for group in groups if group & concerned}
        groups = (groups - joined) | {frozenset().union(*joined)}
    return groups


@given(hint)
def test_components_equal_merged_sets(rows: list[Touch]) -> None:
    """Any touches give the components that merging sets gives."""
    assert groups_of(rows) == merged(rows)


def test_entity_that_nobody_wrote_joins_nothing() -> None:
    """However many read an entity, they cannot affect each other."""
    assert groups_of([(0, 7, False), (1, 7, False)]) == merged([])


def test_writer_joins_every_reader() -> None:
    """One write joins all who looked, before and after it."""
    rows = [(0, 7, False), (3, 7, True), (5, 7, False)]
    assert frozenset({0, 3, 5}) in groups_of(rows)


def test_touches_of_several_tasks_are_one() -> None:
    """A writer that one task reports joins a reader that another task reports."""
    touched = columns([(0, 7, False)]).union([AccessSet.empty(), columns([(1, 7, True)])])
    assert len(set(components(2, touched).tolist())) == 1


def test_transaction_that_joins_all_others_costs_few_rounds() -> None:
    """The last transaction touches what each other one wrote: in any order of the entities, this is one component at once.

    With a round for each transaction, the test would take minutes.
    """
    count = 100_000
    for entities in (range(count), reversed(range(count))):
        written = [(position, entity, True) for position, entity in enumerate(entities)]
        rows = written + [(count, entity, False) for entity in range(count)]
        assert set(components(count + 1, columns(rows)).tolist()) == {0}
