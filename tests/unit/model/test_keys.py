"""Keys of every type: a key has one text, and the text gives back the key, in every place that has keys."""

from datetime import UTC, date, datetime
from enum import Enum, Flag, IntEnum
from typing import Any, Literal, NamedTuple, NewType
from uuid import UUID

import msgspec
import pytest

from penstock import App, DefinitionError, Entity, entity, key, readonly
from penstock.base.key_text import decode_key, encode_key, is_key_type
from penstock.errors import RequestError, Unencodable, UserError
from penstock.gateway.openapi.json_schema import key_schema
from penstock.model.versions.schema_change import change_of
from penstock.snapshots.table import column_of
from penstock.testing import Kit
from tests.schema_classes import history, item


class Hall(Enum):
    BIG = "big hall"
    SMALL = "small"


class Floor(IntEnum):
    CELLAR = -1
    GROUND = 0


class Place(NamedTuple):
    hall: Hall
    row: str
    number: int = 1


class Storey(Enum):
    LOW = 1
    HIGH = 20


Code = NewType("Code", str)


class Seat(Entity):
    place: Place = key()
    taken: bool = False

    def take(self) -> Place:
        self.taken = True
        return self.place


class Room(Entity):
    hall: Hall = key()
    seats: "list[Seat]" = []
    by_seat: "dict[Seat, int]" = {}

    def seat(self, row: str) -> Seat:
        found = Seat((self.hall, row, 1))
        seat = found if Seat.exists(found) else Seat.create(Place(self.hall, row))
        self.seats.append(seat)
        self.by_seat[seat] = len(self.seats)
        return seat

    @readonly
    def free(self) -> list[Place]:
        return [seat.place for seat in self.seats if not seat.taken]


class Visit(Entity):
    at: tuple[date, Code] = key()
    count: int = 0


class Tour(Entity):
    stop: tuple[Literal["north", "south"], tuple[int, Place]] = key()
    before: "Tour | None" = None


app = App("hall", Seat, Room, Visit, Tour)
MOMENT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (Hall, Hall.BIG, "big hall"),
        (Floor, Floor.CELLAR, "-1"),
        (Storey, Storey.HIGH, "20"),
        (tuple[str, int], ('a"/', -3), '["a\\"/",-3]'),
        (tuple[str], ("",), '[""]'),
        (Literal["big", "small"], "small", "small"),
        (Literal[1, 2], 2, "2"),
        (
            tuple[str, tuple[Place, Literal["x"]]],
            ("a", (Place(Hall.BIG, "b"), "x")),
            '["a",[["big hall","b",1],"x"]]',
        ),
        (Place, Place(Hall.SMALL, "é", 2), '["small","é",2]'),
        (tuple[Floor, UUID], (Floor.GROUND, UUID(int=1)), f'[0,"{UUID(int=1)}"]'),
        (
            tuple[datetime, date],
            (MOMENT, date(2026, 1, 2)),
            '["2026-01-01T12:00:00Z","2026-01-02"]',
        ),
    ],
)
def test_key_has_one_text(annotation: Any, value: Any, text: str) -> None:
    """The text of a key gives back the key, with its class."""
    assert is_key_type(annotation)
    assert encode_key(value, annotation) == text
    back = decode_key(text, annotation)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (Hall, "BIG", "'BIG' is not a key of type Hall: 'big hall', 'small'$"),
        (Floor, "01", "write '1'|is not a key"),
        (tuple[str, int], '["a", 1]', r"""write '\["a",1\]'"""),
        (tuple[str, int], '["a"]', r"is not a key of type tuple\[str, int\]"),
        (tuple[str, int], '["a",9999999999999999999999]', "key of type"),
        (tuple[str, int], "a,1", "is not a key"),
        (tuple[datetime], '["2026-01-01T12:00:00"]', "no time zone"),
        (Place, '["small","a"]', r"""write '\["small","a",1\]'"""),
        (Place, "[" * 2_000, "is not a key"),
        (Literal["big", "small"], "BIG", r"is not a key of type Literal\['big', 'small'\]$"),
        (tuple[str, tuple[int, int]], '["a",[1]]', "is not a key"),
    ],
)
def test_other_text_is_refused(annotation: Any, text: str, message: str) -> None:
    """A text that is not written like a key is refused, with the way in which it is written."""
    with pytest.raises(Unencodable, match=message):
        decode_key(text, annotation)


def test_entities_are_found_by_such_keys() -> None:
    """Enums and tuples identify entities in calls, references, dictionaries and queries of the state."""
    kit = Kit(app)
    kit.call.Room.create(Hall.BIG)
    seat = kit.call(Room.seat, Room(Hall.BIG), "A")
    assert seat.place == Place(Hall.BIG, "A")
    kit.call(Room.seat, Room(Hall.BIG), "B")
    assert kit.call(Seat.take, Seat((Hall.BIG, "A", 1))) == Place(Hall.BIG, "A")
    assert kit.call(Room.free, Room(Hall.BIG)) == [Place(Hall.BIG, "B")]
    assert kit.call(Seat.exists, Seat(Place(Hall.BIG, "B"))) is True
    stored: Any = kit.entity("Room", Hall.BIG)
    assert stored["by_seat"] == {Place(Hall.BIG, "A"): 1, Place(Hall.BIG, "B"): 2}
    kit.call.Visit.create((date(2026, 1, 1), Code("x")), count=3)
    assert list(kit.entities("Visit")) == [(date(2026, 1, 1), "x")]
    stop = ("north", (1, Place(Hall.BIG, "A")))
    kit.call.Tour.create(stop, before=Tour(("south", (2, Place(Hall.BIG, "A")))))
    assert kit.call(Tour.exists, Tour(stop)) is True
    with pytest.raises(RequestError, match="cannot be a key of type tuple"):
        kit.call.Tour.create(("west", (1, Place(Hall.BIG, "A"))))
    with pytest.raises(RequestError, match="cannot be a key of type Place"):
        kit.call.Seat(("nowhere", "A", 1)).take()
    with pytest.raises(RequestError, match=r"cannot be a key of type tuple\[date, str\]"):
        kit.call.Visit.create((date(2026, 1, 1), 5))
    with pytest.raises(UserError, match="Visit needs a key"):
        kit.call.Visit.create()


def test_reference_before_the_application_is_explained() -> None:
    """Before a class is in an `App`, the type of its keys is unknown; the message says so."""

    class Bench(Entity):
        number: int = key()

    with pytest.raises(Unencodable, match="make this reference after the App"):
        Bench(3)
    App("park", Bench)
    assert Bench(3).number == 3
    with pytest.raises(Unencodable, match="cannot be a key of type int of 64 bits"):
        Bench("three")


def test_keys_in_sql_and_openapi() -> None:
    """SQL has the parts of a key as columns of a STRUCT, and OpenAPI describes the text."""
    column = column_of(Seat, wide=False)
    assert column.sql == 'STRUCT("hall" VARCHAR, "row" VARCHAR, "number" BIGINT)'
    assert column.build(['["small","A",1]', None]).to_pylist() == [
        {"hall": "small", "row": "A", "number": 1},
        None,
    ]
    assert column_of(Room, wide=False).build(["small"]).to_pylist() == ["small"]
    assert column_of(Floor, wide=True).sql == "HUGEINT"
    nested = column_of(Tour, wide=False)
    assert nested.sql.startswith(
        'STRUCT("_1" VARCHAR, "_2" STRUCT("_1" BIGINT, "_2" STRUCT("hall" '
    )
    [shown] = nested.build(['["north",[1,["small","A",1]]]']).to_pylist()
    assert shown == {
        "_1": "north",
        "_2": {"_1": 1, "_2": {"hall": "small", "row": "A", "number": 1}},
    }
    assert key_schema(app.entities["Tour"])["examples"] == ['["north",[1,["big hall","a",1]]]']
    assert key_schema(app.entities["Room"])["enum"] == ["big hall", "small"]
    assert key_schema(app.entities["Seat"])["examples"] == ['["big hall","a",1]']
    assert key_schema(app.entities["Visit"])["examples"] == ['["2026-01-01","a"]']


class Level(Flag):
    LOW = 1


class Endless(NamedTuple):
    inside: "Endless"


@pytest.mark.parametrize(
    "annotation",
    [float, tuple[str, ...], tuple[float], Level, tuple[()], bool, tuple, Endless, Literal["a", 1]],
)
def test_refused_key_names_the_types_of_keys(annotation: Any) -> None:
    """A type that is no key is refused when the application is built."""
    wrong = type(
        "Wrong",
        (),
        {"__annotations__": {"name": annotation}, "name": key(), "__module__": __name__},
    )
    with pytest.raises(
        DefinitionError, match="an Enum of str or int, a Literal, or a tuple of these"
    ):
        App("wrong", entity(wrong))


class OldPlace(NamedTuple):
    hall: Hall
    row: str


@pytest.mark.parametrize(
    ("former", "present"), [(OldPlace, Place), (tuple[str, OldPlace], tuple[str, Place])]
)
def test_a_key_with_one_part_more_is_another_key(former: Any, present: Any) -> None:
    """A row of a `NamedTuple` may get a last field with a default; a key would get another text, at any depth."""
    change = change_of(history(item({}, key_type=former)), item({}, key_type=present), 7)
    assert change is not None
    assert "keep the type of the key" in change.refusals[0]


class Stay(Entity):
    name: str = key()
    hall: "Hotel | None" = None
    note: "Guest | None" = None

    def move(self, hall: "Hotel") -> None:
        self.hall = hall

    def mark(self, note: "Guest") -> None:
        self.note = note

    def lock(self, door: "Door") -> int:
        return door.number


class Hotel(Entity):
    place: tuple[str, int] = key()


class Guest(Entity):
    name: str = key()


class Door(Entity):
    number: int = key()


def test_a_reference_is_written_as_its_key_is() -> None:
    """JSON may have the array or the number of a key, and also its text; a number is no text."""
    stays = App("stays", Stay, Hotel, Guest, Door)
    move = stays.entities["Stay"].methods["move"]
    for written in (["Ost", 1], '["Ost",1]'):
        (hall,), _ = move.of_json(msgspec.json.encode([written]))
        assert hall == Hotel(("Ost", 1))
    for number in (7, "7"):
        (door,), _ = stays.entities["Stay"].methods["lock"].of_json(msgspec.json.encode([number]))
        assert door == Door(7)
    mark = stays.entities["Stay"].methods["mark"]
    with pytest.raises(RequestError, match="Expected `str`, the key of `Guest`, got 7"):
        mark.of_json(b"[7]")
