"""A class that is built again from its stored shape reads and shows rows as the original class does."""

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, entity, key
from penstock.model.entity_type import EntityType
from penstock.model.shape import Shape
from penstock.model.versions.schema_change import change_of
from penstock.model.versions.stored_class import stored_type
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.table import EntityTable
from tests.schema_classes import history, item
from tests.unit.model.rare_values import ANY_TYPE
from tests.unit.model.typed_values import Colour

KEY_TYPES = {
    str: st.text("abc/é'", min_size=1, max_size=5),
    int: st.integers(-(2**63), 2**64 - 1),
    UUID: st.uuids(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    Colour: st.sampled_from(Colour),
    tuple[str, int]: st.tuples(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1)),
}


class Place(NamedTuple):
    shelf: int
    side: str


@entity
class Item:
    place: Place = key()
    price: int = 0


App("items", Item)


def declared(annotations: dict[str, Any], key_type: Any = str) -> EntityType:
    """Return a class with these attributes, bound in an application."""
    names = {"made_id": key_type, **annotations}
    cls = type("Made", (), {"__annotations__": names, "made_id": key(), "__module__": __name__})
    return App("made", entity(cls), Item).entities["Made"]


def check_alike(original: EntityType, key_value: Any, values: dict[str, Any]) -> None:
    """Compare an original class with the class of its shape: shape, values, bytes and columns of SQL."""
    stored = stored_type("Made", original.shape)
    row = original.encode({"made_id": key_value, **values})
    assert stored.shape == original.shape
    assert list(stored.attributes) == list(original.attributes)
    assert stored.row_head == original.row_head
    decoded = stored.decode(key_value, row)
    assert stored.encode(decoded) == row
    assert repr(stored.plain(key_value, row)) == repr(original.plain(key_value, row))
    text = original.key_text(key_value)
    for wide in (False, True):
        one, other = (EntityTable(kind, "Made", wide=wide) for kind in (original, stored))
        assert other.definition == one.definition
        try:
            shown = one.rows([text], [row])
        except TooNarrow:
            assert not wide
        else:
            assert str(other.rows([text], [row]).to_pylist()) == str(shown.to_pylist())  # NaN, too


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_class_is_read_as_before(data: st.DataObject) -> None:
    """Types of any depth come back from their text; rows keep their values, bytes and columns."""
    attributes = data.draw(st.lists(ANY_TYPE, max_size=4))
    key_type = data.draw(st.sampled_from(list(KEY_TYPES)))
    original = declared({f"a{i}": one.annotation for i, one in enumerate(attributes)}, key_type)
    values = {f"a{i}": data.draw(one.values) for i, one in enumerate(attributes)}
    check_alike(original, data.draw(KEY_TYPES[key_type]), values)


class Tone(enum.Enum):
    SHARP = "a: b = 'c', the tag"
    FLAT = "[x.y]"


@dataclass
class Inner:
    tone: Tone
    more: "Inner | None" = None


class First(msgspec.Struct, tag="first [1]", tag_field="the kind"):
    inner: Inner


class Second(msgspec.Struct, tag="second", rename={"name": "full-name", "kind": "class"}):
    name: str
    kind: int


class Third(msgspec.Struct, tag="third"):
    pass


NOTE = Literal["a, b", "c]", 'it\'s "so"', "\n"]
INNER = Inner(Tone.FLAT, Inner(Tone.SHARP))
HARD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "texts with signs of the notation": ({"note": NOTE}, {"note": "c]"}),
    "numbers of a Literal": ({"n": Literal[-1, 7] | None}, {"n": -1}),
    "names that Python reserves": ({"one": Second | Third}, {"one": Second("x", 2)}),
    "a tag of its own": ({"one": First}, {"one": First(INNER)}),
    "a union in another order": ({"one": Tone | Inner | None}, {"one": INNER}),
    "the same union, turned around": ({"one": Inner | int | None}, {"one": INNER}),
    "unions inside of unions": (
        {"one": list[Tone | Inner] | dict[str, Place | Colour] | None},
        {"one": [Tone.FLAT, INNER]},
    ),
    "references": (
        {"one": Item, "others": dict[Item, set[Item]]},
        {"one": Item(Place(1, "left")), "others": {Item(Place(2, "right")): set()}},  # type: ignore[call-arg]
    ),
    "references to the class itself": ({"others": "list[Made]"}, {"others": []}),
    "collections of anything": (
        {"a": list[Any], "b": dict[Any, Any], "c": tuple[Any, ...], "d": set[Any]},
        {"a": [1, "x"], "b": {1: 2}, "c": (1, None), "d": {3}},
    ),
    "no attributes": ({}, {}),
}


@pytest.mark.parametrize("name", HARD)
def test_text_of_a_type_is_read_exactly(name: str) -> None:
    """Names, values and orders that the notation of shapes makes difficult."""
    annotations, values = HARD[name]
    check_alike(declared(annotations), "m1", values)


def test_reference_is_the_text_of_its_key() -> None:
    """Nothing is known of the other class, so the text stands for the reference."""
    original = declared({"one": Item})
    row = original.encode({"made_id": "m1", "one": Item(Place(1, "left"))})  # type: ignore[call-arg]
    assert stored_type("Made", original.shape).decode("m1", row)["one"] == '[1,"left"]'


def test_shape_that_does_not_determine_its_types_shows_plain_values() -> None:
    """The tag of the rows is kept, and the attributes have the type Any."""
    shape = Shape(0x90000001, ("made_id: str, the key", "one: Unheard<of>", "two: int"))
    stored = stored_type("Made", shape)
    row = msgspec.msgpack.encode([shape.tag, {"x": 1}, 2])
    assert stored.plain("m1", row) == {"one": {"x": 1}, "two": 2}
    assert stored.decode("m1", row) == {"made_id": "m1", "one": {"x": 1}, "two": 2}
    table = EntityTable(stored, "Made", wide=False)
    assert table.rows(["m1"], [row]).to_pylist() == [
        {"made_id": "m1", "one": '{"x":1}', "two": "2"}
    ]


class Leaf(NamedTuple):
    size: int


class Tree(NamedTuple):
    size: int
    parts: "tuple[Tree, ...]" = ()


def test_a_record_in_its_own_default_has_the_default() -> None:
    """A row of the time before the field is read without the code, as of a class that was removed."""
    former, present = item({"part": Leaf}), item({"part": Tree})
    change = change_of(history(former), present, 7)
    assert change is not None
    stored = stored_type("Item", change.version.shape, change.version.fields)
    stored.learn((*history(former), change.version))
    row = former.encode({"item_id": "a", "part": Leaf(3)})
    assert stored.decode("a", stored.present("a", row))["part"] == (3, ())


def test_a_union_is_the_same_in_any_order() -> None:
    """Only the attribute that changed is named, and None stands last, as people write it."""
    unions = {"best": Place | int | None, "worst": None | Place}
    former, present = item({"price": int, **unions}), item({"price": int | float, **unions})
    change = change_of(history(former), present, 7)
    assert change is not None
    assert change.changes == ["price: int became int | float"]
    change = change_of(history(former), item({"price": int, **unions, "worst": str}), 7)
    assert change is not None
    assert change.changes == ["worst: Place | None became str"]
