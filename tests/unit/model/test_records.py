"""The types of records that people write: each is stored, checked, shown in SQL and described in OpenAPI."""

from collections import deque
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    NewType,
    NotRequired,
    Self,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest

from penstock import Aborted, App, DefinitionError, Entity, key, readonly
from penstock.base.record import fields_of
from penstock.base.schema import name_of
from penstock.errors import RequestError
from penstock.gateway.openapi.json_schema import SchemaRegistry
from penstock.snapshots.table import column_of
from penstock.testing import Kit
from tests.unit.model.postponed_records import Note, Right

T = TypeVar("T")
ShelfId = NewType("ShelfId", str)


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Film(TypedDict):
    title: str
    year: NotRequired[int]
    shelf: "Shelf | None"


@dataclass
class Box(Generic[T]):
    value: T
    inside: "list[Box[T]]" = field(default_factory=list)


@dataclass
class Crate(Box[list[T]], Generic[T]):
    label: T | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int = 9
    home: "Shelf | None" = None


class Dog(msgspec.Struct, tag="dog", rename="camel"):
    good_boy: bool = True


def start() -> "deque[Point]":
    return deque([Point(1)])


class Shelf(Entity):
    name: ShelfId = key()
    corner: Point = Point(1)
    film: Film | None = None
    box: Box[int] | None = None
    crate: Crate[int] | None = None
    boxes: list[Box[ShelfId]] = field(default_factory=list)
    pet: Cat | Dog = Cat()
    last: deque[Point] = field(default_factory=start)
    friend: Self | None = field(default=None)
    prices: dict[Point, int] = field(default_factory=dict)
    corners: frozenset[Point] = frozenset()
    limit: Annotated[int, "a remark"] = 3

    def put(self, name: str, index: int) -> None:
        setattr(self, name, [*CASES[name], *WRONG.get(name, [])][index])

    def check(self, name: str, index: int) -> bool:
        value, expected = getattr(self, name), CASES[name][index]
        return bool(value == expected) and type(value).__name__ == type(expected).__name__

    @readonly
    def met(self, other: Self) -> Self:
        return other

    @readonly
    def cheapest(self, prices: "dict[Shelf, int]") -> "Shelf | None":
        return min(prices, key=lambda shelf: (prices[shelf], shelf.name), default=None)

    def add(self, point: Point) -> int:
        self.last.append(point)
        return len(self.last)


class Fussy(msgspec.Struct):
    """A Struct whose code raises whatever it wants."""

    size: int

    def __post_init__(self) -> None:
        if self.size == 1:
            raise ValueError("too small")
        if self.size == 2:
            raise RuntimeError("a bad day")
        if self.size == 3:
            raise SystemExit(3)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("incomparable")


class Liar(NamedTuple):
    """A NamedTuple that equals everything."""

    size: int

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class Rack(Entity):
    name: str = key()
    fussy: Fussy | None = None
    liar: Liar | None = None

    def fuss(self, size: int) -> int:
        self.fussy = Fussy(0)
        self.fussy.size = size
        return size

    def lie(self, size: int) -> Liar:
        self.liar = Liar(size)
        return self.liar

    @readonly
    def look(self) -> tuple[int, int]:
        return self.fussy.size if self.fussy else 0, tuple.__getitem__(self.liar or Liar(0), 0)


app = App("shelves", Shelf, Rack)
CASES: dict[str, list[Any]] = {
    "corner": [Point(2, 1.5), Point(-3)],
    "film": [
        {"title": "Up", "shelf": Shelf("b")},
        {"title": "Up", "year": 2009, "shelf": None},
        None,
    ],
    "box": [Box(1, [Box(2), Box(3, [Box(4)])])],
    "crate": [Crate([1], [Box([2])], 3)],
    "boxes": [[Box(ShelfId("b"))], []],
    "pet": [Cat(3, Shelf("b")), Dog(good_boy=False)],
    "last": [deque(), deque([Point(1), Point(2, 0.5)])],
    "friend": [Shelf("a"), None],
    "prices": [{Point(1): 2, Point(0, 0.5): 3}],
    "corners": [frozenset({Point(1), Point(2)})],
    "limit": [5],
}
WRONG: dict[str, list[Any]] = {
    "corner": [[1, 2.0], (1, 2.0), {"x": 1, "y": 2.0}, Point("1"), None],  # type: ignore[arg-type]
    "film": [
        {"title": "Up"},
        {"title": "Up", "shelf": None, "z": 1},
        {"title": 1, "shelf": None},
        [],
    ],
    "box": [Box("x"), Crate([1]), {"value": 1}, Box(1, [2])],  # type: ignore[list-item]
    "crate": [Crate(["x"]), Box([1]), Crate([1], [], "x")],
    "pet": [None, {"type": "Cat"}, Cat(lives="nine")],  # type: ignore[arg-type]
    "last": [[Point(1)], deque([Point(1)], maxlen=3), deque([(1, 0.0)])],
    "friend": [Rack("a")],
}


@pytest.fixture
def kit() -> Kit:
    made = Kit(app)
    made.call.Shelf.create("a")
    made.call.Rack.create("r")
    return made


@pytest.mark.parametrize("name", CASES)
def test_record_comes_back_as_it_was_stored(kit: Kit, name: str) -> None:
    """A stored record is read back equal, with its own class."""
    for index in range(len(CASES[name])):
        kit.call.Shelf("a").put(name, index)
        assert kit.call.Shelf("a").check(name, index)


@pytest.mark.parametrize(("name", "index"), [(n, i) for n in WRONG for i in range(len(WRONG[n]))])
def test_record_of_another_form_is_refused(kit: Kit, name: str, index: int) -> None:
    """A value of another class, or with a wrong field, undoes its transaction; the message names the attribute."""
    before = kit.digest()
    with pytest.raises(Aborted, match=rf"Shelf\.{name}"):
        kit.call.Shelf("a").put(name, len(CASES[name]) + index)
    assert kit.digest() == before


def test_messages_have_the_path_to_a_wrong_value(kit: Kit) -> None:
    """The message about a wrong attribute names the place inside of it, in words of the class."""
    for name, index, message in [
        ("corner", 3, r"Shelf\.corner\[0\]: Expected `int`, got `str`"),
        ("film", 0, "missing required field `shelf`"),
        ("film", 1, "Film declares no key 'z'"),
        ("box", 0, r"Shelf\.box\.value: Expected `int`, got `str`"),
        ("box", 1, r"expected Box\[int\], got Crate"),
        ("last", 1, "stored without its maxlen, which is 3"),
        ("pet", 2, r"Shelf\.pet\.lives"),
    ]:
        with pytest.raises(Aborted, match=message):
            kit.call.Shelf("a").put(name, len(CASES[name]) + index)


def test_arguments_are_checked_before_a_request_is_made(kit: Kit) -> None:
    """A record in an argument has its own class in the handler; a wrong one is refused with its path."""
    assert kit.call.Shelf("a").add(Point(5)) == 2
    assert kit.call.Shelf("a").met(Shelf("b")) == Shelf("b")
    with pytest.raises(RequestError, match=r"point\[0\]: Expected `int`, got `str`"):
        kit.call.Shelf("a").add(Point("5"))  # type: ignore[arg-type]


def test_words_of_a_command_line_name_the_wrong_part_of_an_argument() -> None:
    """The message is about the JSON in the word, and not about the word as bare text."""
    signature = app.signature("Shelf", "add")
    with pytest.raises(RequestError, match=r": \[1\]: Expected `float`, got `str`$"):
        signature.parse(['[1,"x"]'])
    with pytest.raises(RequestError, match="Expected `array`, got `str`"):
        signature.parse(["x"])


def test_keys_of_a_dictionary_are_references_in_every_argument(kit: Kit) -> None:
    """References that are keys of a dictionary arrive as references, by position and by name."""
    prices = {Shelf("a"): 3, Shelf("b"): 2}
    assert kit.call(Shelf.cheapest, Shelf("a"), prices) == Shelf("b")
    assert kit.call(Shelf.cheapest, Shelf("a"), prices=prices) == Shelf("b")


def test_each_creation_calls_the_default_factory(kit: Kit) -> None:
    """Two entities never share the default of `field(default_factory=…)`."""
    kit.call.Shelf.create("b")
    kit.call.Shelf("a").add(Point(7))
    assert kit.call.Shelf("b").add(Point(8)) == 2
    assert kit.entity("Shelf", "b")["boxes"] == []  # type: ignore[index]


def test_code_of_a_record_fails_its_own_request_only(kit: Kit) -> None:
    """Whatever a record's own code raises or claims is the outcome of the request that used it."""
    for size in (1, 2, 3):
        with pytest.raises(Aborted):
            kit.call.Rack("r").fuss(size)
        assert kit.entity("Rack", "r") == {"name": "r", "fussy": None, "liar": None}
    kit.call.Rack("r").fuss(4)
    kit.call.Rack("r").lie(1)
    kit.call.Rack("r").lie(2)
    assert kit.call.Rack("r").look() == (4, 2)


def test_columns_of_records() -> None:
    """A record is a STRUCT with the names of its fields; types without one form are JSON."""
    columns = {
        name: column_of(one, wide=False).sql
        for name, one in app.entities["Shelf"].attributes.items()
    }
    assert columns == {
        "corner": 'STRUCT("x" BIGINT, "y" DOUBLE)',
        "film": 'STRUCT("title" VARCHAR, "year" BIGINT, "shelf" VARCHAR)',
        "box": 'STRUCT("value" BIGINT, "inside" VARCHAR[])',
        "crate": 'STRUCT("value" BIGINT[], "inside" STRUCT("value" BIGINT[], "inside" VARCHAR[])[], '
        '"label" BIGINT)',
        "boxes": 'STRUCT("value" VARCHAR, "inside" VARCHAR[])[]',
        "pet": "VARCHAR",
        "last": 'STRUCT("x" BIGINT, "y" DOUBLE)[]',
        "friend": "VARCHAR",
        "prices": 'STRUCT("key" STRUCT("x" BIGINT, "y" DOUBLE), "value" BIGINT)[]',
        "corners": 'STRUCT("x" BIGINT, "y" DOUBLE)[]',
        "limit": "BIGINT",
    }
    assert column_of(Dog, wide=False).sql == 'STRUCT("goodBoy" BOOLEAN)'
    film = column_of(Film, wide=False)
    shown = film.build(
        [{"title": "Up", "shelf": None}, None, {"title": "Up", "year": 1, "shelf": "a"}]
    )
    assert shown.to_pylist()[0] == {"title": "Up", "year": None, "shelf": None}


def test_missing_key_and_none_are_not_one_in_sql() -> None:
    """A TypedDict in which a key may be missing or None has a JSON column, which shows the difference."""

    class Loose(TypedDict):
        note: NotRequired[str | None]

    column = column_of(Loose, wide=False)
    assert column.sql == "VARCHAR"
    assert column.build([{}, {"note": None}]).to_pylist() == ["{}", '{"note":null}']


def test_schemas_of_records() -> None:
    """OpenAPI describes the JSON form of each record."""
    schemas = SchemaRegistry(app, {})
    schemas.read(tuple[Point, Film, Box[int], Dog])
    found = schemas.components
    assert [one["title"] for one in found["Point"]["prefixItems"]] == ["x", "y"]
    assert (found["Point"]["minItems"], found["Point"]["maxItems"]) == (1, 2)
    assert found["Film"]["required"] == ["title", "shelf"]
    assert found["Box_int"]["properties"]["value"]["type"] == "integer"
    assert found["Dog"]["properties"]["type"] == {"enum": ["dog"]}
    assert found["Dog"]["required"] == ["type"]


def test_shape_says_how_a_record_is_stored() -> None:
    """Types with the same bytes have the same lines, so one may replace the other."""
    lines = app.shapes["Shelf"].lines
    assert "name: str, the key" in lines
    assert "last: list[Point]" in lines
    assert {"Point[0].x: int", "Film.year: int, optional", "Cat.type = 'Cat', the tag"} <= {*lines}


def test_fields_of_generic_classes_have_their_arguments() -> None:
    """The variable of a base class is replaced by what the subclass gives it."""
    fields = {one.name: name_of(hint) for one, hint in fields_of(Crate[int])}
    assert fields == {"value": "list[int]", "inside": "list[Box[list[int]]]", "label": "int | None"}


def test_field_without_a_default_is_a_needed_attribute() -> None:
    """`field()` alone gives no default; `field(init=False)` has no meaning and is refused."""

    class Jar(Entity):
        name: str = key()
        size: int = field()

    kit = Kit(App("jars", Jar))
    with pytest.raises((Aborted, RequestError), match="size"):
        kit.call.Jar.create("a")

    class Tin(Entity):
        name: str = key()
        size: int = field(default=1, init=False)

    with pytest.raises(DefinitionError, match=r"field\(init=False\) has no meaning"):
        App("tins", Tin)


def test_keys_of_a_typed_dict_are_required_as_it_is_written() -> None:
    """Marks are seen in annotations that are text, in inherited keys, and with `total=False`, by every reader."""
    members = {field.member.name: field.member for field in fields_of(Note)}
    assert [name for name, member in members.items() if member.is_optional] == ["stars", "reply"]
    schemas = SchemaRegistry(app, {})
    schemas.read(Note)
    assert schemas.components["Note"]["required"] == ["name", "day", "text"]


def test_members_of_a_flag_can_be_added() -> None:
    """A sum of members is stored and read, and OpenAPI describes it; a number without meaning is refused."""

    class Door(Entity):
        name: str = key()
        right: Right = Right.READ

        def grant(self, right: Right) -> Right:
            self.right |= right
            return self.right

    doors = App("doors", Door)
    kit = Kit(doors)
    kit.call.Door.create("a")
    assert kit.call(Door.grant, Door("a"), Right.WRITE) == Right.READ | Right.WRITE
    assert kit.entity("Door", "a") == {"name": "a", "right": Right.READ | Right.WRITE}
    with pytest.raises(RequestError, match="right: Invalid enum value 4"):
        doors.signature("Door", "grant").of_json(b"[4]")
    schemas = SchemaRegistry(doors, {})
    schemas.read(Right)
    described = schemas.components["Right"]
    assert (described["type"], described["minimum"]) == ("integer", 0)
    assert described["title"] == "The sum of READ = 1, WRITE = 2"
