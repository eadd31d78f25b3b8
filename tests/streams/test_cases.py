"""The cases of the programming model, in the local runtime."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    App,
    Emit,
    connect,
    flow,
    portal,
    sequencer,
    splitter,
    stream,
)
from penstock.model.streams.stream import Stream
from tests.streams.cases import (
    Barriers,
    Count,
    CountsOfAtom,
    KeyedTotal,
    RunningSum,
    Switch,
    diamond,
    identity,
)
from tests.streams.two_ways import Kit


def after(app: App, source: Stream[Any] | str, *atoms: Iterable[Any]) -> Kit:
    kit = Kit(app)
    for atom in atoms:
        kit.append(source, atom)
    return kit


def test_atoms_are_kept() -> None:
    """The atoms of a stream reach the sink as they are."""
    app = App("x", flow("same", stream("numbers", int)).map(identity).sink("out"))
    assert after(app, "numbers", [1], [2, 3], [4, 5, 6]).atoms("out") == [[1], [2, 3], [4, 5, 6]]


def test_diamond_has_one_barrier_for_each_atom() -> None:
    """Two branches and a union give one atom, and one completion, for each atom."""
    assert after(diamond(), "numbers", [0], [1]).atoms("out") == [[0, 0, -1], [1, 1, -1]]


class Plus:
    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, number: int) -> int:
        return number + self.more


def test_three_branches() -> None:
    """Three branches of one event give one atom with three events."""
    start = flow("three", stream("numbers", int))
    branches = [start.map(Plus(n)) for n in (1, 2, 3)]
    app = App("x", branches[0].union(*branches[1:]).task(Barriers).sink("out"))
    [[*numbers, barrier]] = after(app, "numbers", [1]).atoms("out")
    assert (sorted(numbers), barrier) == ([2, 3, 4], -1)


def test_words_of_an_atom() -> None:
    """Counts that are cleared at the end of each atom give equal atoms, and leave no state."""
    lines = stream("lines", str)
    app = App("x", flow("w", lines).flat_map(str.split).key(str).task(CountsOfAtom).sink("out"))
    line = "the quick brown fox jumps over the lazy dog"
    kit = after(app, lines, [line], [line])
    first, second = kit.atoms("out")
    assert (dict(first)["the"], len(first)) == (2, 8)
    assert first == second
    assert kit.runtime.state == {}


def test_incremental_word_count() -> None:
    """The counts of a word come in order, within an atom and across atoms."""
    lines = stream("lines", str)
    app = App("x", flow("w", lines).flat_map(str.split).key(str).task(Count).sink("out"))
    kit = after(app, lines, ["the fox the"], ["the"])
    assert kit.atoms("out") == [[("the", 1), ("fox", 1), ("the", 2)], [("the", 3)]]


def test_barrier_emission() -> None:
    """An event of on_atom_complete belongs to the atom, behind its other events."""
    app = App("x", flow("s", stream("n", int)).task(RunningSum).sink("out"))
    assert after(app, "n", [1, 2, 3, 4], [1, 2, 3, 4]).atoms("out") == [
        [1, 2, 3, 4, 10],
        [1, 2, 3, 4, 20],
    ]


def test_state_of_all_keys() -> None:
    """An attribute marked PerTask is one for all keys."""
    app = App("x", flow("s", stream("w", str)).key(str).task(KeyedTotal).sink("out"))
    assert after(app, "w", ["a", "b", "a"]).atoms("out") == [
        [("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("all", 0, 3)]
    ]


def test_cycle_ends() -> None:
    """A cycle through a sequencer ends with an empty atom."""
    numbers = stream("numbers", int)
    loop = sequencer("loop", int, numbers)
    down = flow("down", loop).filter(lambda x: x > 0).map(lambda x: x - 1).sink("less", int)
    app = App("x", down, connect(down, loop))
    assert after(app, "numbers", [8]).atoms("less") == [[n] for n in range(7, -1, -1)] + [[]]


def test_chain_of_four() -> None:
    """Each workflow of a chain keeps the atoms."""
    first = stream("numbers", int)
    link: Stream[int] = first
    for n in range(4):
        link = flow(f"plus{n}", link).map(lambda x: x + 1).sink(f"out{n}", int)
    assert after(App("x", link), first, *[[n] for n in range(5)]).atoms("out3") == [
        [n] for n in range(4, 9)
    ]


def test_sequencer_keeps_each_input() -> None:
    """A sequencer forwards whole atoms, and keeps the order of each input."""
    left, right = stream("left", int), stream("right", int)
    app = App("x", sequencer("both", int, left, right))
    kit = Kit(app)
    for n in range(0, 128, 5):
        kit.append(left, range(n, min(n + 5, 128)))
        kit.append(right, range(128 + n, min(128 + n + 5, 256)))
    atoms = kit.atoms("both")
    events = [event for atom in atoms for event in atom]
    assert [e for e in events if e < 128] == list(range(128))
    assert [e for e in events if e >= 128] == list(range(128, 256))
    assert {len(atom) for atom in atoms} == {5, 3}


def test_splitter() -> None:
    """Each event goes to its first match; a stream without an event gets no atom."""
    numbers = stream("numbers", int)
    parity = splitter("parity", numbers, even=lambda x: x % 2 == 0, odd=lambda x: True)
    app = App("x", parity, flow("e", parity["even"]).map(identity).sink("evens"))
    kit = after(app, numbers, *[range(n, min(n + 5, 256)) for n in range(0, 256, 5)])
    assert [e for a in kit.atoms("even") for e in a] == list(range(0, 256, 2))
    assert [e for a in kit.atoms("odd") for e in a] == list(range(1, 256, 2))
    assert kit.atoms("evens") == kit.atoms("even")
    assert len(kit.atoms("even")) == 51  # the atom [255] has no even number


def test_behaviour_per_key() -> None:
    """The state of a key decides what its next event does."""
    app = App("x", flow("s", stream("n", int)).key(identity).task(Switch).sink("out"))
    assert after(app, "n", [0], [0], [0]).atoms("out") == [[0], [1], [0]]


totals = portal("totals", int, int)


class Total:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total += number

    @totals.reply
    def on_ask(self, question: int) -> int:
        return self.total


class Asker:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        out(await totals.ask(number))


def test_portal_reads_between_atoms() -> None:
    """A portal is asked between two atoms of its task, so it never sees half of an atom."""
    numbers, questions = stream("numbers", int), stream("questions", int)
    app = App(
        "x",
        flow("sum", numbers).task(Total).sink("none", int),
        flow("ask", questions).task(Asker).sink("answers"),
    )
    kit = Kit(app)
    for n in range(10):
        kit.append(numbers, [1, 2, 3, 4])
        kit.append(questions, [n])
    assert kit.atoms("answers") == [x for n in range(1, 11) for x in ([], [n * 10])]


swap = portal("swap", int, int)


class Previous:
    value: int = 0

    def on_event(self, number: int) -> None:
        raise AssertionError

    @swap.reply
    def on_swap(self, number: int) -> int:
        previous, self.value = self.value, number
        return previous


class FollowingSwapper:
    def on_event(self, number: int, out: Emit[tuple[int, int]]) -> None:
        swap.ask(number).then(self.on_previous, number, out)

    def on_previous(self, previous: int, number: int, out: Emit[tuple[int, int]]) -> None:
        out((number, previous))


class AwaitingSwapper:
    async def on_event(self, number: int, out: Emit[tuple[int, int]]) -> None:
        out((number, await swap.ask(number)))


@pytest.mark.parametrize("task", [AwaitingSwapper, FollowingSwapper])
def test_request_and_reply_with_captured_values(task: Any) -> None:
    """A handler goes on with its variables when the reply comes."""
    app = App(
        "x",
        flow("r", stream("nothing", int)).task(Previous).sink("none", int),
        flow("a", stream("n", int)).task(task).sink("out"),
    )
    kit = after(app, "n", *[range(n, n + 8) for n in range(0, 128, 8)])
    pairs = [pair for atom in kit.atoms("out") for pair in atom]
    assert pairs == [(0, 0)] + [(n, n - 1) for n in range(1, 128)]


@dataclass
class Put:
    item: str


@dataclass
class Cart:
    user: str
    item: str = ""  # empty: check out


take = portal("take", str, bool, key=str)


class Inventory:
    amount: int = 0

    def on_event(self, put: Put) -> None:
        self.amount += 1

    @take.reply
    def on_take(self, item: str) -> bool:
        if self.amount == 0:
            return False
        self.amount -= 1
        return True


class CartTask:
    items: list[str] = []

    async def on_event(self, cart: Cart, out: Emit[tuple[str, list[str]]]) -> None:
        if not cart.item:
            out((cart.user, self.items))
            self.items = []
        elif await take.ask(cart.item):
            self.items.append(cart.item)


def user_of(cart: Cart) -> str:
    return cart.user


def item_of(put: Put) -> str:
    return put.item


def shop(*, exclusive: bool) -> App:
    return App(
        "x",
        flow("stock", stream("puts", Put)).key(item_of).task(Inventory).sink("none", int),
        flow("carts", stream("carting", Cart))
        .key(user_of)
        .task(CartTask, exclusive=exclusive)
        .sink("orders"),
    )


def test_shopping_cart() -> None:
    """Carts ask the inventory, which never sells more than it has."""
    kit = after(shop(exclusive=False), "puts", [Put("i1"), Put("i1"), Put("i2")])
    kit.append("carting", [Cart("U1", "i1"), Cart("U2", "i2")])
    kit.append("carting", [Cart("U3", "i1"), Cart("U4", "i2")])
    kit.append("carting", [Cart(f"U{n}") for n in range(1, 5)])
    orders = dict(order for atom in kit.atoms("orders") for order in atom)
    assert orders == {"U1": ["i1"], "U2": ["i2"], "U3": ["i1"], "U4": []}
    assert kit.runtime.state == {}


def test_exclusive_key_waits() -> None:
    """With exclusive, an event of a key waits until the handler of the key has its reply."""
    kit = after(shop(exclusive=True), "puts", [Put("i1")])
    kit.append("carting", [Cart("A", "i1"), Cart("A")])
    assert kit.atoms("orders") == [[], [("A", ["i1"])]]


def test_without_exclusive_the_checkout_overtakes() -> None:
    """Without it, the event runs while the handler waits."""
    kit = after(shop(exclusive=False), "puts", [Put("i1")])
    kit.append("carting", [Cart("A", "i1"), Cart("A")])
    assert kit.atoms("orders") == [[("A", [])], []]
