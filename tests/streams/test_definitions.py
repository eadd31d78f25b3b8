"""Mistakes in streams and workflows are found when an application is built, all of them together."""

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from msgspec import Meta

from penstock import (
    App,
    DefinitionError,
    Emit,
    Entity,
    call,
    connect,
    flow,
    key,
    limit,
    portal,
    readonly,
    registry,
    sequencer,
    splitter,
    stream,
)
from penstock.testing import Kit

numbers = stream("numbers", int)
words = stream("words", str)
unanswered = portal("unanswered", int, int)


def text_of(number: int) -> str:
    return str(number)


def length_of(word: str) -> int:
    return len(word)


class Echo:
    def on_event(self, number: int, out: Emit[int]) -> None:
        out(number)


class Ends:
    def on_event(self, number: int, out: Emit[int]) -> None:
        out(number)

    def on_atom_complete(self, out: Emit[int]) -> None:
        out(0)


class StaticEcho:
    @staticmethod
    def on_event(number: int, out: Emit[int]) -> None:
        out(number)


class ClassCompletion(Echo):
    @classmethod
    def on_atom_complete(cls) -> None: ...


class Marked(Echo):
    @limit("1/s")
    def helper(self) -> None: ...

    @readonly
    def other_helper(self) -> None: ...


Small = Annotated[int, Meta(le=9)]


def small(number: int) -> Small:
    return number


class Returns:
    def on_event(self, number: int) -> int:
        return number


class NoHandler:
    pass


class NoEmit:
    def on_event(self, number: int, out) -> None:  # type: ignore[no-untyped-def]
        out(number)


class NoDefault:
    total: int

    def on_event(self, number: int) -> None: ...


class WithInit:
    def __init__(self) -> None:
        self.total: int = 0

    def on_event(self, number: int) -> None: ...


class WaitsAtTheEnd:
    def on_event(self, number: int) -> None: ...

    async def on_atom_complete(self, out: Emit[int]) -> None: ...


class Unstorable:
    file: Callable[[], int] | None = None

    def on_event(self, number: int) -> None: ...


wrongly = portal("wrongly", int, int)


class RepliesWrongly:
    def on_event(self, number: int) -> None: ...

    @wrongly.reply
    def on_ask(self, text: str) -> str:
        return text


class Person(Entity):
    name: str = key()

    def rename(self) -> None: ...


distant = registry.portal("/elsewhere/portals/distant", int, int)


class AsksInVain:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        for asked in [unanswered.ask(n) for n in range(number)]:
            out(await asked)


class AsksByFunction:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        out(await asked_for(number))


async def asked_for(number: int) -> int:
    return await unanswered.ask(number)


class AsksElsewhere:
    def on_event(self, number: int, out: Emit[int]) -> None:
        distant.ask(number).then(out)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: flow("f", numbers).map(length_of).sink("out"),  # type: ignore[arg-type]
        "function takes str, and the events are int",
    ),
    (
        lambda: flow("f", words).task(Echo).sink("out"),  # type: ignore[arg-type]
        "f.Echo takes int, and the events are str",
    ),
    (lambda: flow("f", numbers).map(lambda n: n).sink("out"), "the type of its events is unknown"),
    (lambda: flow("f", numbers).map(text_of).sink("out", int), "publishes str, and its sink out"),
    (lambda: flow("f", numbers).task(NoHandler).sink("out"), "no method on_event"),  # type: ignore[arg-type]
    (
        lambda: flow("f", numbers).task(NoEmit).sink("out", int),
        "does not declare the type of its events",
    ),
    (lambda: flow("f", numbers).task(NoDefault).sink("out", int), "needs a default"),
    (lambda: flow("f", numbers).task(WithInit).sink("out", int), "a task has no __init__"),
    (lambda: flow("f", numbers).task(WaitsAtTheEnd).sink("out", int), "on_atom_complete is async"),
    (lambda: flow("f", numbers).task(Unstorable).sink("out", int), "Unstorable.file"),
    (lambda: flow("f", numbers).task(Person).sink("out", int), "a class that is no entity"),  # type: ignore[arg-type]
    (lambda: flow("f", numbers).key(float).task(Echo).sink("out"), "float cannot be a key"),
    (
        lambda: flow("f", numbers).key(int).task(Ends).task(Echo).sink("out"),
        "publishes events in on_atom_complete, which have no key",
    ),
    (
        lambda: flow("f", numbers).task(Echo).task(Echo).sink("out"),
        "two tasks are named Echo",
    ),
    (
        lambda: (start := flow("f", numbers)).key(int).union(start).task(Echo).sink("out"),
        "have different keys: int and no key; use .key before this task",
    ),
    (
        lambda: flow("f", numbers).task(AsksInVain).sink("out"),
        "f.AsksInVain asks portal unanswered, and no task of this application replies to it: name the workflow",
    ),
    (
        lambda: flow("f", numbers).task(AsksByFunction).sink("out"),
        "f.AsksByFunction asks portal unanswered, and no task",
    ),
    (
        lambda: flow("f", numbers).task(AsksElsewhere).sink("out"),
        "f.AsksElsewhere asks portal distant, and no task of this application replies to it: name the portal of",
    ),
    (lambda: flow("f g", numbers).task(Echo).sink("out"), "'f g' cannot name a workflow"),
    (lambda: flow("f", numbers).task(Echo).sink("numbers"), "the name numbers is taken"),
    (
        lambda: flow("f", numbers).task(RepliesWrongly).sink("out", int),
        "replies to wrongly takes str, and its requests are int",
    ),
    (
        lambda: flow("f", numbers).task(RepliesWrongly).sink("out", int),
        "replies to wrongly returns str, and its replies are int",
    ),
    (lambda: unanswered, "no task replies to portal unanswered"),
    (lambda: flow("f", numbers).task(Echo), "<Flow f without sink>: end it with .sink(name)"),
    (lambda: flow("f", "numbers"), "takes its events from 'numbers', which is no stream"),  # type: ignore[arg-type]
    (lambda: splitter("s", splitter("t", numbers, all=bool), odd=bool), "<Splitter t>, which"),  # type: ignore[arg-type]
    (lambda: sequencer("q", int, flow("f", numbers)), "sequencer q takes its events"),  # type: ignore[arg-type]
    (lambda: connect(sequencer("q", int), numbers), "a target that is no sequencer"),  # type: ignore[arg-type]
    (lambda: call(5, Person, tuple), "call takes its events from 5"),  # type: ignore[call-overload]
    (lambda: call(numbers, Person.rename, tuple), "call of Person.rename: Person is not part of"),
    (lambda: call(numbers, Person.create, tuple), "call of Person.create: Person is not part of"),
    (lambda: splitter("s", numbers), "splitter s needs a function for each stream"),
    (lambda: flow("f", numbers).task(Returns).sink("out", int), "on_event returns int, which is"),
    (lambda: flow("f", numbers).task(Echo()).sink("out"), "is no task; a task is a class"),  # type: ignore[call-overload]
    (
        lambda: flow("f", numbers).task(StaticEcho).sink("out"),
        "f.StaticEcho: on_event is a staticmethod; write",
    ),
    (
        lambda: flow("f", numbers).task(ClassCompletion).sink("out"),
        "on_atom_complete is a classmethod; write a",
    ),
    (
        lambda: flow("f", numbers).task(Marked).sink("out"),
        "helper is marked @limit, which is not for tasks",
    ),
    (
        lambda: flow("f", numbers).task(Marked).sink("out"),
        "other_helper is marked @readonly, which is not",
    ),
    (
        lambda: flow("f", numbers).key(small).task(Echo).sink("out"),
        "its function has a constraint in Annotated",
    ),
    (
        lambda: sequencer("q", Small, numbers),
        "sequencer q has constraints that its input numbers does not have",
    ),
    (
        lambda: flow("f", numbers).union(words).sink("out"),  # type: ignore[arg-type]
        ".union of workflow f: <OpenStream words> is no branch of it; to join streams",
    ),
    (
        lambda: flow("f", numbers).union(flow("g", numbers)).sink("out"),
        "a union joins branches of a single flow",
    ),
    (lambda: stream("1st", int), "'1st' cannot name a stream: a name is a letter, and then"),
    (lambda: connect(words, sequencer("loop", int)), "another type than stream words"),
    (lambda: stream("odd", object), "object is not a type that can be stored"),
    (lambda: splitter("s", stream("s-a", int), a=bool), "the name s-a is taken"),
]


@pytest.mark.parametrize(("member", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_named(member: Callable[[], Any], message: str) -> None:
    """The error names the mistake, with the file and the line."""
    with pytest.raises(DefinitionError) as caught:
        App("x", member())
    assert message in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


def test_all_mistakes_at_once() -> None:
    """One error has the mistakes of all workflows."""
    with pytest.raises(DefinitionError) as caught:
        App(
            "x",
            flow("a", words).task(Echo).sink("first"),  # type: ignore[arg-type]
            flow("b", numbers).task(NoDefault).sink("second", int),
        )
    assert "a.Echo takes int" in str(caught.value)
    assert "needs a default" in str(caught.value)


def test_two_workflows_of_one_name_are_one_mistake() -> None:
    """The names of the streams that follow from the name of the workflow are no further mistakes."""
    with pytest.raises(DefinitionError) as caught:
        App("x", *(flow("same", numbers).task(Echo).sink("out") for _ in range(2)))
    assert str(caught.value).count(f"{__file__}:") == 1
    assert "two workflows are named same" in str(caught.value)


def test_a_workflow_brings_its_sources() -> None:
    """A program names the last workflow; the streams and workflows before it follow."""
    first = flow("first", numbers).task(Echo).sink("echoes")
    app = App("x", flow("second", first).task(Echo).sink("again"))
    assert sorted(app.topology.streams) == [
        "again",
        "echoes",
        "first-failed",
        "numbers",
        "second-failed",
    ]


def test_branches_with_different_keys_join() -> None:
    """A key behind the union counts; a sink needs none."""
    start = flow("f", numbers)
    both = start.key(lambda number: number).task(Echo).union(start.map(plus_hundred))
    kit = Kit(
        App(
            "x",
            both.key(parity).task(Count, name="C").sink("counts"),
        )
    )
    kit.append(numbers, [1, 2])
    assert kit.atoms("counts") == [[1, 1, 2, 2]]
    kit = Kit(App("x", both.sink("both")))
    kit.append(numbers, [1, 2])
    assert kit.atoms("both") == [[1, 2, 101, 102]]


def plus_hundred(number: int) -> int:
    return number + 100


def parity(number: int) -> int:
    return number % 2


class Count:
    count: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.count += 1
        out(self.count)


def test_a_portal_of_the_same_application_is_asked_in_any_order_of_members() -> None:
    """The asking workflow may be named before the replying one."""

    class Replying:
        def on_event(self, number: int) -> None: ...

        @unanswered.reply
        def on_ask(self, number: int) -> int:
            return number + 1

    asking = flow("asking", numbers).task(AsksByFunction).sink("asked")
    kit = Kit(
        App("x", asking, flow("replying", stream("never", int)).task(Replying).sink("nothing", int))
    )
    kit.append(numbers, [1])
    assert kit.atoms("asked")[-1] == [2]
