"""A deployment is refused if what waits would be read with another meaning, wherever it waits."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    App,
    Emit,
    Entity,
    entity,
    flow,
    key,
    migrate,
    portal,
    send_after,
    stream,
    transactional,
)
from penstock.errors import ClassChanged
from penstock.testing import Kit


class Former(enum.IntEnum):
    NEW = 1
    PAID = 2


class Present(enum.IntEnum):
    DRAFT = 1
    NEW = 2
    PAID = 3


class Renamed(enum.IntEnum):
    NEW = 1
    SETTLED = 2
    PAID = 2


Status = Any


def in_an_attribute(status: Status) -> App:
    class Bill(Entity):
        id: str = key()
        states: dict[str, status] = {}

    return App("bills", Bill)


def in_a_record(status: Status) -> App:
    @dataclass
    class Line:
        states: "list[tuple[str, Any]]"

    Line.__annotations__["states"] = list[tuple[str, status]]
    Line.__dataclass_fields__["states"].type = list[tuple[str, status]]

    class Bill(Entity):
        id: str = key()
        lines: list[Line] = []

    return App("bills", Bill)


def in_a_key(status: Status) -> App:
    class Bill(Entity):
        id: tuple[str, status] = key()
        text: str = ""

    return App("bills", Bill)


def in_a_reference(status: Status) -> App:
    class Book(Entity):
        id: status = key()

    class Bill(Entity):
        id: str = key()
        book: Book | None = None

    return App("bills", Book, Bill)


def in_a_parameter(status: Status) -> App:
    class Bill(Entity):
        id: str = key()

        def put(self, state: status | None) -> None:
            pass

    return App("bills", Bill)


def in_a_result(status: Status) -> App:
    class Bill(Entity):
        id: str = key()

        def state(self) -> status:
            return status.NEW

    return App("bills", Bill)


def in_a_function(status: Status) -> App:
    @transactional
    def put(states: set[status]) -> None:
        pass

    return App("bills", put)


def in_an_event(status: Status) -> App:
    return App("bills", stream("states", dict[status, str]))


def in_an_event_of_a_task(status: Status) -> App:
    class First:
        def on_event(self, number: int, out: Emit[status]) -> None:
            pass

    class Second:
        def on_event(self, state: status, out: Emit[int]) -> None:
            pass

    return App("bills", flow("f", stream("n", int)).task(First).task(Second).sink("s"))


def in_the_state_of_a_task(status: Status) -> App:
    class Last:
        state: status = status.NEW

        def on_event(self, number: int, out: Emit[int]) -> None:
            self.state = status.PAID

    return App("bills", flow("f", stream("n", int)).task(Last).sink("s"))


def in_a_question(status: Status) -> App:
    states: Any = portal("states", int, status)

    class Answers:
        def on_event(self, number: int, out: Emit[int]) -> None:
            pass

        @states.reply  # type: ignore[untyped-decorator]
        def state_of(self, number: int) -> status:
            return status.NEW

    return App("bills", flow("f", stream("n", int)).task(Answers).sink("s"))


PLACES: dict[Callable[[Status], App], str] = {
    in_an_attribute: "Bill: states: .*@migrate",
    in_a_record: "Bill: lines: .*Line.states: .*@migrate",
    in_a_key: "Bill: the key id: ",
    in_a_reference: "Bill: book: ",
    in_a_parameter: "Bill.put: state: .*give the parameter another name",
    in_a_result: "result Bill.state: .*give the method another name",
    in_a_function: "put: states: ",
    in_an_event: "stream states: event: .*declare a stream with another name",
    in_an_event_of_a_task: "task f.First: output: ",
    in_the_state_of_a_task: "f.Last: state: ",
    in_a_question: "portal states: reply: .*declare a portal with another name",
}


def started(app: App) -> Kit:
    """Run an application that has stored something."""
    kit = Kit(app)
    if app.entities:
        name = "Bill"
        key_of: Any = ("b", Former.NEW) if app.entities[name].key_annotation is not str else "b"
        getattr(kit.call, name).create(key_of)
    if "n" in app.topology.streams:
        kit.append("n", [1])
    return kit


@pytest.mark.parametrize("place", PLACES)
def test_enumeration_with_another_meaning_is_refused(place: Callable[[Status], App]) -> None:
    """The refusal names the place, each member, its former value, and what can be done."""
    kit = started(place(Former))
    with pytest.raises(ClassChanged, match=f"{PLACES[place]}") as raised:
        kit.runtime.deploy(place(Present))
    assert "PAID is stored as 2, which is NEW now" in str(raised.value)
    kit.runtime.deploy(place(Renamed))


def numbers(number: Any) -> App:
    class Count(Entity):
        id: str = key()

        def add(self, number: number) -> None:
            pass

    return App("counts", Count, stream("numbers", list[number]))


def test_whole_numbers_are_not_rounded() -> None:
    """A wider number holds both."""
    kit = Kit(numbers(int))
    with pytest.raises(ClassChanged) as raised:
        kit.runtime.deploy(numbers(float))
    assert "Count.add: number: float would round" in str(raised.value)
    assert "stream numbers: event: float would round whole numbers above 2**53; int | float" in str(
        raised.value
    )
    kit.runtime.deploy(numbers(int | float))
    kit.runtime.deploy(numbers(str))  # no number is read as text


def test_types_of_a_method_that_was_away_are_known() -> None:
    """A request that waits since then has the former meaning."""
    kit = Kit(in_a_function(Former))
    kit.runtime.deploy(App("bills", stream("n", int)))
    with pytest.raises(ClassChanged, match="put: states: "):
        kit.runtime.deploy(in_a_function(Present))


HOUR = timedelta(hours=1)


def sending(status: Any, *, is_migrated: bool, **more: Any) -> App:
    """Return an application whose function sends a creation for later."""
    hints = {"id": str, "state": status, **dict.fromkeys(more, int)}
    values = {"id": key(), "state": status.NEW, **more}
    bill: Any = entity(
        type("Bill", (), {"__annotations__": hints, "__module__": __name__, **values})
    )

    @transactional
    def later() -> None:
        send_after(HOUR, bill.create, "later", state=status.PAID)

    @migrate(bill, since=2)
    def renumbered(old: dict[str, Any]) -> dict[str, Any]:
        return {"state": old["state"] + 1}

    return App("bills", bill, later, *[renumbered] * is_migrated)


def after_a_deployment(app: App) -> Kit:
    """Return an application with an entity and a waiting creation, both of the former code."""
    kit = Kit(sending(Former, is_migrated=False))
    kit.call.Bill.create("now", state=Former.PAID)
    kit.call.later()
    kit.runtime.deploy(app)
    kit.clock.advance(2 * HOUR)
    kit.runtime.settle()
    return kit


def test_function_gives_stored_members_their_new_values() -> None:
    """A creation that was sent before has the former values, so it fails; a later one is taken."""
    kit = after_a_deployment(sending(Present, is_migrated=True))
    assert kit.entity("Bill", "now") == {"id": "now", "state": Present.PAID}
    assert kit.entity("Bill", "later") is None
    (failure,) = [reply.data for _, reply in kit.runtime._known.values() if reply.error]
    assert b"made for an earlier version of the class" in failure
    kit.call.later()
    kit.clock.advance(2 * HOUR)
    kit.settle()
    assert kit.entity("Bill", "later") == {"id": "later", "state": Present.PAID}


def test_creation_waits_for_a_class_that_has_grown() -> None:
    """A new attribute has its default."""
    kit = after_a_deployment(sending(Former, is_migrated=False, size=7))
    assert kit.entity("Bill", "later") == {"id": "later", "state": Former.PAID, "size": 7}
