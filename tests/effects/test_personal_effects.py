"""Effects about persons: what is stored of them is encrypted, and an erasure ends them."""

from typing import Any

import msgspec
import pytest

from penstock import App, Entity, Final, Outcome, effect, key, send
from penstock.engine.effect_call import arguments_of, hidden_error, protected_value, settlement_of
from penstock.errors import Erased
from penstock.model.sealed_value import subject_of_request
from penstock.model.waiting_effect import Settlement, WaitingEffect, effect_key, settled
from penstock.testing import Kit

SECRET = "ann@example.org"


@effect
def write(to: "Person", text: str) -> str:
    """Write to a person."""
    raise NotImplementedError


class Person(Entity, personal=True):
    """A person."""

    name: str = key()
    told: list[str] = []

    def greet(self) -> None:
        """Write to the person, who gets the outcome."""
        send(write, self, SECRET).then(self.note)

    def note(self, outcome: Outcome[str]) -> None:
        """Note an outcome."""
        self.told.append(f"{outcome.status} {outcome.value} {outcome.error}")


class Letter(Entity):
    """A letter, which is no person."""

    number: int = key()
    told: list[str] = []

    def post(self, to: Person) -> None:
        """Write to a person; the letter gets the outcome."""
        send(write, to, SECRET).then(self.note)

    def note(self, outcome: Outcome[str]) -> None:
        """Note an outcome."""
        self.told.append(f"{outcome.status} {outcome.value} {outcome.error}")


app = App("letters", Person, Letter, write)


class Case:
    """A kit whose effects wait until the test settles them."""

    def __init__(self) -> None:
        self.kit = Kit(app)
        self.kit.call(Person.create, "ann")
        self.kit.call(Letter.create, 1)

    def waiting(self) -> WaitingEffect:
        [waiting] = self.kit.runtime.waiting_effects()
        return waiting

    def settle(self, settlement: Settlement) -> bytes:
        """Let the row take an outcome; return what is stored of it."""
        body = settlement.body()
        reply = self.kit.runtime._submit(body, f"{settlement.effect}~~o{settlement.round}")
        assert reply.error is None, reply
        stored = [*self.kit.runtime.state.values()]
        told = [each.data for _, each in self.kit.runtime._known.values()]
        return b"\n".join([body, *stored, *told])

    def entity(self, name: str, named: Any) -> list[str]:
        found = self.kit.entity(name, named)
        assert found is not None
        return list(found["told"])

    def done(self) -> Settlement:
        app, waiting = self.kit.runtime.app, self.waiting()
        value = protected_value(app, waiting, msgspec.msgpack.encode(SECRET))
        return settlement_of(waiting, "done", value=value, tries=1)

    def failed(self) -> Settlement:
        app, waiting = self.kit.runtime.app, self.waiting()
        error, hidden = hidden_error(app, waiting, "Final", f"Final: {SECRET}")
        assert hidden is not None
        assert SECRET not in error
        return settlement_of(waiting, "failed", value=hidden, error=error, tries=1)


@pytest.mark.parametrize("kind", ["done", "failed"])
def test_nothing_that_is_stored_shows_an_outcome_about_a_person(kind: str) -> None:
    """The method gets the whole text nevertheless; a dead letter keeps the kind of its error."""
    case = Case()
    case.kit.runtime.call(Person.greet, Person("ann"))
    assert SECRET.encode() not in bytes(case.waiting().positional)
    stored = case.settle(case.done() if kind == "done" else case.failed())
    assert SECRET.encode() not in stored
    [told] = case.entity("Person", "ann")
    assert told == (f"done {SECRET} " if kind == "done" else f"failed None Final: {SECRET}")


@pytest.mark.parametrize("kind", ["done", "failed"])
def test_the_request_to_another_entity_is_encrypted_for_the_person(kind: str) -> None:
    """The entity may keep what it is told: that is the code of the application."""
    case = Case()
    case.kit.runtime.call(Letter.post, Letter(1), Person("ann"))
    settlement = case.done() if kind == "done" else case.failed()
    waiting = case.waiting()
    assert waiting.then is not None
    ended = settled(case.kit.runtime.state[effect_key(waiting.id)], settlement)
    body = case.kit.runtime._executor._then_body(settlement, ended, waiting.then)
    assert SECRET.encode() not in body
    assert subject_of_request(body) == "Person/ann"
    case.settle(settlement)
    assert SECRET in case.entity("Letter", 1)[0]


def test_an_erased_person_ends_the_effects() -> None:
    """The call fails for good; an outcome that was under way is told without its value."""
    case = Case()
    case.kit.runtime.call(Letter.post, Letter(1), Person("ann"))
    waiting, settlement = case.waiting(), case.done()
    case.kit.erase(Person, Person("ann"))
    with pytest.raises(Erased):
        arguments_of(case.kit.runtime.app, waiting)
    case.settle(settlement)
    assert case.entity("Letter", 1) == ["done None <erased>"]
    assert case.kit.runtime.waiting_effects() == []


def test_an_outcome_for_a_person_who_is_gone_ends_the_effect() -> None:
    """The method finds no person, and nothing waits any more."""
    case = Case()
    case.kit.runtime.call(Person.greet, Person("ann"))
    settlement = case.failed()
    case.kit.erase("Person", "ann")
    case.settle(settlement)
    assert case.kit.runtime.waiting_effects() == []
    assert case.kit.entity("Person", "ann") is None


def test_a_fake_that_fails_tells_its_whole_text() -> None:
    """A kit hides the same, and the method is told the same."""

    def refused(_to: Person, text: str) -> str:
        raise Final(text)

    kit = Kit(app, effects={write: refused})
    kit.call(Person.create, "ann")
    kit.call(Person.greet, Person("ann"))
    found = kit.entity("Person", "ann")
    assert found is not None
    assert found["told"] == [f"failed None Final: {SECRET}"]
    assert all(SECRET.encode() not in data for data in kit.runtime.state.values() if data)
