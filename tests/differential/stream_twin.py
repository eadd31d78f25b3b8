"""A dumb twin of streams: it runs a program of `stream_programs` on lists and dictionaries.

It follows the sentences of the model one by one, and knows nothing of Penstock.
"""

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.differential.stream_programs import (
    LOOP_STEP,
    MODULUS,
    Node,
    Program,
    both,
    refuse_question,
    refuse_sum,
    small,
)

Pairs = list[tuple[Any, int]]


class Refused(Exception):
    """A handler failed."""


class StreamTwin:
    """Runs a program. `streams` has the atoms of each stream."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.streams: dict[str, list[list[int]]] = {"numbers": [], "loop": [], "less": []}
        self.streams |= {f"s{index}": [] for index in range(len(program.workflows))}
        self.failed: dict[str, int] = {}
        self.names: dict[int, str] = {}
        fresh = count()
        for _, last in program.workflows:
            self._name(last, fresh)
        self.state: dict[Any, int] = {}
        self.waiting: dict[int, Any] = {}
        self.busy: dict[Any, int] = {}
        self.held: dict[Any, list[int]] = {}
        self.ids = count()
        self.queue: deque[tuple[str, Any]] = deque()
        self.touched: dict[Line, None] = {}

    def _name(self, node: Node, fresh: Any) -> None:
        for before in node.inputs:
            self._name(before, fresh)
        self.names.setdefault(id(node), f"t{next(fresh)}")

    def append(self, atom: tuple[int, ...]) -> None:
        """Take one atom from outside, and run its cascade; an append without events is no atom."""
        if atom:
            self.publish("numbers", list(atom))
        while self.queue:
            self.step(*self.queue.popleft())

    def publish(self, stream: str, atom: list[int]) -> None:
        if stream in self.streams:
            self.streams[stream].append(atom)
        for consumer in self.consumers(stream):
            self.queue.append((consumer, atom))

    def consumers(self, stream: str) -> list[str]:
        sources = ["numbers", "loop", *(f"s{n}" for n in range(len(self.program.workflows)))]
        found = ["keeping"] if stream == "numbers" else []
        found += ["loop"] if stream == "numbers" else []
        for index, (source, _) in enumerate(self.program.workflows):
            found += [f"w{index}"] if sources[source] == stream else []
        found += ["down"] if stream == "loop" else []
        found += ["loop"] if stream == "less" else []
        return found

    def step(self, consumer: str, given: Any) -> None:
        """One consumer takes one atom; a failure leaves nothing of it."""
        match consumer:
            case "loop":
                if given:
                    self.publish("loop", given)
            case "down":
                numbers = [(number - LOOP_STEP) % MODULUS for number in given]
                self.publish("less", [number for number in numbers if small(number)])
            case "keeping":
                for number in given:
                    self.add_to_ledger(number)
            case "ledger":
                self.answer(given)
            case _:
                self.run(int(consumer[1:]), given)

    def add_to_ledger(self, number: int) -> int:
        total = (self.state.get(("ledger", number % 3), 0) + number) % MODULUS
        self.state["ledger", number % 3] = total
        return total

    def answer(self, questions: list[tuple[int, int, Any, int]]) -> None:
        """The ledger takes the questions of one step."""
        before = deepcopy(self.state)
        replies: list[int | None] = [self.add_to_ledger(number) for *_, number in questions]
        if any(refuse_question(number) for *_, number in questions):
            self.state = before
            replies = [None] * len(questions)
        askers: dict[tuple[int, int], list[Any]] = {}
        for (workflow, node, _, number), reply in zip(questions, replies, strict=True):
            askers.setdefault((workflow, node), []).append((number, reply))
        for (workflow, node), answers in askers.items():
            ids = [asked for asked in questions if asked[:2] == (workflow, node)]
            self.queue.append((f"w{workflow}", (node, list(zip(ids, answers, strict=True)))))

    def run(self, index: int, given: Any) -> None:
        """A workflow takes an atom, answers for one of its tasks, or the first number in a line."""
        if isinstance(given, Line) and not self.is_free(given):
            return
        before = deepcopy((self.state, self.waiting, self.busy, self.held))
        questions: list[Any] = []
        self.touched.clear()
        try:
            step = TwinStep(self, index, given, questions)
            events = [number for _, number in step.events(self.program.workflows[index][1])]
        except Refused:
            self.state, self.waiting, self.busy, self.held = before
            self.touched.clear()
            self.failed[f"w{index}"] = self.failed.get(f"w{index}", 0) + 1
            self.give_up(given)
        else:
            self.publish(f"s{index}", events)
            if questions:
                self.queue.append(("ledger", questions))
            self.touched |= {given: None} if isinstance(given, Line) else {}
        self.queue += [(f"w{index}", line) for line in self.touched if self.is_free(line)]

    def is_free(self, line: "Line") -> bool:
        """Whether the first number in a line can be taken."""
        return bool(self.held.get(line)) and not self.busy.get(line)

    def give_up(self, given: Any) -> None:
        """The handlers of a failed step of answers are lost, or the number that it took from a line."""
        if isinstance(given, Line):
            self.held[given].pop(0)
            self.touched[given] = None
        elif isinstance(given, tuple):
            node, answers = given
            for (_, _, key, _), _ in answers:
                self.busy[Line(node, key)] -= 1
                self.touched[Line(node, key)] = None


@dataclass(frozen=True)
class Line:
    """The numbers that wait behind a handler of a node, under one key."""

    node: int
    key: Any


class TwinStep:
    """The events of each node in one step."""

    def __init__(self, twin: StreamTwin, index: int, given: Any, questions: list[Any]) -> None:
        self.twin = twin
        self.index = index
        self.line = given if isinstance(given, Line) else None
        self.atom: list[int] = given if isinstance(given, list) else []
        self.first, self.answers = given if isinstance(given, tuple) else (None, [])
        if self.line is not None:
            self.first = self.line.node
        self.questions = questions
        self.seen: dict[int, Pairs] = {}
        self.order = list(self.tasks(twin.program.workflows[index][1]))
        reached = self.first is None
        for node in self.order:  # tasks run one after the other, those in front first
            reached = reached or id(node) == self.first
            behind = id(node) == self.first or self.first is None or self.is_behind(node)
            self.seen[id(node)] = self.task(node) if reached and behind else []

    def tasks(self, node: Node) -> Any:
        for before in node.inputs:
            yield from self.tasks(before)
        if node.operator in ("sum", "ends", "ask", "patient"):
            yield node

    def is_behind(self, node: Node) -> bool:
        return any(id(before) == self.first or self.is_behind(before) for before in node.inputs)

    def events(self, node: Node) -> Pairs:
        if node.operator == "source":
            return [(None, number) for number in self.atom]
        if id(node) in self.seen:
            return self.seen[id(node)]
        taken = [pair for before in node.inputs for pair in self.events(before)]
        changed: dict[str, Callable[[Any, int], Pairs]] = {
            "union": lambda key, number: [(key, number)],
            "add": lambda key, number: [(key, (number + node.number) % MODULUS)],
            "keep": lambda key, number: [(key, number)] * bool(number % node.number),
            "twice": lambda key, number: [(key, more) for more in both(number)],
            "key": lambda _, number: [(number % node.number, number)],
        }
        return [pair for event in taken for pair in changed[node.operator](*event)]

    def task(self, node: Node) -> Pairs:
        match node.operator:
            case "sum":
                return self.sums(node)
            case "ends":
                return self.ends(node)
            case _:
                return self.asks(node)

    def sums(self, node: Node) -> Pairs:
        state, result = self.twin.state, []
        for key, number in self.events(node.inputs[0]):
            state[id(node), key] = (state.get((id(node), key), 0) + number) % MODULUS
            result.append((key, state[id(node), key]))
            if refuse_sum(number):
                raise Refused
        return result

    def ends(self, node: Node) -> Pairs:
        state = self.twin.state
        result = self.events(node.inputs[0])
        for key, _ in result:
            state[id(node), key] = state.get((id(node), key), 0) + 1
        keys = [key for owner, key in state if owner == id(node) and state[owner, key]]
        keys.sort(key=str)
        counts = [state[id(node), key] for key in keys]
        if sum(counts) > 5:
            for key in keys:
                state[id(node), key] = 0
        return [*result, *((None, number) for number in counts)]

    def asks(self, node: Node) -> Pairs:
        twin = self.twin
        result: Pairs = []
        if self.line is not None and self.first == id(node):
            self.ask(node, self.line.key, twin.held[self.line].pop(0))
            return result
        if self.first == id(node):
            for (_, _, key, _), (_, reply) in self.answers:
                asked = twin.state[id(node), key]
                result.append((key, asked if reply is None else (reply + asked) % MODULUS))
                twin.busy[Line(id(node), key)] -= 1
                twin.touched[Line(id(node), key)] = None
            return result
        for key, number in self.events(node.inputs[0]):
            line = Line(id(node), key)
            if node.operator == "patient" and (twin.busy.get(line) or twin.held.get(line)):
                twin.held.setdefault(line, []).append(number)
                twin.touched[line] = None
            else:
                self.ask(node, key, number)
        return result

    def ask(self, node: Node, key: Any, number: int) -> None:
        place = (id(node), key)
        self.twin.state[place] = self.twin.state.get(place, 0) + 1
        line = Line(*place)
        self.twin.busy[line] = self.twin.busy.get(line, 0) + 1
        self.questions.append((self.index, id(node), key, number))
