"""Published tables: what may be published and taken, and what a row function cannot do to the transactions of others."""

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from penstock import (
    App,
    DefinitionError,
    Emit,
    Entity,
    Put,
    Removed,
    emit,
    flow,
    key,
    publish,
    readonly,
    registry,
    route,
    rows,
    savepoint,
    send,
    stream,
    transactional,
)
from penstock.engine.limits import Limits
from penstock.model.application_set import combined
from penstock.testing import Kit

SEEN = stream("seen", str)


class Person(Entity, personal=True):
    name: str = key()


class Box(Entity):
    name: str = key()
    weight: int = 1
    owner: Person | None = None
    tags: list[str] = []

    def load(self, weight: int) -> None:
        self.weight += weight

    def move(self, to: "Box", weight: int) -> None:
        self.weight -= weight
        to.weight += weight

    def try_out(self) -> None:
        try:
            with savepoint():
                self.weight = 99
                raise ValueError("undone")
        except ValueError:
            pass


@dataclass
class Label:
    name: str
    weight: int


def kit_of(function: Callable[[Any], Any], **limits: Any) -> Kit:
    """Return a kit with boxes a and b, whose table a row function makes."""
    table = publish(rows(Box)(function), "labels")
    kit = Kit(App("depot", Box, Person, SEEN, table), limits=Limits(**limits))
    kit.call(Box.create, "a")
    kit.call(Box.create, "b")
    return kit


def changes(kit: Kit) -> list[list[tuple[Any, ...]]]:
    """Return the atoms of the table: key, place and weight of each row, and no weight if it is removed."""
    return [
        [
            (change.key, change.place, *([change.row.weight] if isinstance(change, Put) else []))
            for change in atom
        ]
        for atom in kit.atoms("labels")
    ]


def test_one_atom_for_each_transaction_that_changes_rows() -> None:
    """A transaction over two entities gives one atom; one that changes no row gives none."""

    def labels(box: Box) -> Label | None:
        return Label(box.name, box.weight) if box.weight > 0 else None

    kit = kit_of(labels)
    kit.call(Box.move, Box("a"), Box("b"), 1)
    kit.call(Box.move, Box("a"), Box("b"), 0)
    kit.call(Box.try_out, Box("b"))
    kit.call(Box("b").delete)
    assert changes(kit) == [
        [("a", 0, 1)],
        [("b", 0, 1)],
        [("a", 0), ("b", 0, 2)],
        [("b", 0)],
    ]


def test_rows_of_an_entity_have_places() -> None:
    """Of several rows, those that differ are put, and those that are left over are removed."""

    def labels(box: Box) -> Iterator[Label]:
        for number in range(box.weight):
            yield Label(box.name, number if number else box.weight)

    kit = kit_of(labels)
    kit.call(Box.load, Box("a"), 2)
    kit.call(Box.load, Box("a"), -1)
    assert changes(kit)[2:] == [
        [("a", 0, 3), ("a", 1, 1), ("a", 2, 2)],
        [("a", 0, 2), ("a", 2)],
    ]


class Odd(BaseException):
    """No `Exception`."""


def fail(raised: BaseException) -> Any:
    raise raised


def loop(_box: Any) -> Any:
    """Swallow whatever should end it."""
    while True:
        try:
            while True:
                pass
        except BaseException:  # noqa: BLE001
            pass


MISDEEDS: dict[str, Callable[[Any], Any]] = {
    "raises": lambda _: fail(ValueError("wrong")),
    "raises no exception": lambda _: fail(Odd()),
    "exits": lambda _: sys.exit(3),
    "loops": loop,
    "has no end": lambda box: (Label(box.name, number) for number in itertools.count()),
    "another type": lambda _: [("a", 1)],
    "another type inside": lambda box: [Label(box.name, "5")],  # type: ignore[arg-type]
    "emits": lambda box: emit(SEEN, box.name),
    "sends": lambda box: send(Box.load, box, 1),
    "reads another entity": lambda _: [Label("a", Box("b").weight)],
}
"""What a row function may do, and must not."""


def misbehaving(name: str) -> Callable[[Any], Any]:
    """Return a row function that misbehaves for a box of weight 5."""

    def labels(box: Box) -> Iterator[Label]:
        if box.weight == 5:
            yield from MISDEEDS[name](box)
        yield Label(box.name, box.weight)

    return labels


@pytest.mark.parametrize("name", MISDEEDS)
def test_a_row_function_fails_alone(name: str) -> None:
    """The transaction takes effect, the rows of other entities are published, and the failure is on a stream of its own."""
    kit = kit_of(misbehaving(name), time_ms=100, wall_ms=1_000)
    kit.call(Box.load, Box("b"), 9)
    kit.runtime.call(Box.move, Box("a"), Box("b"), -4)
    assert kit.entity("Box", "a") == {"name": "a", "weight": 5, "owner": None, "tags": []}
    assert changes(kit)[-1] == [("a", 0), ("b", 0, 6)]
    failed = [event for atom in kit.atoms("labels-failed") for event in atom]
    assert {event.source for event in failed} == {"Box"}
    assert kit.atoms(SEEN) == []
    kit.runtime.call(Box.load, Box("a"), 1)
    assert changes(kit)[-1] == [("a", 0, 6)]


def test_a_row_function_cannot_change_its_entity() -> None:
    """It gets an object of its own for each call."""

    def labels(box: Box) -> Label:
        box.tags.append("seen")
        box.weight += len(box.tags)
        return Label(box.name, box.weight)

    kit = kit_of(labels)
    kit.call(Box.load, Box("a"), 1)
    assert changes(kit) == [[("a", 0, 2)], [("b", 0, 2)], [("a", 0, 3)]]
    assert kit.entity("Box", "a") == {"name": "a", "weight": 2, "owner": None, "tags": []}


@dataclass
class Owned:
    owner: Person | None
    weight: int


def test_rows_about_an_erased_person_are_gone() -> None:
    """Events that refer to a person are encrypted with its key, so nobody reads them after the erasure."""

    def labels(box: Box) -> Owned:
        return Owned(box.owner, box.weight)

    kit = kit_of(labels)
    kit.call(Person.create, "ada")
    kit.call(Box.create, "c", owner=Person("ada"))
    data = kit.runtime.streams["labels"][-1][0]
    assert b"weight" not in bytes(data)
    assert [change.key for change in kit.atoms("labels")[-1]] == ["c"]
    kit.erase("Person", "ada")
    assert kit.atoms("labels")[-1] == []


def test_a_class_is_a_table_with_its_key_and_attributes() -> None:
    """The other application needs no class of the first one, except for references."""

    @registry.entity("/depot/Person")
    class Person(Entity, personal=True):
        name: str = key()

    @dataclass
    class Whole:
        name: str
        weight: int
        owner: Person | None
        tags: list[str]

    def key_of(change: Put[Whole] | Removed) -> str:
        return change.key

    taken = registry.rows("/depot/Box", Whole)
    desk = App("desk", Person, flow("f", taken).map(key_of).task(Count).sink("counted"))
    kit = Kit(App("depot", Box, Persons, publish(Box)), desk)
    kit.call(Box.create, "a", tags=["x"])
    kit.call(Box.load, Box("a"), 2)
    assert kit.atoms("counted") == [[1], [2]]


Persons = Person


class Count:
    count: int = 0

    def on_event(self, name: str, out: Emit[int]) -> None:
        self.count += 1
        out(self.count)


@rows(Box)
def labels(box: Box) -> Label:
    return Label(box.name, box.weight)


@readonly
@transactional
@route("GET /tables/{name}")
def seat(name: str) -> str:
    return name


depot = App("depot", Box, Person, publish(labels))
assert App("restaurant", seat).routes, "without a published table, the path is free"


def refusal(*apps: App) -> str:
    with pytest.raises(DefinitionError) as caught:
        combined(apps)
    return str(caught.value)


@dataclass
class Heavy:
    name: str
    weight: str
    colour: str


@dataclass
class Short:
    name: str


class Pair(NamedTuple):
    name: str
    weight: int


def test_types_of_rows_are_compared() -> None:
    """The refusal names both applications' sides and each field that differs."""
    told = refusal(depot, desk_of(registry.rows("/depot/labels", Heavy)))
    assert "application desk uses /depot/labels with weight: str" in told
    assert "the rows of the table have weight: int" in told
    assert "colour: str, and the rows of the table have no such field" in told
    told = refusal(depot, desk_of(registry.rows("/depot/labels", Short)))
    assert "rows without weight, and the rows of the table have weight: int" in told
    told = refusal(depot, desk_of(registry.rows("/depot/labels", Pair)))
    assert "rows of type Pair, and the table has rows of Label" in told
    told = refusal(depot, desk_of(registry.rows("/depot/lables", Label)))
    assert "there is no published table '/depot/lables'; did you mean /depot/labels?" in told
    assert combined((depot, desk_of(registry.rows("/depot/labels", Label)))).topology.tables


def desk_of(taken: Any) -> App:
    return App("desk", flow("f", taken).map(str).sink("texts", str))


@pytest.mark.parametrize(
    ("members", "told"),
    [
        (lambda: (Box, Person, publish(Person)), "Person is a personal class"),
        (lambda: (publish(labels),), "Box is not part of the application"),
        (lambda: (Box, Person, publish(int)), "cannot be published"),
        (lambda: (Box, Person, publish(labels, "1st")), "'1st' cannot name a stream"),
        (lambda: (Box, Person, publish(labels), publish(labels)), "the name labels is taken"),
        (lambda: (Box, Person, labels), "publish(labels)"),
        (lambda: (Box, Person, seat, publish(labels)), "is taken by published tables"),
        (
            lambda: (
                Box,
                Person,
                flow("f", publish(labels), start=7).map(str).sink("texts", str),
            ),
            'its source is a published table, so start is "earliest"',
        ),
    ],
)
def test_what_cannot_be_published(members: Callable[[], tuple[Any, ...]], told: str) -> None:
    """Each mistake is refused when the application is built."""
    with pytest.raises(DefinitionError) as caught:
        App("depot", *members())
    assert told in str(caught.value)


def test_handlers_cannot_emit_on_a_table() -> None:
    """Only the changes of entities publish on it."""
    table = publish(labels)

    class Forger(Entity):
        name: str = key()

        def forge(self) -> None:
            emit(table, Put("a", Label("a", 1)))

    kit = Kit(App("forging", Box, Person, table, Forger))
    kit.call(Forger.create, "f")
    with pytest.raises(Exception, match="takes no events of handlers"):
        kit.call(Forger.forge, Forger("f"))
