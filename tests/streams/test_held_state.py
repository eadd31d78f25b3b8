"""Variables that hold parts of a task's state across an `await`: they are the state's, in memory and after a resume."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Emit, PerTask, flow, portal, stream
from tests.streams.two_ways import Kit

programs = stream("programs", list[Any])
double = portal("double", int, int)


@dataclass
class Line:
    number: int
    state: str = ""
    marks: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Fixed:
    number: int
    marks: list[int] = field(default_factory=list)


class Pair(NamedTuple):
    number: int
    marks: list[int]


class Struct(msgspec.Struct):
    number: int = 0
    marks: list[int] = []


class Doubler:
    def on_event(self, number: int) -> None:
        """Nothing comes here."""

    @double.reply
    def on_double(self, number: int) -> int:
        return number * 2


class Holder:
    items: list[int] = []
    lines: list[Line] = []
    totals: dict[str, int] = {}
    names: set[str] = set()
    by_name: dict[str, Line] = {}
    pairs: list[Pair] = []
    fixed: Fixed = Fixed(0)
    struct: Struct = field(default_factory=Struct)
    shared: PerTask[list[int]] = []

    async def on_event(self, program: list[Any], out: Emit[list[Any]]) -> None:
        for _ in acts_of(self, program, out):
            await double.ask(1)


class Twin:
    """The state of one key, as objects that live on while handlers wait."""

    shared: list[int]

    def __init__(self, shared: list[int]) -> None:
        self.items: list[int] = []
        self.lines: list[Line] = []
        self.totals: dict[str, int] = {}
        self.names: set[str] = set()
        self.by_name: dict[str, Line] = {}
        self.pairs: list[Pair] = []
        self.fixed, self.struct, self.shared = Fixed(0), Struct(), shared


def _turn(it: Any, _: int) -> None:
    it.lines.append(it.lines.pop(0)) if it.lines else None


def _edit(it: Any, number: int) -> None:
    if it.lines:
        it.lines[number % len(it.lines)].state += "x"


CHANGES: dict[str, Any] = {
    "push": lambda it, n: it.items.append(n),
    "unpush": lambda it, _: it.items and it.items.pop(0),
    "line": lambda it, n: it.lines.insert(0, Line(n)),
    "unline": lambda it, _: it.lines and it.lines.pop(),
    "turn": _turn,
    "edit": _edit,
    "total": lambda it, n: it.totals.update({str(n % 3): n}),
    "untotal": lambda it, n: it.totals.pop(str(n % 3), None),
    "name": lambda it, n: it.names.symmetric_difference_update({str(n % 3)}),
    "by_name": lambda it, n: it.by_name.setdefault(str(n % 3), Line(n)),
    "pair": lambda it, n: it.pairs.append(Pair(n, [])),
    "share": lambda it, n: it.shared.append(n),
    "struct": lambda it, n: it.struct.marks.append(n),
}
HOLDS: list[Any] = [
    lambda it: it.items,
    lambda it: it.lines,
    lambda it: it.lines[0] if it.lines else None,
    lambda it: it.lines[-1].marks if it.lines else None,
    lambda it: it.totals,
    lambda it: it.names,
    lambda it: it.by_name.get("1"),
    lambda it: it.pairs[0] if it.pairs else None,
    lambda it: it.fixed.marks,
    lambda it: it.struct,
    lambda it: it.shared,
]


LINES = 1
"""The place of the list of lines in `HOLDS`."""


def acts_of(it: Any, program: list[Any], out: Any) -> Iterator[None]:
    """Perform a program on the state, and yield where it waits."""
    held: list[Any] = []
    for act, number in program:
        if act == "wait":
            yield
        elif act == "hold":
            held.append((HOLDS[number % len(HOLDS)](it), number % len(HOLDS) == LINES))
        elif act == "use":
            for value, is_lines in held:
                use(value, number, is_lines=is_lines)
            plain = [value for value, _ in held if type(value) is not set]
            out(msgspec.json.decode(msgspec.json.encode(plain)))
        else:
            CHANGES[act](it, number)


def use(value: Any, number: int, *, is_lines: bool) -> None:
    """Change a value that a variable holds."""
    match value:
        case list() if is_lines:
            value.append(Line(number))
        case list():
            value.append(number)
        case set():
            value.add(str(number))
        case dict():
            value[str(number)] = number
        case None:
            pass
        case _:
            value.marks.append(number)


app = App(
    "holding",
    flow("doubler", stream("none", int)).task(Doubler).sink("nothing", int),
    flow("w", programs).key(lambda program: len(program) % 2).task(Holder).sink("out"),
)


@st.composite
def atoms(draw: st.DrawFn) -> list[list[Any]]:
    """Programs whose numbers are all different, so that every line can be told from every other."""
    count = iter(range(1, 10_000))
    change = st.sampled_from([*CHANGES]).map(lambda name: (name, None))
    hold = st.integers(0, 10).map(lambda number: ("hold", number))
    then = st.sampled_from([("wait", None), ("use", None)])
    program = st.lists(change | hold | then, min_size=4, max_size=16)
    drawn = draw(st.lists(st.lists(program, min_size=1, max_size=4), min_size=1, max_size=2))
    return [
        [
            [[act, next(count) if number is None else number] for act, number in program]
            for program in atom
        ]
        for atom in drawn
    ]


@settings(max_examples=60, deadline=None)
@given(atoms())
def test_held_values_stay_those_of_the_state(drawn: list[list[Any]]) -> None:
    """Handlers that interleave see one state by their variables, as coroutines over common objects do."""
    kit = Kit(app)
    shared: list[int] = []
    twins = {0: Twin(shared), 1: Twin(shared)}
    expected: list[Any] = []
    for atom in drawn:
        kit.append(programs, atom)
        running = [acts_of(twins[len(program) % 2], program, expected.append) for program in atom]
        while running:
            running = [each for each in running if next(each, True) is None]
    assert [event for atom in kit.atoms("out") for event in atom] == expected


@pytest.mark.parametrize("numbers", [[0, 3], [3, 0]])
def test_loop_over_the_state(numbers: list[int]) -> None:
    """A loop that waits sees what other handlers append meanwhile, and changes the stored records."""

    class Loop:
        lines: list[Line] = []

        async def on_event(self, number: int, out: Emit[list[str]]) -> None:
            if number:
                self.lines.append(Line(number))
                return
            for line in self.lines:
                line.state += str(await double.ask(line.number))
            out([line.state for line in self.lines])

    looping = App(
        "looping",
        flow("doubler", stream("none", int)).task(Doubler).sink("nothing", int),
        flow("w", stream("numbers", int)).task(Loop).sink("out"),
    )
    kit = Kit(looping)
    kit.append("numbers", [1, 2])
    kit.append("numbers", numbers)
    assert kit.atoms("out")[-1] == [["2", "4", "6"]]
