"""Ids that are derived from derived ids: each is new, and none gets long."""

from collections.abc import Callable

import pytest

from penstock.base.ids import RequestId
from penstock.engine.streams.derived_ids import (
    LENGTH_MAX,
    continuation_id,
    is_question_id,
    part_id,
    sent_id,
    step_id,
)


@pytest.mark.parametrize(
    "derive",
    [lambda root: sent_id(root, 1), lambda root: part_id(step_id(root, 1), 0)],
    ids=["timer", "cycle"],
)
@pytest.mark.parametrize("first", ["order-7", "ada~order-7", "x" * 2_000])
def test_an_id_stays_short_however_many_are_before_it(
    derive: Callable[[str], RequestId], first: str
) -> None:
    """A timer sends its next request for years, and each id is derived from that of the last one."""
    ids = [RequestId(first)]
    for _ in range(2_000):
        ids.append(derive(ids[-1]))
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids[1:])) < LENGTH_MAX + 20
    assert all(one.startswith(first[:300]) for one in ids), "it shows where the chain began"
    assert {is_question_id(one) for one in ids[1:]} == {is_question_id(ids[1])}


def test_continuations_count() -> None:
    """The number of a continuation grows, its id does not."""
    first = continuation_id(RequestId("y" * 2_000))
    assert continuation_id(first) == first[:-1] + "2"
