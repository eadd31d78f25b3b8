"""Changes of classes: those that stored entities survive, those that are refused, and the upcast of each row."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from penstock import App, Entity, entity, key, migrate, reference, was
from penstock.base.ids import RequestId
from penstock.engine.execute import Executor, Limits
from penstock.errors import DefinitionError, MigrationFailed
from penstock.history.deployment_check import findings_of_schemas
from penstock.model.entity_type import EntityType
from penstock.model.schema_version import SchemaVersion
from penstock.model.versions.schema_change import change_of, compare_classes
from tests.schema_classes import history, item, upcast


def test_added_removed_reordered_and_renamed_attributes() -> None:
    """Values follow their names; a new attribute has its default; a removed one is gone."""
    former = item({"price": int, "stock": int, "old": str})
    present = item(
        {
            "stock": int,
            "tags": list[str],
            "cost": int | float,
            "note": str | None,
            "owner": "Item | None",
        },
        tags=field(default_factory=list),
        cost=was("price", default=9.5),
        note=None,
        owner=was("nobody", default=reference(exists=True, default=None)),
    )
    read = upcast(former, present, price=3, stock=10, old="x")
    assert read == {"stock": 10, "tags": [], "cost": 3, "note": None, "owner": None}
    change = change_of(history(former), present, 7)
    assert change is not None
    assert change.changes == [
        "+ tags: list[str]",
        "price is called cost",
        "cost: int became int | float",
        "+ note: str | None",
        "+ owner: Item | None",
        "- old: str",
    ]
    assert present.must_exist == ("owner",)


def test_attribute_that_may_be_renamed_is_doubted() -> None:
    """A removed attribute and a new one of its type are named together; a type of its own, or `was`, is no doubt."""
    former = item({"text": str, "stock": int})
    change = change_of(history(former), item({"memo": str, "note": str}, memo="", note=""), 7)
    assert change is not None
    doubt = (
        "the values of text are lost when an entity changes; if it was renamed, write "
        'memo: str = was("text", default=…)'
    )
    assert (change.doubts, change.changes[-1], change.refusals) == ([doubt], doubt, [])
    found = {finding.what: finding.level.value for finding in findings_of_schemas([change])}
    assert found == {
        "Item: + memo: str": "safe",
        "Item: + note: str": "safe",
        "Item: - text: str": "safe",
        "Item: - stock: int": "safe",
        f"Item: {doubt}": "needs-a-word",
    }
    for certain in (
        item({"memo": str, "stock": int}, memo=was("text", default="")),
        item({"stock": int}),
        item({"memo": bytes, "stock": int}, memo=b""),
    ):
        change = change_of(history(former), certain, 7)
        assert change is not None
        assert change.doubts == []


def test_new_attribute_may_have_the_name_of_a_renamed_one() -> None:
    """The renamed attribute takes the values, also in a chain; the attribute with the free name is new."""
    former = item({"price": int, "stock": int})
    present = item({"cost": int, "price": int}, cost=was("price"), price=0)
    assert upcast(former, present, price=3, stock=10) == {"cost": 3, "price": 0}
    present = item({"cost": int, "price": int}, cost=was("price"), price=was("stock"))
    assert upcast(former, present, price=3, stock=10) == {"cost": 3, "price": 10}
    later = item({"cost": int, "price": int, "n": int}, cost=was("price"), price=was("stock"), n=1)
    assert upcast(present, later, cost=3, price=10) == {"cost": 3, "price": 10, "n": 1}
    change = change_of(history(former), item({"cost": int, "price": int}, cost=was("price")), 7)
    assert change is not None
    assert change.changes == ["price is called cost", "+ price: int", "- stock: int"]
    assert "price is new and has no default" in change.refusals[0]


def test_attributes_cannot_exchange_their_names() -> None:
    """A row does not say on which side of the exchange it is; the mistake is found with the class."""
    with pytest.raises(DefinitionError, match=r"Item: was\(…\) of a, b form a circle; rename one"):
        item({"a": int, "b": int}, a=was("b"), b=was("a"))
    with pytest.raises(DefinitionError, match="of a form a circle"):
        item({"a": int}, a=was("a"))
    wrong: Any = ["a"]
    with pytest.raises(DefinitionError, match="needs the former name of the attribute, a str"):
        item({"a": int}, a=was(wrong))


def test_names_exchanged_in_steps_need_another_order() -> None:
    """Rows of equal shapes cannot be told apart; a shape that came back with the same names is no mistake."""
    between = item({"t": int, "b": int}, t=was("a"))
    turned = item({"t": int, "a": int}, a=was("b"))
    versions = history(item({"a": int, "b": int}))
    for present in (between, turned):
        change = change_of(versions, present, 7)
        assert change is not None
        versions = (*versions, change.version)
    change = change_of(versions, item({"b": int, "a": int}, b=was("t")), 8)
    assert change is not None
    assert change.refusals == []
    change = change_of(versions, item({"a": int, "b": int}, b=was("t")), 8)
    assert change is not None
    assert [refusal.partition(";")[0] for refusal in change.refusals] == [
        "a: version 1 had the same attributes, and the values were in b, so its rows would be mistaken",
        "b: version 1 had the same attributes, and the values were in a, so its rows would be mistaken",
    ]
    change = change_of(versions[:2], item({"a": int, "b": int}, a=was("t")), 8)
    assert change is not None
    assert change.refusals == []


def test_new_attribute_without_a_default_is_refused() -> None:
    """The remedy names the default, the removed attribute, and the function."""
    change = change_of(history(item({"price": int})), item({"cost": int}), 7)
    assert change is not None
    assert change.refusals == [
        "cost is new and has no default, so stored entities have no value for it; give it a default, or "
        'cost: … = was("price") if it was renamed, or write a function with @migrate(Item, since=2)'
    ]
    counter = iter(range(100))
    changing = item({"n": int}, n=field(default_factory=lambda: next(counter)))
    change = change_of(history(item({})), changing, 7)
    assert change is not None
    assert "a different value each time" in change.refusals[0]
    change = change_of(
        history(item({})), item({"n": int}, n=field(default_factory=lambda: 1 // 0)), 7
    )
    assert change is not None
    assert "its default cannot be stored" in change.refusals[0]


def test_class_with_an_initializer_has_defaults_in_it() -> None:
    """`__init__` shows the value of a new attribute: a literal, or the default of a parameter."""

    @entity
    class Item:
        def __init__(self, item_id: str, price: int, stock: int = 7) -> None:
            self.item_id: str = item_id
            self.price: int = price
            self.stock: int = stock
            self.tags: list[str] = []

        def __key__(self) -> str:
            return self.item_id

    present = App("shop", Item).entities["Item"]
    assert upcast(item({"price": int}), present, price=3) == {"price": 3, "stock": 7, "tags": []}


def test_key_keeps_its_type() -> None:
    """Requests and references name entities by their keys."""
    change = change_of(history(item({})), item({}, key_type=int), 7)
    assert change is not None
    assert "the key item_id: str became int" in change.refusals[0]


class Region(StrEnum):
    NORTH = "north"


class MoreRegions(StrEnum):
    SOUTH = "south"
    NORTH = "north"


def test_enumeration_of_a_key_may_grow() -> None:
    """The text of a key has the value of a member, so stored keys stay what they are; none may be removed."""
    former = item({"n": int}, key_type=tuple[Region, int])
    present = item({"n": int}, key_type=tuple[MoreRegions, int])
    change = change_of(history(former), present, 7)
    assert change is not None
    assert change.refusals == []
    text = former.key_text((Region.NORTH, 1))
    assert present.key_at(text) == (MoreRegions.NORTH, 1)
    change = change_of(history(present), former, 7)
    assert change is not None
    assert "keep the type of the key" in change.refusals[0]


def test_default_is_that_of_the_deployment() -> None:
    """A later change of the default does not change entities that were stored before."""
    first, second = item({}), item({"stock": int}, stock=5)
    versions = history(first)
    change = change_of(versions, second, 7)
    assert change is not None
    third = item({"stock": int | float}, stock=99.0)
    later = change_of((*versions, change.version), third, 9)
    assert later is not None
    assert (later.version.number, later.version.since) == (3, 9)
    third.learn((*versions, change.version, later.version))
    assert third.decode("i1", first.encode({"item_id": "i1"}))["stock"] == 5
    assert third.decode("i1", second.encode({"item_id": "i1", "stock": 6}))["stock"] == 6


def test_attribute_that_came_back_has_its_default() -> None:
    """A value that a version removed is not found again under the same name."""
    first, second, third = item({"a": int, "b": int}), item({"a": int}), item({"b": str}, b="new")
    versions = history(first)
    for present in (second, third):
        change = change_of(versions, present, 7)
        assert change is not None
        assert change.refusals == []
        versions = (*versions, change.version)
    third.learn(versions)
    assert third.decode("i1", first.encode({"item_id": "i1", "a": 1, "b": 2}))["b"] == "new"


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": int(Decimal(old["price"]) * 100), "label": old["item_id"].upper()}


def line(annotations: dict[str, Any], **defaults: Any) -> type:
    """Return a record `Line`; all of them have the same name."""
    return dataclass(type("Line", (), {"__annotations__": annotations, **defaults}))


def test_field_that_came_back_with_another_type_is_refused() -> None:
    """Rows from before its removal have the former field, which the new type cannot hold."""
    versions = history(item({"line": line({"x": int})}))
    change = change_of(versions, item({"line": line({})}), 7)
    assert change is not None
    versions = (*versions, change.version)
    change = change_of(versions, item({"line": line({"x": str}, x="new")}), 7)
    assert change is not None
    assert change.refusals == [
        "line: rows of version 1 have Line: Line.x: str cannot hold int; keep the type, or write a function with "
        "@migrate(Item, since=3)"
    ]
    change = change_of(versions, item({"line": line({"x": int | float}, x=1.5)}), 8)
    assert change is not None
    assert change.refusals == []


def test_function_makes_a_new_version() -> None:
    """It gets the key and the stored values, and its result may have the class's own types."""
    former = item({"price": Decimal})
    present = item({"cents": int, "label": str}, in_cents)
    assert upcast(former, present, price=Decimal("2.50")) == {"cents": 250, "label": "I1"}


def stop(old: dict[str, Any]) -> dict[str, Any]:
    raise GeneratorExit


WRONG_FUNCTIONS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "raises": (lambda old: 1 // 0, "raised ZeroDivisionError"),
    "raises what would end a thread": (stop, "raised GeneratorExit"),
    "is no mapping": (lambda old: None, "raised TypeError"),
    "leaves an attribute out": (lambda old: {"cents": 1}, "left out label, and added nothing"),
    "adds an attribute": (lambda old: {"cents": 1, "label": "", "x": 1}, "added x"),
    "has another type": (lambda old: {"cents": "1", "label": ""}, r"cents.*Expected `int`"),
    "cannot be stored": (lambda old: {"cents": object(), "label": ""}, "object.* cannot be stored"),
}


@pytest.mark.parametrize("how", WRONG_FUNCTIONS)
def test_function_that_fails_is_named(how: str) -> None:
    """The request that reads the entity fails with the class, the version and the reason."""
    function, why = WRONG_FUNCTIONS[how]
    with pytest.raises(MigrationFailed, match=f"Item.*{why}"):
        upcast(item({"price": int}), item({"cents": int, "label": str}, function), price=1)


def test_function_is_outside_of_the_transaction() -> None:
    """It cannot read other entities, because readers without a transaction run it, too."""

    class Item(Entity):
        item_id: str = key()
        stock: int

        def look(self) -> int:
            return self.stock

    def peek(old: dict[str, Any]) -> dict[str, Any]:
        return {"stock": Item("other").stock}

    app = App("shop", Item, migrate(Item, since=2)(peek))
    present, former = app.entities["Item"], item({"price": int})
    change = change_of(history(former), present, 7)
    assert change is not None
    present.learn((*history(former), change.version))
    row = former.encode({"item_id": "i1", "price": 1})
    executor = Executor(app, {"Item/i1": row, "Item/other": row}.get, Limits())
    body, _ = app.request("Item", "i1", "look")
    outcome = executor.run(RequestId("r"), body, 0)
    assert outcome.error == "migration-failed"
    assert b"raised OutsideTransaction" in outcome.reply


def test_functions_are_checked_with_the_application() -> None:
    """A wrong number, a stranger and a second function for a version are mistakes of the definition."""

    class Item(Entity):
        item_id: str = key()

    class Other(Entity):
        other_id: str = key()

    functions = [
        migrate(Item, since=1)(lambda old: old),
        migrate(Other, since=2)(lambda old: old),
        migrate(Item, since=2)(lambda old: old),
        migrate(Item, since=2)(lambda old: {}),
    ]
    with pytest.raises(DefinitionError) as caught:
        App("shop", Item, *functions)
    assert len(caught.value.complaints) == 3


def test_number_of_a_function_must_follow_the_stored_version() -> None:
    """A function for a later version, or for no change at all, is refused with the remedy."""

    def app_with(*since: int, attributes: dict[str, Any]) -> EntityType:
        values = {"__annotations__": {"item_id": str, **attributes}, "item_id": key()}
        cls = entity(type("Item", (), {**values, "__module__": __name__}))
        functions = [migrate(cls, since=number)(lambda old: in_cents(old)) for number in since]
        return App("shop", cls, *functions).entities["Item"]

    former = item({"price": int})
    skipping = app_with(2, 3, attributes={"price": int, "label": str})  # version 2 never was here
    for changed in (app_with(3, attributes={"price": int, "label": str}), skipping):
        change = change_of(history(former), changed, 7)
        assert change is not None
        assert any("stored in version 1; write since=2" in refusal for refusal in change.refusals)
    number_two = SchemaVersion(2, 7, skipping.shape, ("price", "label"), {}, migrated=True)
    accepted = [*history(former), number_two], skipping  # of a former release
    for versions, declared in ((history(former), app_with(2, attributes={"price": int})), accepted):
        change = change_of(versions, declared, 8)
        assert change is not None
        assert "could not be told apart; remove the function" in change.refusals[0]


def test_entity_that_is_only_read_stays_as_it_is() -> None:
    """An upcast is no change; a written entity is stored as its class declares it."""

    @entity
    class Item:
        item_id: str = key()
        stock: int | float
        tag: str = "none"

        def look(self) -> str:
            return f"{self.stock} {self.tag}"

        def take(self) -> None:
            self.stock -= 1

    app = App("shop", Item)
    former, present = item({"stock": int}), app.entities["Item"]
    change = change_of(history(former), present, 7)
    assert change is not None
    present.learn((*history(former), change.version))
    row = former.encode({"item_id": "i1", "stock": 3})
    executor = Executor(app, {"Item/i1": row}.get, Limits())
    outcomes = [
        executor.run(RequestId("r"), app.request("Item", "i1", method)[0], 0)
        for method in ("look", "take", "exists", "delete")
    ]
    assert [msgspec.msgpack.decode(outcome.reply) for outcome in outcomes][:3] == [
        "3 none",
        None,
        True,
    ]
    assert [outcome.writes for outcome in outcomes] == [
        {},
        {"Item/i1": present.encode({"item_id": "i1", "stock": 2, "tag": "none"})},
        {},
        {"Item/i1": None},
    ]


def test_a_class_that_disappears_needs_a_word() -> None:
    """Without it, a class that looks like the stored one under another name is named; a removed one may stay away."""
    versions = {"Item": history(item({"price": int}))}
    renamed = entity(
        type(
            "Ware",
            (),
            {
                "__annotations__": {"item_id": str, "price": int},
                "item_id": key(),
                "__module__": __name__,
            },
        )
    )
    for classes, tells in (({}, False), (App("shop", renamed).stored, True)):
        (refusal,) = compare_classes(versions, classes, 9).refusals
        assert "with --drop Item" in refusal
        assert ("Ware has the same attributes" in refusal) == tells
    dropped = compare_classes(versions, {}, 9, ["Item"])
    assert dropped.refusals == []
    assert [version.removed for version in dropped.after["Item"]] == [False, True]
    again = compare_classes(dropped.after, {}, 12)
    assert (again.changes, again.after) == ([], dropped.after)
    back = compare_classes(dropped.after, {"Item": item({"price": int | float})}, 14)
    (change,) = back.changes
    assert (change.version.number, change.refusals) == (2, [])
    assert change.changes[1:] == ["price: int became int | float"]


def test_code_without_the_function_of_a_version_is_refused() -> None:
    """Rows of earlier versions need it; every reader compares classes in this way, what-if with other code, too."""
    former, present = item({"price": Decimal}), item({"cents": int, "label": str}, in_cents)
    change = change_of(history(former), present, 7)
    assert change is not None
    versions = {"Item": (*history(former), change.version)}
    assert compare_classes(versions, {"Item": present}, 9).refusals == []
    without = item({"cents": int, "label": str})
    (refusal,) = compare_classes(versions, {"Item": without}, 9).refusals
    assert "since=2) is gone; keep it" in refusal


def test_default_of_a_new_field_is_that_of_its_deployment() -> None:
    """A later default of the field changes no stored entity, with and without another version."""
    former, second = item({"line": line({})}), item({"line": line({"x": int}, x=5)})
    versions = history(former)
    row = former.encode({"item_id": "i1", "line": former.attributes["line"]()})
    comparison = compare_classes({"Item": versions}, {"Item": second}, 7)
    assert second.decode("i1", row)["line"].x == 5
    later = item({"line": line({"x": int}, x=7)})
    assert compare_classes(comparison.after, {"Item": later}, 8).changes == []
    assert later.decode("i1", row)["line"].x == 5
    third = item({"line": line({"x": int, "y": int}, x=7, y=8), "n": int}, n=1)
    (change,) = compare_classes(comparison.after, {"Item": third}, 9).changes
    assert change.refusals == []
    read = third.decode("i1", row)["line"]
    assert (read.x, read.y) == (5, 8)
    assert third.decode("i1", third.encode({"item_id": "i1", "line": read, "n": 2}))["line"] == read
