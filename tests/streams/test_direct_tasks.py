"""A direct task gives the same results as the parts of a step that order several tasks."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    App,
    Emit,
    PerTask,
    flow,
    now,
    portal,
    random,
    request_id,
    states,
    stream,
    uuid,
)
from penstock.engine.limits import Limits
from penstock.engine.streams import cascade_runner
from penstock.engine.streams.workflow_step import DirectTask, WorkflowStep, direct_task
from penstock.model.streams.flow import Workflow
from penstock.model.streams.stream import Atom
from penstock.runtime.local.runtime import LocalRuntime

numbers = stream("numbers", int)
lists = stream("lists", list[int])
twice = portal("twice", int, int)
EVENTS = (3, 0, 1, 2, 5, 4, 3, -1, 1, 2, 3, 7, 8, 0)


def number_of(number: int) -> int:
    return 10 // number % 3


def text_of(number: int) -> str:
    return "k" * (number % 4)


def float_of(number: int) -> Any:
    return 0.5 if number == 2 else number


class Adding:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += number
        for _ in range(number):
            out(self.total)


class Failing:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += 1
        out(self.total)
        if number == 2:
            raise ValueError(number)
        if number == 3:
            self.total = "three"  # type: ignore[assignment]
        if number == 4:
            out("four")  # type: ignore[arg-type]
        if number == 5:
            raise SystemExit
        if number == 7:
            out(b"seven" * 1_000)  # type: ignore[arg-type]


class Drawing:
    drawn: PerTask[int] = 0

    def on_event(self, number: int, out: Emit[str]) -> None:
        self.drawn += 1
        out(f"{uuid()} {random().random()} {now()} {request_id()} {self.drawn}")


class Listing:
    total: int = 0

    def on_event(self, number: int, out: Emit[list[int]]) -> None:
        self.total += number
        out([state.total for _, state in states(self)])


class Changing:
    total: int = 0

    def on_event(self, numbers: list[int], out: Emit[list[int]]) -> None:
        self.total += len(numbers)
        out(numbers)
        numbers.append(self.total)
        out(numbers)


class Returning:
    def on_event(self, number: int) -> Any:
        return (yield number)


class Silent:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total += number


class Doubling:
    def on_event(self, number: int) -> None:
        pass

    @twice.reply
    def on_twice(self, number: int) -> int:
        return 2 * number


class Asking:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += number
        twice.ask(number).then(self.on_reply, out)

    def on_reply(self, reply: int, out: Emit[int]) -> None:
        self.total += reply


class Awaiting:
    total: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += await twice.ask(number)
        out(self.total)


workflows: dict[str, Callable[[], Workflow[Any]]] = {
    "adding": lambda: flow("f", numbers).task(Adding).sink("out"),
    "adding by key": lambda: flow("f", numbers).key(number_of).task(Adding).sink("out"),
    "key by text": lambda: flow("f", numbers).key(text_of).task(Adding).sink("out"),
    "strange keys": lambda: flow("f", numbers).key(float_of).task(Adding).sink("out"),
    "failing": lambda: flow("f", numbers).task(Failing).sink("out"),
    "failing by key": lambda: flow("f", numbers).key(number_of).task(Failing).sink("out"),
    "drawing": lambda: flow("f", numbers).key(number_of).task(Drawing).sink("out"),
    "listing": lambda: flow("f", numbers).key(number_of).task(Listing).sink("out"),
    "changing": lambda: flow("f", lists).task(Changing).sink("out"),
    "asking": lambda: flow("f", numbers).task(Asking).sink("out"),
    "awaiting": lambda: flow("f", numbers).key(number_of).task(Awaiting).sink("out"),
    "exclusive": lambda: flow("f", numbers).key(abs).task(Awaiting, exclusive=True).sink("out"),
}
other: dict[str, Callable[[], Workflow[Any]]] = {
    "changing by key": lambda: flow("f", lists).key(len).task(Changing).sink("out"),
    "a function": lambda: flow("f", numbers).map(abs).task(Adding).sink("out"),
    "another type": lambda: flow("f", numbers).task(Adding).sink("out", float),
    "nothing": lambda: flow("f", numbers).task(Silent).sink("out", int),
    "generator": lambda: flow("f", numbers).task(Returning).sink("out", int),
}


def outcome(made: Workflow[Any]) -> tuple[Any, ...]:
    """Return all that an application leaves behind, by a workflow that takes events one by one, and then together."""
    doubling = flow("d", stream("unused", int)).task(Doubling).sink("doubled", int)
    runtime = LocalRuntime(
        App("x", made, doubling), limits=Limits(output_bytes=2_000), secret=b"s" * 32
    )
    source = made.source.name
    events: list[Any] = [[each] if source == "lists" else each for each in EVENTS]
    for index, event in enumerate(events):
        runtime.append(source, [event], request_id=f"r{index}")
    runtime.append(source, events, request_id="all")
    failures = [(type(failure), str(failure)) for failure in runtime.failures]
    return runtime.streams, runtime.state, failures


@pytest.mark.parametrize("name", workflows)
def test_direct_tasks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Atoms, rows and failures are equal for all that a handler can do."""
    taken: list[Atom] = []
    take = WorkflowStep._take_only_event

    def noting(step: WorkflowStep, direct: DirectTask, atom: Atom) -> None:
        taken.append(atom)
        take(step, direct, atom)

    monkeypatch.setattr(WorkflowStep, "_take_only_event", noting)
    direct = outcome(workflows[name]())
    assert taken
    del taken[:]
    monkeypatch.setattr(cascade_runner, "direct_task", lambda _: None)
    assert outcome(workflows[name]()) == direct
    assert not taken


@pytest.mark.parametrize("name", other)
def test_tasks_that_are_not_direct(name: str) -> None:
    """A workflow with more than one part between source and sink, or with parts of other types, has no direct task."""
    app = App(
        "x", other[name](), flow("d", stream("unused", int)).task(Doubling).sink("doubled", int)
    )
    assert direct_task(app.topology.workflows["f"]) is None
