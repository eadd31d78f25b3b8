"""The order of steps: cascades are first in, first out, and an endless one is cut."""

import pytest

from penstock import (
    App,
    Emit,
    Entity,
    UserError,
    connect,
    emit,
    entity,
    flow,
    key,
    request_id,
    send,
    sequencer,
    stream,
    uuid,
)
from penstock.base.ids import EntityKey
from penstock.engine.limits import Limits
from penstock.runtime.local.runtime import LATER_CASCADES, LocalRuntime
from tests.streams.two_ways import Kit

numbers = stream("numbers", int)


class Traced:
    def on_event(self, number: int, out: Emit[str]) -> None:
        out(request_id())


def test_ids_of_steps() -> None:
    """A step has an id of its own; values derived from it differ between steps, and repeat in each run."""
    app = App(
        "x",
        flow("a", numbers).task(Traced).sink("first"),
        flow("b", numbers).task(Traced).sink("second"),
    )
    runtime = LocalRuntime(app)
    runtime.append("numbers", [1], request_id="r")
    assert runtime.streams["first"] == [(b"\xa5r~~s1",)]
    assert runtime.streams["second"] == [(b"\xa5r~~s2",)]


class Drawing:
    def on_event(self, number: int, out: Emit[str]) -> None:
        out(str(uuid()))


def test_steps_draw_the_same_values_again() -> None:
    """Two runs of one log give equal atoms."""
    runs = []
    for _ in range(2):
        kit = Kit(App("x", flow("a", numbers).task(Drawing).sink("out")))
        kit.append(numbers, [1, 2])
        kit.append(numbers, [3])
        runs.append(kit.atoms("out"))
    assert runs[0] == runs[1]
    assert len({value for atom in runs[0] for value in atom}) == 3


def endless() -> App:
    loop = sequencer("loop", int, numbers)
    around = flow("around", loop).map(lambda n: n + 1).sink("next", int)
    return App("x", around, connect(around, loop))


def test_an_endless_cascade_is_cut() -> None:
    """It stops no other record: each record takes a part of it."""
    runtime = LocalRuntime(endless(), limits=Limits(cascade_steps=10))
    runtime.append("numbers", [0])
    assert len(runtime.streams["next"]) == 5 * (1 + LATER_CASCADES)
    runtime.append("numbers", [1], request_id="other")
    assert runtime.streams["numbers"] == [(b"\x00",), (b"\x01",)]
    assert not runtime.settle()


def test_a_kit_names_an_endless_cascade() -> None:
    """The error says how a cycle ends."""
    kit = Kit(endless())
    kit.runtime._runner._limits = Limits(cascade_steps=100)
    with pytest.raises(UserError, match="there is still more to process"):
        kit.append(numbers, [0])


@entity
class Item(Entity):
    name: str = key()
    left: int = 0

    def count(self, number: int) -> None:
        self.left = number
        emit(numbers, number)
        if number:
            send(Item.count, self, number - 1)


def down() -> App:
    loop = sequencer("loop", int, numbers)
    lower = flow("lower", loop).filter(lambda n: n > 0).map(lambda n: n - 1).sink("next", int)
    return App("x", Item, lower, connect(lower, loop))


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_cut_changes_no_result(most: int) -> None:
    """A cascade that several records take in pieces ends in the same state and the same atoms, and leaves no row."""

    def run(limits: Limits) -> tuple[list[list[int]], dict[EntityKey, bytes]]:
        kit = Kit(down(), limits=limits)
        kit.call.Item.create("tea")
        kit.call.Item("tea").count(4)
        kit.append(numbers, [6])
        return sorted(kit.atoms("next")), {**kit.runtime.state}

    assert run(Limits(cascade_steps=most)) == run(Limits())
