"""Values of callers have no field that a record does not declare; stored values may."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from penstock import App, Entity, RequestError, key, stream
from penstock.base.given_type import GivenType, without_mark
from penstock.model.streams.event_list import (
    events_of_json,
    events_of_json_lines,
    events_of_msgpack,
    events_of_words,
)
from penstock.testing import Kit

T = TypeVar("T")
Ratio = TypedDict("Ratio", {"a/b": int})


@dataclass
class Place:
    city: str
    zip: int = 0


@dataclass
class Tree:
    name: str = ""
    inside: list[Tree] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T


class Sketch(TypedDict):
    line: Place
    note: NotRequired[str]


class Pair(NamedTuple):
    left: Place
    right: int = 0


class Red(msgspec.Struct, tag=True, rename={"shade": "Shade"}):
    shade: int = 0


class Black(msgspec.Struct, tag="black", tag_field="kind"):
    place: Place | None = None


class White(msgspec.Struct, tag="white", tag_field="kind"):
    level: int = 0


class Model(pydantic.BaseModel):
    place: Place | None = None
    kind: Literal["a", "b"] = "a"


PLACE = {"city": "Ulm", "zip": 5}
WRONG = {"city": "Ulm", "Zip": 5}
CASES: list[tuple[Any, Any, Any, str]] = [
    (Place, PLACE, WRONG, "Object contains unknown field `Zip`"),
    (list[Place], [PLACE], [PLACE, WRONG], "`Zip` - at `$[1]`"),
    (dict[str, Place], {"a": PLACE}, {"a": WRONG}, "`Zip` - at `$[...]`"),
    (dict[int, list[Place]], {1: [PLACE]}, {1: [WRONG]}, "`Zip` - at `$[...][0]`"),
    (Place | None, PLACE, WRONG, "`Zip`"),
    (list[Place] | str | None, [PLACE], [WRONG], "`Zip` - at `$[0]`"),
    (tuple[int, Place], [1, PLACE], [1, WRONG], "`Zip` - at `$[1]`"),
    (tuple[Place, ...], [PLACE], [WRONG], "`Zip` - at `$[0]`"),
    (Tree, {"inside": [{"inside": []}]}, {"inside": [{"Inside": []}]}, "`Inside` - at `$.inside[0]`"),
    (Box[Place], {"content": PLACE}, {"content": WRONG}, "`Zip` - at `$.content`"),
    (Box[int], {"content": 1}, {"content": 1, "more": 2}, "`more`"),
    (Sketch, {"line": PLACE, "note": "x"}, {"line": WRONG}, "`Zip` - at `$.line`"),
    (Sketch, {"line": PLACE}, {"line": PLACE, "Note": "x"}, "`Note`"),
    (Pair, [PLACE, 1], [WRONG, 1], "`Zip` - at `$[0]`"),
    (Red, {"type": "Red", "Shade": 1}, {"type": "Red", "shade": 1}, "`shade`"),
    (Black | White, {"kind": "black", "place": PLACE}, {"kind": "black", "place": WRONG}, "`Zip` - at `$.place`"),
    (Black | White, {"kind": "white", "level": 1}, {"kind": "white", "place": PLACE}, "`place`"),
    (Model, {"place": PLACE}, {"place": WRONG}, "`Zip` - at `$.place`"),
    (Model, {"kind": "b"}, {"Kind": "b"}, "`Kind`"),
    (list[Model], [{}], [{"x": 1}], "`x` - at `$[0]`"),
]  # fmt: skip


class Spot(msgspec.Struct):
    x: int
    y: int


@pytest.mark.parametrize(("annotation", "fine", "wrong", "what"), CASES)
def test_an_unknown_field_is_refused(annotation: Any, fine: Any, wrong: Any, what: str) -> None:
    """Every kind of record, at every depth, in JSON, in MessagePack and as Python objects."""
    given = GivenType(annotation)
    as_json, as_msgpack = msgspec.json.encode, msgspec.msgpack.encode
    assert given.of_json(as_json(fine)) == given.of_msgpack(as_msgpack(fine))
    given.converted(fine)
    readers: list[Any] = [
        lambda: given.of_json(as_json(wrong)),
        lambda: given.of_msgpack(as_msgpack(wrong)),
        lambda: given.converted(wrong),
    ]
    for read in readers:
        with pytest.raises(msgspec.ValidationError, match=re.escape(what)):
            read()


def test_a_field_that_only_a_float_needs() -> None:
    """The text of a NaN is no reason to drop a field."""
    given = GivenType(Box[float])
    assert given.of_json(b'{"content": "Infinity"}') == Box(float("inf"))
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        given.of_json(b'{"content": "Infinity", "more": 1}')


@pytest.mark.parametrize(
    ("annotation", "text", "name"),
    [
        (Place, '{"city": "a", "city": "b"}', "city"),
        (list[Place], '[{"city": "a"}, {"city": "a", "city": "b"}]', "city"),
        (list[Place], '[{"city": "a", "z\\u0069p": 1, "zip": 2}]', "zip"),
        (Box[list[Place]], '{"content": [{"city": "a"}, {"zip": 1, "city": "a", "zip": 1}]}', "zip"),
        (list[Spot], '[{"x": 1, "y": 2}, {"x": 3, "y": 4, "x": 5}]', "x"),
        (list[Spot], '[{"x": 1, "y": 2}, {"\\u0078": 3, "y": 4, "x": 5}]', "x"),
        (Ratio, '{"a/b": 1, "a\\/b": 2}', "a/b"),
        (list[Ratio], '[{"a/b": 1, "a\\/b": 2}]', "a/b"),
        (dict[str, int], '{"a": 1, "a": 2}', "a"),
        (Any, '[{"a": {"b": 1, "b": 2}}]', "b"),
    ],
)  # fmt: skip
def test_a_name_that_stands_twice_is_refused(annotation: Any, text: str, name: str) -> None:
    """Of two values in one object, none is dropped."""
    with pytest.raises(msgspec.ValidationError, match=f"contains the field `{name}` twice"):
        GivenType(annotation).of_json(text)
    assert GivenType(list[Place]).of_json('[{"city": "a"}, {"city": "city"}]')
    assert GivenType(list[Spot]).of_json('[{"y": 1, "x": 2}]') == [Spot(2, 1)]


class Shop(Entity):
    name: str = key()
    places: list[Place] = []

    def add(self, places: list[Place], more: Place | None = None) -> int:
        self.places += places
        return len(self.places)


places = stream("places", Place)
app = App("shops", Shop, places)


def test_arguments_of_callers() -> None:
    """The message has the parameter, the path and the fields."""
    add = app.signature("Shop", "add")
    good, wrong = [[PLACE]], [[PLACE, WRONG]]
    assert add.of_json(msgspec.json.encode(good)) == ([[Place("Ulm", 5)]], {})
    what = r"places\[1\]: Object contains unknown field `Zip`; the fields are city, zip"
    with pytest.raises(RequestError, match=what):
        add.of_json(msgspec.json.encode(wrong))
    with pytest.raises(RequestError, match=what):
        add.of_json(msgspec.json.encode({"places": wrong[0]}))
    with pytest.raises(RequestError, match=what):
        add.of_msgpack(msgspec.msgpack.encode((wrong, {})))
    with pytest.raises(RequestError, match=r"more: .*unknown field `Zip`"):
        add.of_msgpack(msgspec.msgpack.encode(([[]], {"more": WRONG})))
    with pytest.raises(RequestError, match="unknown field `Zip`"):
        add.parse(['[{"city": "Ulm", "Zip": 5}]'])
    with pytest.raises(RequestError, match="unknown field `Zip`"):
        add.of_text("more", '{"city": "Ulm", "Zip": 5}')


def test_an_argument_that_is_given_twice() -> None:
    """It is refused, as in Python."""
    add = app.signature("Shop", "add")
    with pytest.raises(RequestError, match="Object contains the field `places` twice"):
        add.of_json(b'{"places": [], "places": [{"city": "Ulm"}]}')


def test_arguments_in_the_log() -> None:
    """A request that waits may have a field of former code."""
    add = app.signature("Shop", "add")
    positional = msgspec.Raw(msgspec.msgpack.encode([[WRONG]]))
    named = msgspec.Raw(msgspec.msgpack.encode({}))
    assert add.decode(positional, named)[0] == ([Place("Ulm")],)
    with pytest.raises(RequestError, match="Zip"):
        add.of_caller(positional, named)


def test_events_of_callers() -> None:
    """So it is for events: each form names the event."""
    events = places.events
    what = r"events\[1\]: Object contains unknown field `Zip`; the fields are city, zip"
    both = [PLACE, WRONG]
    with pytest.raises(RequestError, match=what):
        events_of_json(events, msgspec.json.encode(both))
    with pytest.raises(RequestError, match=what):
        events_of_msgpack(events, msgspec.msgpack.encode(both))
    lines = b"\n".join(map(msgspec.json.encode, both))
    with pytest.raises(RequestError, match="line 2: " + what):
        events_of_json_lines(events, lines)
    with pytest.raises(RequestError, match=what):
        events_of_words(events, [msgspec.json.encode(each).decode() for each in both])


def test_a_byte_order_mark_is_no_event() -> None:
    """Some programs begin a file with it."""
    line = "\ufeff".encode() + msgspec.json.encode(PLACE)
    assert without_mark(line) == msgspec.json.encode(PLACE)
    assert (
        events_of_json_lines(places.events, line + b"\n" + msgspec.json.encode(PLACE))
        == [Place("Ulm", 5)] * 2
    )


def test_a_number_that_is_too_large_has_its_place() -> None:
    """An event that fits and cannot be stored is named with its field."""
    kit = Kit(app)
    with pytest.raises(RequestError, match=r"events\[1\]\.zip: .*2\*\*64"):
        kit.append(places, [Place("a"), Place("b", 2**70)])
