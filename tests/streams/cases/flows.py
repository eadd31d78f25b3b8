"""The cases of streams and workflows."""

from typing import Final

from penstock import (
    Emit,
    PerTask,
    clear,
    connect,
    flow,
    sequencer,
    splitter,
    states,
    stream,
)
from penstock.model.streams.stream import Stream

from .case import Atoms, case


def identity(number: int) -> int:
    return number


class Plus:
    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, number: int) -> int:
        return number + self.more


class Barriers:
    """Repeats its events, and publishes -1 when an atom is complete."""

    def on_event(self, number: int, out: Emit[int]) -> None:
        out(number)

    def on_atom_complete(self, out: Emit[int]) -> None:
        out(-1)


class CountsOfAtom:
    count: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        self.count += 1

    def on_atom_complete(self, out: Emit[tuple[str, int]]) -> None:
        for word, state in states(self):
            out((word, state.count))
        clear(self)


class Count:
    count: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        self.count += 1
        out((word, self.count))


class RunningSum:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += number
        out(number)

    def on_atom_complete(self, out: Emit[int]) -> None:
        out(self.total)


class KeyedTotal:
    """Counts per key, and over all keys."""

    count: int = 0
    total: PerTask[int] = 0

    def on_event(self, word: str, out: Emit[tuple[str, int, int]]) -> None:
        self.count += 1
        self.total += 1
        out((word, self.count, self.total))

    def on_atom_complete(self, out: Emit[tuple[str, int, int]]) -> None:
        out(("all", 0, self.total))


class Switch:
    """Changes its own behaviour: it publishes 0 and 1 in turns."""

    is_on: bool = False

    def on_event(self, number: int, out: Emit[int]) -> None:
        if self.is_on:
            self.is_on = False
            out(1)
        else:
            self.is_on = True
            out(0)


kept = stream("kept-numbers", int)


@case(
    flow("keep", kept).map(identity).sink("kept"),
    rounds=[[("kept-numbers", [1]), ("kept-numbers", [2, 3]), ("kept-numbers", [4, 5, 6])]],
)
def atoms_are_kept(atoms: Atoms) -> None:
    """The atoms of a stream reach the sink as they are."""
    assert atoms("kept") == [[1], [2, 3], [4, 5, 6]]


diamonds = flow("diamond", stream("diamond-numbers", int))


@case(
    diamonds.map(identity).union(diamonds.map(identity)).task(Barriers).sink("diamonds"),
    rounds=[[("diamond-numbers", [0]), ("diamond-numbers", [1])]],
)
def diamond_has_one_barrier_for_each_atom(atoms: Atoms) -> None:
    """Two branches and a union give one atom, and one completion, for each atom."""
    assert atoms("diamonds") == [[0, 0, -1], [1, 1, -1]]


three = flow("three", stream("three-numbers", int))


@case(
    three.map(Plus(1)).union(three.map(Plus(2)), three.map(Plus(3))).task(Barriers).sink("threes"),
    rounds=[[("three-numbers", [1])]],
)
def three_branches(atoms: Atoms) -> None:
    """Three branches of one event give one atom with three events."""
    [[*numbers, barrier]] = atoms("threes")
    assert (sorted(numbers), barrier) == ([2, 3, 4], -1)


keyed = flow("keyed", stream("keyed-numbers", int))


@case(
    keyed.key(str).union(keyed.map(Plus(1)).key(str)).task(Barriers).sink("keyed-out"),
    rounds=[[("keyed-numbers", [0]), ("keyed-numbers", [1])]],
)
def keyed_branches_have_one_barrier(atoms: Atoms) -> None:
    """Both branches of a union are keyed, and each atom still has one completion."""
    assert atoms("keyed-out") == [[0, 1, -1], [1, 2, -1]]


FOX: Final = "the quick brown fox jumps over the lazy dog"
texts = flow("words-of-atom", stream("texts", str))


@case(
    texts.flat_map(str.split).key(str).task(CountsOfAtom).sink("counts-of-atom"),
    rounds=[[("texts", [FOX]), ("texts", [FOX])]],
)
def words_of_an_atom(atoms: Atoms) -> None:
    """Counts that are cleared at the end of each atom give equal atoms."""
    first, second = atoms("counts-of-atom")
    assert (dict(map(tuple, first))["the"], len(first)) == (2, 8)
    assert first == second


lines = flow("word-count", stream("lines", str))


@case(
    lines.flat_map(str.split).key(str).task(Count).sink("counts"),
    rounds=[[("lines", ["the fox the"]), ("lines", ["the"])]],
)
def incremental_word_count(atoms: Atoms) -> None:
    """The counts of a word come in order, within an atom and across atoms."""
    assert atoms("counts") == [[("the", 1), ("fox", 1), ("the", 2)], [("the", 3)]]


@case(
    flow("sum", stream("summands", int)).task(RunningSum).sink("sums"),
    rounds=[[("summands", [1, 2, 3, 4]), ("summands", [1, 2, 3, 4])]],
)
def barrier_emission(atoms: Atoms) -> None:
    """An event of on_atom_complete belongs to the atom, behind its other events."""
    assert atoms("sums") == [[1, 2, 3, 4, 10], [1, 2, 3, 4, 20]]


@case(
    flow("total", stream("words", str)).key(str).task(KeyedTotal).sink("word-totals"),
    rounds=[[("words", ["a", "b", "a"])]],
)
def state_of_all_keys(atoms: Atoms) -> None:
    """An attribute marked PerTask is one for all keys."""
    assert atoms("word-totals") == [[("a", 1, 1), ("b", 1, 2), ("a", 2, 3), ("all", 0, 3)]]


loop = sequencer("loop", int, stream("loop-numbers", int))
down = flow("down", loop).filter(lambda x: x > 0).map(lambda x: x - 1).sink("less", int)


@case(down, connect(down, loop), rounds=[[("loop-numbers", [8])]])
def cycle_ends(atoms: Atoms) -> None:
    """A cycle through a sequencer ends with an empty atom."""
    assert atoms("less") == [*([n] for n in range(7, -1, -1)), []]


link: Stream[int] = stream("chain-numbers", int)
for place in range(4):
    link = flow(f"plus{place}", link).map(Plus(1)).sink(f"plus{place}-out", int)


@case(link, rounds=[[("chain-numbers", [n]) for n in range(5)]])
def chain_of_four(atoms: Atoms) -> None:
    """Each workflow of a chain keeps the atoms."""
    assert atoms("plus3-out") == [[n] for n in range(4, 9)]


def atoms_of_five(first: int, end: int) -> list[list[int]]:
    """Return numbers in atoms of five."""
    return [list(range(n, min(n + 5, end))) for n in range(first, end, 5)]


@case(
    sequencer("both", int, stream("left", int), stream("right", int)),
    rounds=[
        [
            append
            for left, right in zip(atoms_of_five(0, 128), atoms_of_five(128, 256), strict=True)
            for append in (("left", left), ("right", right))
        ]
    ],
)
def sequencer_keeps_each_input(atoms: Atoms) -> None:
    """A sequencer forwards whole atoms, and keeps the order of each input."""
    both = atoms("both")
    assert [atom for atom in both if atom[0] < 128] == atoms_of_five(0, 128)
    assert [atom for atom in both if atom[0] >= 128] == atoms_of_five(128, 256)


parity = splitter(
    "parity", stream("parity-numbers", int), even=lambda x: x % 2 == 0, odd=lambda x: True
)


@case(
    parity,
    flow("evens", parity["even"]).map(identity).sink("evens"),
    rounds=[[("parity-numbers", atom) for atom in atoms_of_five(0, 256)]],
)
def splitter_keeps_atoms(atoms: Atoms) -> None:
    """Each event goes to its first match; a stream without an event gets no atom."""
    assert [event for atom in atoms("parity-even") for event in atom] == list(range(0, 256, 2))
    assert [event for atom in atoms("parity-odd") for event in atom] == list(range(1, 256, 2))
    assert atoms("evens") == atoms("parity-even")
    assert len(atoms("parity-even")) == 51, "the atom [255] has no even number"


@case(
    flow("switch", stream("flips", int)).key(identity).task(Switch).sink("switched"),
    rounds=[[("flips", [0]), ("flips", [0]), ("flips", [0])]],
)
def behaviour_per_key(atoms: Atoms) -> None:
    """The state of a key decides what its next event does."""
    assert atoms("switched") == [[0], [1], [0]]
