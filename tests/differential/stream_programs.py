"""Random workflows as plain data, and the applications that they describe.

A flow is a tree of nodes; a node names its operator, a number, and the nodes before it. Every event is a number
below 1,000, so that each operator can follow each other one.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st

from penstock import (
    App,
    AskFailed,
    Emit,
    clear,
    connect,
    flow,
    portal,
    sequencer,
    states,
    stream,
)

MODULUS = 1_000
REFUSED_SUM = 97
REFUSED_QUESTION = 89
LOOP_STEP = 300


@dataclass(frozen=True)
class Node:
    """An operator: `source`, `add`, `keep`, `twice`, `key`, `sum`, `ends`, `ask`, `patient` or `union`."""

    operator: str
    number: int = 0
    inputs: tuple["Node", ...] = ()


@dataclass(frozen=True)
class Program:
    """Workflows in the order of their deployment: the index of the source, and the last node.

    Index 0 is the stream `numbers`, 1 the loop, 2 and more the workflows before.
    """

    workflows: tuple[tuple[int, Node], ...]
    atoms: tuple[tuple[int, ...], ...]


def refuse_sum(number: int) -> bool:
    return number % REFUSED_SUM == 5


def refuse_question(number: int) -> bool:
    return number % REFUSED_QUESTION == 7


class Sum:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total = (self.total + number) % MODULUS
        out(self.total)
        if refuse_sum(number):
            raise ValueError(number)


class Ends:
    count: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.count += 1
        out(number)

    def on_atom_complete(self, out: Emit[int]) -> None:
        counts = [(key, state.count) for key, state in states(self)]
        for _, count in counts:
            out(count)
        if sum(count for _, count in counts) > 5:
            clear(self)


ledger = portal("ledger", int, int, key=lambda number: number % 3)


class Ledger:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total = (self.total + number) % MODULUS

    @ledger.reply
    def on_ask(self, number: int) -> int:
        self.total = (self.total + number) % MODULUS
        if refuse_question(number):
            raise ValueError(number)
        return self.total


class Asks:
    asked: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        self.asked += 1
        try:
            out((await ledger.ask(number) + self.asked) % MODULUS)
        except AskFailed:
            out(self.asked)


TASKS: dict[str, Any] = {"sum": Sum, "ends": Ends, "ask": Asks, "patient": Asks}


def plus(more: int, number: int) -> int:
    return (number + more) % MODULUS


def modulo(divisor: int, number: int) -> int:
    return number % divisor


def both(number: int) -> list[int]:
    return [number, (number * 2 + 1) % MODULUS]


def app_of(program: Program) -> App:
    """Return the application of a program."""
    numbers = stream("numbers", int)
    loop = sequencer("loop", int, numbers)
    down = flow("down", loop).map(partial(plus, -LOOP_STEP)).filter(small).sink("less", int)
    streams: list[Any] = [numbers, loop]
    names = iter(range(1_000))
    for index, (source, last) in enumerate(program.workflows):
        start = flow(f"w{index}", streams[source])
        streams.append(built(start, last, names).sink(f"s{index}", int))
    keeping = flow("keeping", numbers).key(partial(modulo, 3)).task(Ledger).sink("none", int)
    return App("x", keeping, *streams, down, connect(down, loop))


def small(number: int) -> bool:
    return 0 < number < MODULUS - LOOP_STEP


def built(start: Any, node: Node, names: Any) -> Any:
    """Return the flow of a node."""
    if node.operator == "source":
        return start
    first, *others = (built(start, before, names) for before in node.inputs)
    if node.operator in TASKS:
        name, exclusive = f"t{next(names)}", node.operator == "patient"
        return first.task(TASKS[node.operator], name=name, exclusive=exclusive)
    made = {
        "union": lambda: first.union(*others),
        "add": lambda: first.map(partial(plus, node.number)),
        "keep": lambda: first.filter(partial(modulo, node.number)),
        "twice": lambda: first.flat_map(both),
        "key": lambda: first.key(partial(modulo, node.number)),
    }
    return made[node.operator]()


functions = st.sampled_from(["add", "keep", "twice"])


@st.composite
def nodes(draw: st.DrawFn, depth: int = 4) -> tuple[Node, bool, bool]:
    """Draw a node; whether its events have keys; whether some of them have lost their key."""
    choices = ["function", "key", "task", "task", "union", "source"]
    choice = draw(st.sampled_from(choices)) if depth else "source"
    if choice == "source":
        return Node("source"), False, False
    before, keyed, lost = draw(nodes(depth=depth - 1))
    number = draw(st.integers(2, 5))
    keyed_node = Node("key", number, (before,))
    if choice == "function":
        return Node(draw(functions), number, (before,)), keyed, lost
    if choice == "union":
        other, _, _ = draw(nodes(depth=depth - 1))
        keyed_node = Node("key", number, (Node("union", 0, (before, other)),))
    if choice == "task":
        operator = draw(st.sampled_from(sorted(TASKS)))
        before, keyed = (keyed_node, True) if lost else (before, keyed)
        return Node(operator, 0, (before,)), keyed, keyed and operator == "ends"
    return keyed_node, True, False


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw one to four workflows and up to four atoms."""
    workflows = []
    for index in range(draw(st.integers(1, 4))):
        last, _, _ = draw(nodes())
        workflows.append((draw(st.integers(0, index + 1)), last))
    atoms = st.lists(st.integers(0, MODULUS - 1), max_size=4).map(tuple)
    return Program(tuple(workflows), tuple(draw(st.lists(atoms, min_size=1, max_size=4))))
