"""Services: tasks that reply to portals, without a stream, an event or a sink."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, AskFailed, DefinitionError, Emit, flow, portal, service, stream
from penstock.dataflow.analysis.analyze import analyze_app
from tests.streams.two_ways import Kit
from tests.streams.waiting_app import waiting_rows

numbers = stream("numbers", int)
count = portal("count", int, int, key=lambda number: number % 3)
total = portal("total", int, int)


class Counter:
    """Counts by key; each answer waits for the sum of another service."""

    asked: int = 0

    @count.reply
    async def on_count(self, number: int) -> int:
        self.asked += 1
        before = self.asked
        if await total.ask(number) > 1_000:
            raise ValueError(number)
        return before


class Total:
    added: int = 0

    @total.reply
    def on_total(self, number: int) -> int:
        self.added += number
        return self.added


class Asker:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        try:
            out(await count.ask(number))
        except AskFailed:
            out(-1)


def counting(*, exclusive: bool = False) -> App:
    asking = flow("asking", numbers).task(Asker).sink("asked")
    return App("x", service("counter", Counter, exclusive=exclusive), service("sum", Total), asking)


@pytest.mark.parametrize("exclusive", [False, True])
def test_services_reply(*, exclusive: bool) -> None:
    """They have state by key and without, wait, fail alone and publish nothing, on both ways of waiting."""
    kit = Kit(counting(exclusive=exclusive))
    kit.append(numbers, [1, 2, 3, 4])
    assert sorted(event for atom in kit.atoms("asked") for event in atom) == [1, 1, 1, 2]
    kit.append(numbers, [2_000], check=False)
    assert kit.atoms("asked")[-1] == [-1]
    assert (kit.task("counter.Counter", 1), kit.task("sum.Total")) == (
        {"asked": 2},
        {"added": 2010},
    )
    assert set(kit.runtime.streams) == {
        "numbers",
        "asked",
        "asking-failed",
        "counter-failed",
        "sum-failed",
    }
    assert [failed.message for [failed] in kit.atoms("counter-failed")] == ["ValueError: 2000"]
    assert waiting_rows(kit.runtime) == []


def test_a_service_is_in_the_graph() -> None:
    """A portal leads to the task of its service, and the service has no stream."""
    graph = analyze_app(counting())
    replies = [
        (str(edge.source.operator), str(edge.target.operator))
        for edge in graph.edges
        if edge.action.value == "reply"
    ]
    assert [target for _, target in replies] == ["workflows/counter", "workflows/sum"]
    assert not any("nothing" in str(operator) for operator in graph.operators)


class Empty:
    count: int = 0


class Eventful(Total):
    def on_event(self, number: int) -> None: ...


class Publishing:
    @total.reply
    def on_total(self, number: int, out: Emit[int]) -> int:
        return number


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: service("s", Empty), "s.Empty: replies to no portal"),
    (lambda: service("s", Eventful), "s.Eventful: has on_event, which a service never runs"),
    (
        lambda: service("s", Publishing),
        "s.Publishing: takes `out`, and a service publishes no stream",
    ),
    (lambda: service("s s", Total), "'s s' cannot name a workflow"),
    (lambda: service("s", 5), "service s: 5 is no class"),  # type: ignore[arg-type]
    (lambda: flow("f", service("s", Total)), "which is no stream"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_found_when_the_application_is_built(
    mistake: Callable[[], Any], message: str
) -> None:
    """The message has the name of the service, and the reason."""
    with pytest.raises(DefinitionError) as raised:
        App("x", mistake())
    assert any(message in complaint for complaint in raised.value.complaints), (
        raised.value.complaints
    )
