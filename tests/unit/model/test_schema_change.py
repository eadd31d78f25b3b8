"""Changes of classes: those that stored entities survive, those that are refused, and the upcast of each row."""

import enum
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from penstock import App, Entity, entity, key, migrate, reference, was
from penstock.base.ids import RequestId
from penstock.engine.execute import Executor, Limits
from penstock.errors import ClassChanged, DefinitionError, MigrationFailed
from penstock.files.sealed import seal
from penstock.journal.api import CHANGES, PartKind
from penstock.journal.shapes import NAME
from penstock.model.entity_type import EntityType
from penstock.model.schema_change import change_of
from penstock.model.schema_version import SchemaVersion, first_version
from penstock.model.shape import Shape
from penstock.process.data_directory import DataDirectory

NOTHING = object()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Grown(enum.Enum):
    BLUE = 2
    GREEN = 3
    RED = 1


@dataclass
class Line:
    colour: Colour
    count: int


class Pair(NamedTuple):
    first: int
    second: int


class Triple(NamedTuple):
    first: float
    second: int
    third: str = "none"


def record(**fields: Any) -> Any:
    """Return a dataclass with the name of `Line`; a tuple is a type with its default."""
    made = [
        (name, *(kind if isinstance(kind, tuple) else (kind,))) for name, kind in fields.items()
    ]
    return make_dataclass("Line", made)


def item(
    attributes: dict[str, Any], *functions: Callable[..., Any], key_type: Any = str, **defaults: Any
) -> EntityType:
    """Return a class `Item` with these attributes, bound in an application."""
    values = {"item_id": key(), **defaults, "__module__": __name__}
    cls = entity(
        type("Item", (), {"__annotations__": {"item_id": key_type, **attributes}, **values})
    )
    marked = [migrate(cls, since=2 + index)(function) for index, function in enumerate(functions)]
    return App("shop", cls, *marked).entities["Item"]


def history(entity_type: EntityType) -> tuple[SchemaVersion, ...]:
    return (first_version(entity_type.shape, entity_type.attributes, 0),)


def upcast(former: EntityType, present: EntityType, **values: Any) -> dict[str, Any]:
    """Write a row as the former class, and read it as the present class."""
    versions = history(former)
    change = change_of(versions, present, 7)
    assert change is not None
    assert change.refusals == []
    present.learn((*versions, change.version))
    data = former.encode({"item_id": "i1", **values})
    row = present.present("i1", data)
    decoded = present.decode("i1", data)
    assert present.encode(decoded) == row, "an upcast row is canonical"
    assert present.plain("i1", data) == present.plain("i1", row)
    del decoded["item_id"]
    return decoded


WIDER: dict[str, tuple[Any, Any, Any, Any]] = {
    "int to float": (int, float, 3, 3.0),
    "optional": (int, int | None, 3, 3),
    "optional float": (int, float | None, 3, 3.0),
    "union": (int | str, str | int | None, "x", "x"),
    "in a list": (list[int], list[float | None], [3], [3.0]),
    "in a dictionary": (dict[str, int], dict[str, float], {"a": 3}, {"a": 3.0}),
    "in a tuple": (tuple[int, str], tuple[float, str | None], (3, "x"), (3.0, "x")),
    "set": (set[int], frozenset[int], {3}, frozenset({3})),
    "enumeration": (Colour, Grown, Colour.RED, Grown.RED),
    "literal": (Literal["s"], Literal["m", "s"], "s", "s"),
    "literal to str": (Literal["s"], str, "s", "s"),
    "record": (
        Line,
        (wide := record(count=float, colour=Grown, note=(str, "-"))),
        Line(Colour.RED, 3),
        wide(3.0, Grown.RED, "-"),
    ),
    "record without a field": (Line, (few := record(count=int)), Line(Colour.RED, 3), few(3)),
    "named tuple": (Pair, Triple, Pair(1, 2), Triple(1.0, 2, "none")),
}


@pytest.mark.parametrize("how", WIDER)
def test_wider_type_holds_stored_values(how: str) -> None:
    """A stored value has the same meaning in a wider type, at any depth."""
    before, after, value, expected = WIDER[how]
    read = upcast(item({"it": before}), item({"it": after}), it=value)["it"]
    assert (type(read), read) == (type(expected), expected)


NARROWER: dict[str, tuple[Any, Any, str]] = {
    "float to int": (float, int, "int cannot hold float"),
    "not optional": (int | None, int, "int cannot hold None"),
    "another scalar": (int, str, "str cannot hold int"),
    "decimal": (int, Decimal, "Decimal cannot hold int"),
    "in a list": (list[int], list[str], "str cannot hold int"),
    "list to set": (list[int], set[int], r"set\[int\] cannot hold list\[int\]"),
    "keys": (dict[int, int], dict[float, int], "keys of a dictionary stay int"),
    "longer tuple": (tuple[int], tuple[int, int], "cannot hold"),
    "any length": (tuple[int, ...], tuple[int, int], "cannot hold"),
    "enumeration": (Grown, Colour, "Colour lacks 3 of Grown"),
    "literal": (Literal["s", "m"], Literal["s"], "lacks 'm'"),
    "literal of another type": (Literal[1], Literal[True], "lacks 1"),
    "field without default": (Line, record(colour=Colour, count=int, note=str), "Line.note is new"),
    "field of another type": (Line, record(colour=Colour, count=str), "Line.count: str cannot"),
    "record to scalar": (Line, int, "int cannot hold Line"),
    "named tuple": (Triple, Pair, "stored by position"),
    "named tuple and record": (Pair, Line, "Line cannot hold Pair"),
}


@pytest.mark.parametrize("how", NARROWER)
def test_narrower_type_is_refused(how: str) -> None:
    """The refusal names the attribute, both types, the reason and what can be done."""
    before, after, why = NARROWER[how]
    change = change_of(history(item({"it": before})), item({"it": after}), 7)
    assert change is not None
    (refusal,) = change.refusals
    assert refusal.startswith("it: ")
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refusal)
    assert "keep the type, or write a function with @migrate(Item, since=2)" in refusal


def test_added_removed_reordered_and_renamed_attributes() -> None:
    """Values follow their names; a new attribute has its default; a removed one is gone."""
    former = item({"price": int, "stock": int, "old": str})
    present = item(
        {
            "stock": int,
            "tags": list[str],
            "cost": float,
            "note": str | None,
            "owner": "Item | None",
        },
        tags=field(default_factory=list),
        cost=was("price", default=9.5),
        note=None,
        owner=was("nobody", default=reference(exists=True, default=None)),
    )
    read = upcast(former, present, price=3, stock=10, old="x")
    assert read == {"stock": 10, "tags": [], "cost": 3.0, "note": None, "owner": None}
    change = change_of(history(former), present, 7)
    assert change is not None
    assert change.changes == [
        "+ tags: list[str]",
        "price is called cost",
        "cost: int became float",
        "+ note: str | None",
        "+ owner: Item | None",
        "- old: str",
    ]
    assert present.must_exist == ("owner",)


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


def test_default_is_that_of_the_deployment() -> None:
    """A later change of the default does not change entities that were stored before."""
    first, second = item({}), item({"stock": int}, stock=5)
    versions = history(first)
    change = change_of(versions, second, 7)
    assert change is not None
    third = item({"stock": float}, stock=99.0)
    later = change_of((*versions, change.version), third, 9)
    assert later is not None
    assert (later.version.number, later.version.since) == (3, 9)
    third.learn((*versions, change.version, later.version))
    assert third.decode("i1", first.encode({"item_id": "i1"}))["stock"] == 5.0
    assert third.decode("i1", second.encode({"item_id": "i1", "stock": 6}))["stock"] == 6.0


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


def test_function_makes_a_new_version() -> None:
    """It gets the key and the stored values, and its result may have the class's own types."""
    former = item({"price": Decimal})
    present = item({"cents": int, "label": str}, in_cents)
    assert upcast(former, present, price=Decimal("2.50")) == {"cents": 250, "label": "I1"}


WRONG_FUNCTIONS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "raises": (lambda old: 1 // 0, "raised ZeroDivisionError"),
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
    """A function for a later version, or for no change at all, is refused with the right number."""

    def app_with(since: int, attributes: dict[str, Any]) -> EntityType:
        values = {"__annotations__": {"item_id": str, **attributes}, "item_id": key()}
        cls = entity(type("Item", (), {**values, "__module__": __name__}))
        return App("shop", cls, migrate(cls, since=since)(in_cents)).entities["Item"]

    former = item({"price": int})
    change = change_of(history(former), app_with(3, {"price": int, "label": str}), 7)
    assert change is not None
    assert any("stored in version 1; write since=2" in refusal for refusal in change.refusals)
    change = change_of(history(former), app_with(2, {"price": int}), 7)
    assert change is not None
    assert "could not be told apart" in change.refusals[0]


def test_entity_that_is_only_read_stays_as_it_is() -> None:
    """An upcast is no change; a written entity is stored as its class declares it."""

    @entity
    class Item:
        item_id: str = key()
        stock: float
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
        "3.0 none",
        None,
        True,
    ]
    assert [outcome.writes for outcome in outcomes] == [
        {},
        {"Item/i1": present.encode({"item_id": "i1", "stock": 2.0, "tag": "none"})},
        {},
        {"Item/i1": None},
    ]


def rows(entity_type: EntityType, **values: Any) -> pa.Table:
    data = entity_type.encode({"item_id": "i1", **values})
    row = {"epoch": 0, "entity": "Item", "key": "i1", "state": data}
    return pa.Table.from_pylist([row], CHANGES)


def app_of(attributes: dict[str, Any], **defaults: Any) -> App:
    values = {"item_id": key(), **defaults, "__module__": __name__}
    cls = entity(type("Item", (), {"__annotations__": {"item_id": str, **attributes}, **values}))
    return App("shop", cls)


def test_driver_stores_a_version_and_readers_wait_for_none(tmp_path: Path) -> None:
    """Until a driver deploys the change, nothing is written; then the journal has two versions."""
    first, second = app_of({"stock": int}), app_of({"stock": int, "tag": str}, tag="new")
    directory = DataDirectory(tmp_path)
    with closing(directory.open_journal(first)) as journal:
        journal.write(PartKind.CHANGES, rows(first.entities["Item"], stock=1), "one")
        assert journal.deploy() == []
    before = (tmp_path / "journal" / NAME).read_bytes()
    assert [change.changes for change in directory.check_app(second)] == [["+ tag: str"]]
    assert (tmp_path / "journal" / NAME).read_bytes() == before
    with closing(directory.open_journal(second)) as journal:
        with pytest.raises(ClassChanged, match="not the newest stored version"):
            journal.write(PartKind.CHANGES, rows(second.entities["Item"], stock=1, tag=""), "two")
        assert [change.name for change in journal.deploy()] == ["Item"]
        journal.write(PartKind.CHANGES, rows(second.entities["Item"], stock=1, tag=""), "two")
        assert journal.deploy() == directory.check_app(second) == []
        versions = journal.schemas()["Item"]
    assert [(version.number, version.shape) for version in versions] == [
        (1, first.shapes["Item"]),
        (2, second.shapes["Item"]),
    ]
    assert [change.changes for change in directory.check_app(first)] == [["- tag: str"]]


def test_file_of_one_shape_for_each_class_is_read(tmp_path: Path) -> None:
    """A journal from the time when classes could not change has the first version of each."""
    app = app_of({"stock": int, "tags": list[Line]}, tags=[])
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        former: dict[str, Shape] = app.shapes
        (tmp_path / "journal" / NAME).write_bytes(seal("shapes", former))
        assert journal.schemas() == {"Item": history(app.entities["Item"])}
    assert DataDirectory(tmp_path).check_app(app) == []


def test_function_that_old_rows_need_must_stay(tmp_path: Path) -> None:
    """Code without it is refused, and the message says which function it was."""
    first = app_of({"price": int})
    with closing(DataDirectory(tmp_path).open_journal(first)) as journal:
        journal.write(PartKind.CHANGES, rows(first.entities["Item"], price=1), "one")
    values = {"__annotations__": {"item_id": str, "cents": int, "label": str}, "item_id": key()}
    cls = entity(type("Item", (), {**values, "__module__": __name__}))
    second = App("shop", cls, migrate(cls, since=2)(in_cents))
    with closing(DataDirectory(tmp_path).open_journal(second)) as journal:
        journal.deploy()
    with pytest.raises(ClassChanged, match="since=2\\) is gone; keep it"):
        DataDirectory(tmp_path).check_app(app_of({"cents": int, "label": str}))
