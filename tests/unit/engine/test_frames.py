"""A handler has the same frames before the recursion limit in every transaction of a process."""

from typing import Any

import pytest

from penstock import App, Entity, key, transactional
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Limits
from penstock.engine.task import Task
from penstock.process.guard import Guard

LIMITS = Limits(depth=400)
WARM = 40
"""So many calls make CPython specialize the code that makes them."""


def count_frames(before: int = 0) -> int:
    try:
        return count_frames(before + 1)
    except RecursionError:
        return before


class Well(Entity):
    name: str = key()

    def depth(self) -> int:
        return count_frames()

    def depth_of(self, numbers: list[int]) -> int:
        return count_frames()


@transactional
def bottom() -> int:
    return count_frames()


app = App("frames", Well, bottom)


@pytest.mark.parametrize(
    ("entity", "method", "arguments"),
    [("Well", "depth", ()), ("Well", "depth_of", ([1],)), ("", "bottom", ())],
)
def test_frames_do_not_depend_on_earlier_transactions(
    entity: str, method: str, arguments: tuple[Any, ...]
) -> None:
    """The first transaction of a process and the later ones see the same limit."""
    state: dict[EntityKey, bytes | None] = {}
    task = Task(app, state.get, LIMITS, keys=lambda _: [])
    name = "a" if entity else None
    calls = [("Well", "a", "create", ()), *[(entity, name, method, arguments)] * WARM]
    replies = []
    with Guard(task.executor, LIMITS, batched=True) as guard:
        for position, call in enumerate(guard.each(calls)):
            body, _ = app.request(*call)
            outcome = task.run(position, RequestId(f"r{position}"), body, 0)
            assert outcome is not None
            assert outcome.error is None
            replies.append(outcome.reply)
    assert len(set(replies[1:])) == 1
