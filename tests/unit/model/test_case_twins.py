"""Names that differ only in case are refused: SQL reads both as the same name."""

from dataclasses import dataclass
from typing import Any

import pytest

from penstock import App, Entity, entity, flow, key, stream, was
from penstock.errors import ClassChanged, DefinitionError
from penstock.testing import Kit


def a_class(name: str, former: str = "", /, **attributes: Any) -> type:
    """Return an entity class with attributes of whole numbers."""
    hints = {"id": str, **dict.fromkeys(attributes, int)}
    made = type(name, (), {"__annotations__": hints, "id": key(), **attributes})
    made.__module__ = __name__
    return entity(was=former)(made)


@dataclass
class Line:
    count: int
    Count: int


class Priced(Entity):
    id: str = key()
    lines: list[Line] = []


class Task:
    total: int = 0
    Total: int = 0

    def on_event(self, number: int) -> None:
        pass


class Plain:
    def on_event(self, number: int) -> None:
        pass


numbers = stream("numbers", int)
WRONG: dict[str, tuple[list[Any], str]] = {
    "classes": ([a_class("Item"), a_class("item")], "item and Item at .* differ only in case"),
    "attributes": ([a_class("Item", price=1, Price=2)], "Item.Price and Item.price differ only"),
    "a key": ([a_class("Item", Id=1)], "Item.Id and Item.id differ only"),
    "streams": ([numbers, stream("Numbers", int)], "Numbers and numbers at .* differ only"),
    "fields of a record": ([Priced], "Line: the fields count and Count differ only in case"),
    "attributes of a task": ([flow("f", numbers).task(Task).sink("s", int)], "f.Task.Total and"),
    "workflows": (
        [
            flow("f", numbers).task(Plain).sink("s", int),
            flow("F", numbers).task(Plain).sink("t", int),
        ],
        "F.Plain and f.Plain at",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_application_has_one_of_two_names(what: str) -> None:
    """The complaint names both, and where they are."""
    members, why = WRONG[what]
    with pytest.raises(DefinitionError, match=why):
        App("case", *members)


def stored(*members: Any) -> Kit:
    """Return an application with an entity `item`."""
    kit = Kit(App("case", a_class("item", name=1), *members))
    kit.call.item.create("cup")
    return kit


def test_deployment_takes_no_name_of_what_is_stored() -> None:
    """A removed class, attribute or stream keeps its name in SQL; a renamed one is told by a word."""
    kit = stored(stream("sold", int))
    with pytest.raises(ClassChanged, match=r'entities of item are stored.*was="item"'):
        kit.runtime.deploy(App("case", a_class("Item")), drop=["item"])
    with pytest.raises(ClassChanged, match=r'Name: … = was\("name"\)'):
        kit.runtime.deploy(App("case", a_class("item", Name=2)))
    with pytest.raises(ClassChanged, match="stream Sold: there was stream sold"):
        kit.runtime.deploy(App("case", a_class("item", name=1), stream("Sold", int)))
    kit.runtime.deploy(App("case", a_class("Item", "item", Name=was("name", default=7))))
    assert kit.entity("Item", "cup") == {"id": "cup", "Name": 1}


def test_removed_class_keeps_its_name() -> None:
    """Its entities are still shown."""
    kit = stored()
    kit.runtime.deploy(App("case", a_class("Other")), drop=["item"])
    with pytest.raises(ClassChanged, match="entities of item are stored"):
        kit.runtime.deploy(App("case", a_class("Item")))
