"""A question with a time-out: its asker goes on without a reply, and a reply that comes later has no effect."""

from datetime import timedelta
from typing import Any

import pytest

from penstock import App, AskFailed, Emit, Entity, ask, flow, key, portal, stream
from penstock.errors import Unencodable, UserError
from penstock.testing import Kit

MINUTE = timedelta(minutes=1)
numbers = stream("numbers", int)
questions = stream("questions", int)
doubled = portal("doubled", int, int)
broken = False


class Doubling:
    def on_event(self, number: int) -> None:
        if broken:
            raise ValueError("broken")

    @doubled.reply
    def double(self, number: int) -> int:
        return 2 * number


class Counter(Entity):
    name: str = key()
    total: int = 0

    def add(self, number: int) -> int:
        self.total += number
        return self.total


class Asking:
    asked: int = 0

    async def on_event(self, number: int, out: Emit[str]) -> None:
        self.asked += 1
        try:
            reply = str(await doubled.ask(number).within(MINUTE))
        except AskFailed as error:
            reply = str(error)
        out(f"{number}: {reply}")


class AskingEntity:
    async def on_event(self, number: int, out: Emit[str]) -> None:
        out(str(await ask(Counter.add, Counter("c"), number).within(MINUTE)))


doubling = flow("doubling", numbers, on_failure="pause").task(Doubling).sink("nothing", int)
asking = flow("asking", questions).task(Asking, exclusive=True).sink("replies")
entities = flow("entities", questions).task(AskingEntity).sink("totals")
NO_REPLY = "1: portal doubled: TimedOut: no reply in time"


@pytest.fixture(params=[False, True], ids=["memory", "durable"])
def kit(request: pytest.FixtureRequest) -> Kit:
    """Return a kit whose replying workflow is paused."""
    global broken
    kit = Kit(App("timing", Counter, doubling, asking, entities), durable_waits=request.param)
    kit.call(Counter.create, "c")
    broken = True
    kit.append(numbers, [0], check=False)
    broken = False
    assert list(kit.paused()) == ["doubling"]
    return kit


def test_question_without_a_reply_fails_when_its_time_is_over(kit: Kit) -> None:
    """The asker gets `AskFailed` at its `await`, and not before the time."""
    kit.append(questions, [1])
    assert kit.atoms(asking) == [[]]
    kit.clock.advance(MINUTE - timedelta(microseconds=1))
    kit.settle()
    assert kit.atoms(asking) == [[]]
    kit.clock.advance(timedelta(microseconds=1))
    kit.settle()
    assert kit.atoms(asking) == [[], [NO_REPLY]]


def test_reply_after_the_time_has_no_effect(kit: Kit) -> None:
    """The late reply publishes an empty atom, and nothing of the wait remains."""
    kit.append(questions, [1])
    kit.clock.advance(MINUTE)
    kit.settle()
    kit.resume("doubling")
    assert [atom for atom in kit.atoms(asking) if atom] == [[NO_REPLY]]
    assert not [name for name in kit.runtime.state if name.startswith("$wait")]
    kit.append(questions, [2])
    assert kit.atoms(asking)[-1] == ["2: 4"]


def test_reply_in_time_ends_the_wait(kit: Kit) -> None:
    """The time-out of a question with a reply changes nothing."""
    kit.append(questions, [1])
    kit.resume("doubling")
    assert [atom for atom in kit.atoms(asking) if atom] == [["1: 2"]]
    kit.clock.advance(2 * MINUTE)
    kit.settle()
    assert [atom for atom in kit.atoms(asking) if atom] == [["1: 2"]]
    assert kit.task("asking.Asking") == {"asked": 1}
    assert not [name for name in kit.runtime.state if name.startswith("$")] or kit.paused() == {}


def test_exclusive_task_goes_on_after_the_time(kit: Kit) -> None:
    """Events behind a handler that waits are processed when the handler goes on."""
    kit.append(questions, [1, 2])
    kit.clock.advance(MINUTE)
    kit.settle()
    kit.clock.advance(MINUTE)
    kit.settle()
    replies = [event for atom in kit.atoms(asking) for event in atom]
    assert replies == [NO_REPLY, NO_REPLY.replace("1:", "2:")]


def test_entity_can_be_asked_with_a_time(kit: Kit) -> None:
    """The result of an entity comes in time."""
    kit.append(questions, [5])
    assert [event for atom in kit.atoms(entities) for event in atom] == ["5"]
    kit.clock.advance(MINUTE)
    kit.settle()
    assert [event for atom in kit.atoms(entities) for event in atom] == ["5"]


@pytest.mark.parametrize("time", [timedelta(0), -MINUTE, 5])
def test_time_is_positive(time: Any) -> None:
    """A time-out that is no positive duration is a mistake of the handler."""

    class Wrong:
        async def on_event(self, number: int) -> None:
            await doubled.ask(number).within(time)

    wrong = flow("wrong", questions).task(Wrong).sink("wrongs", int)
    kit = Kit(App("timing", doubling, wrong))
    with pytest.raises((UserError, Unencodable), match="a time-out is a duration greater than 0"):
        kit.append(questions, [1])
