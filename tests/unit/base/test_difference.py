"""Differences of values are found element by element, are complete, and stay bounded."""

import copy
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from penstock.base.difference import (
    DEPTH_MAX,
    ELEMENTS_MAX,
    SHOWN_MAX,
    ElementDifference,
    attribute_differences,
    element_differences,
)

LINE = {"item": "tea", "quantity": 3}


def told(before: Any, after: Any) -> list[str]:
    found = element_differences("x", before, after).shown
    return [f"{one.path} {one.kind} {_side(one.before)} {_side(one.after)}" for one in found]


def _side(value: Any) -> str:
    return "-" if value is UNSET else repr(value)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([LINE, LINE, LINE], [LINE, LINE, {**LINE, "quantity": 4}], ["x[2].quantity changed 3 4"]),
        ([1, 2, 3], [1, 2, 3, 4], ["x[3] added - 4"]),
        ([1, 2, 3], [0, 1, 2, 3], ["x[0] added - 0"]),
        ([1, 2, 3, 4], [1, 3, 4], ["x[1] removed 2 -"]),
        ([1, 2, 3, 4, 5], [1, 9, 3, 5], ["x[1] changed 2 9", "x[3] removed 4 -"]),
        (["a", "b", "c", "d"], ["d", "a", "b", "c"], ["x[0] added - 'd'", "x[3] removed 'd' -"]),
        ([[1, "tea"]], [[2, "tea"]], ["x[0][0] changed 1 2"]),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4},
         ["x.a removed 1 -", "x.b changed 2 3", "x.c added - 4"]),
        ({"a b": 1}, {"a b": 2}, ['x["a b"] changed 1 2']),
        ({7: [1]}, {7: [1, 2]}, ["x[7][1] added - 2"]),
        ([], [1], ["x[0] added - 1"]),
        ([1], {"a": 1}, ["x changed [1] {'a': 1}"]),
        (1, True, ["x changed 1 True"]),
        ([1], [1.0], ["x[0] changed 1 1.0"]),
        ({1: "a"}, {True: "a"}, ["x changed {1: 'a'} {True: 'a'}"]),
        ([math.nan], [math.nan], []),
        (None, None, []),
        ({"k": "v"}, {"k": "v"}, []),
    ],
)  # fmt: skip
def test_difference_is_told_by_element(before: Any, after: Any, expected: list[str]) -> None:
    """A path leads to the smallest element that was changed, added or removed."""
    assert told(before, after) == expected


def test_entity_that_is_created_or_deleted_has_all_its_attributes() -> None:
    """An entity that did not exist has no attributes."""
    assert attribute_differences(None, {"stock": 1}).shown == [
        ElementDifference("stock", "added", after=1)
    ]
    assert attribute_differences({"stock": 1}, None).shown == [
        ElementDifference("stock", "removed", before=1)
    ]


SCALARS = st.none() | st.booleans() | st.integers(0, 5) | st.sampled_from(["", "a", "b c", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abc"), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(before=VALUES, after=VALUES)
def test_differing_values_have_a_difference_and_equal_ones_have_none(
    before: Any, after: Any
) -> None:
    """The smallest elements are told, and every difference is one: its sides differ."""
    found = element_differences("x", before, after).shown
    same = repr(before) == repr(after)
    assert bool(found) != same or (before == after and repr(before) != repr(after))
    for one in found:
        assert repr(one.before) != repr(one.after)
        assert (one.before is UNSET) == (one.kind == "added")
        assert (one.after is UNSET) == (one.kind == "removed")


@settings(max_examples=200, deadline=None)
@given(
    before=st.lists(st.integers(0, 9), max_size=30),
    after=st.lists(st.integers(0, 9), max_size=30),
)
def test_differences_lead_from_one_list_to_the_other(before: list[int], after: list[int]) -> None:
    """The removals, changes and additions of a list make the second list from the first."""
    found = element_differences("x", before, after).shown
    at: dict[str, dict[int, Any]] = {"changed": {}, "added": {}, "removed": {}}
    for one in found:
        at[one.kind][int(one.path[2:-1])] = one
    kept = [item for place, item in enumerate(before) if place not in at["removed"]]
    places = [place for place in range(len(after)) if place not in at["added"]]
    for item, place in zip(kept, places, strict=True):
        change = at["changed"].get(place)
        assert after[place] == (item if change is None else change.after)
        assert change is None or change.before == item
    for kind, values, side in (("removed", before, "before"), ("added", after, "after")):
        assert all(values[place] == getattr(one, side) for place, one in at[kind].items())


def test_long_lists_are_compared_in_linear_time() -> None:
    """A change inside a long list is found, whatever lies around it."""
    before = [{"n": number, "text": "x" * 20} for number in range(40_000)]
    after = copy.deepcopy(before)
    after[20_000]["n"] = -1
    del after[30_000]
    after.insert(10, {"n": -2})
    began = time.process_time()
    assert [(one.path, one.kind) for one in element_differences("x", before, after).shown] == [
        ("x[10]", "added"),
        ("x[20001].n", "changed"),
        ("x[30000]", "removed"),
    ]
    same = [0] * ELEMENTS_MAX
    assert element_differences("x", same, [*same, 1]).shown[0].path == f"x[{ELEMENTS_MAX}]"
    assert time.process_time() - began < 20


def test_work_and_size_are_bounded() -> None:
    """Values that are too long or too deep are compared as a whole, and few differences are listed."""
    first, second = list(range(ELEMENTS_MAX)), list(range(1, 2 * ELEMENTS_MAX, 2))
    [whole] = element_differences("x", first, second[::-1]).shown
    assert whole == ElementDifference("x", "changed")  # too large to be repeated
    many = element_differences("x", [0] * 1_000, [1] * 1_000)
    assert (len(many.shown), many.count) == (SHOWN_MAX, 1_000)
    before: Any = 1
    after: Any = 2
    for _ in range(200):
        before, after = [before], {"a": [after]}["a"]
    [deep] = element_differences("x", before, after).shown
    assert deep.path == "x" + "[0]" * DEPTH_MAX
    [named] = element_differences("x", {}, {"k" * 10**6: 1}).shown
    assert len(named.path) < 100
