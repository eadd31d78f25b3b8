"""An application with an attribute of every type that the guide lists, and a value of each."""

from collections import deque
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Self,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import msgspec
import pydantic

from penstock import App, Entity, key, reference, transactional

T = TypeVar("T")
Isbn = NewType("Isbn", str)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Place(NamedTuple):
    hall: Colour
    row: int


@dataclass
class Box(Generic[T]):
    value: T
    more: list[T] = field(default_factory=list)


class Film(TypedDict):
    title: str
    price: Decimal


class Note(TypedDict):
    text: str
    page: NotRequired[int]


class Cat(msgspec.Struct, tag=True, rename="camel"):
    lives_left: int = 9
    born: date = date(2020, 2, 29)


class Dog(msgspec.Struct, tag=True):
    good: bool = True


class Address(pydantic.BaseModel):
    street: str
    numbers: list[int] = []
    since: datetime | None = None


class Seat(Entity):
    place: Place = key()
    price: Decimal = Decimal(0)


class Painter(Entity):
    colour: Colour = key()


class Pair(Entity):
    ident: tuple[int, str] = key()


class Ticket(Entity):
    ident: UUID = key()


class Day(Entity):
    day: date = key()


class Sample(Entity):
    name: str = key()
    whole: int = 0
    real: float = 0.0
    text: str = ""
    truth: bool = False
    raw: bytes = b""
    instant: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    day: date = date(2000, 1, 1)
    hour: time = time()
    length: timedelta = timedelta()
    price: Decimal = Decimal(0)
    ident: UUID = UUID(int=0)
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    choice: Literal["up", "down"] = "up"
    mixed: Literal["a", 1] = 1
    isbn: Isbn = Isbn("")
    limit: Annotated[int, "a remark"] = 0
    maybe: int | None = None
    words: list[str] = field(default_factory=list)
    queue: deque[Decimal] = field(default_factory=deque)
    run: tuple[int, ...] = ()
    pair: tuple[str, Decimal] = ("", Decimal(0))
    days: set[date] = field(default_factory=set)
    codes: frozenset[int] = frozenset()
    by_name: dict[str, Decimal] = field(default_factory=dict)
    by_day: dict[date, int] = field(default_factory=dict)
    by_colour: dict[Colour, int] = field(default_factory=dict)
    by_pair: dict[tuple[int, str], timedelta] = field(default_factory=dict)
    box: Box[Decimal] = field(default_factory=lambda: Box(Decimal(0)))
    boxes: list[Box[bytes]] = field(default_factory=list)
    place: Place = Place(Colour.RED, 0)
    film: Film = field(default_factory=lambda: Film(title="", price=Decimal(0)))
    note: Note = field(default_factory=lambda: Note(text=""))
    pet: Cat = field(default_factory=Cat)
    animal: Cat | Dog = field(default_factory=Dog)
    address: Address = field(default_factory=lambda: Address(street=""))
    friend: Self | None = None
    seat: Seat | None = reference(exists=True, default=None)
    painters: list[Painter] = field(default_factory=list)
    pairs: dict[Pair, int] = field(default_factory=dict)
    ticket: Ticket | None = None
    opened: Day | None = None
    anything: Any = None


Values = make_dataclass(
    "Values",
    [pair for pair in Sample.__annotations__.items() if pair[0] not in ("name", "friend")],
)
"""The attributes of a `Sample`, as an argument and as a result."""


@transactional
def same(values: Values) -> Values:  # type: ignore[valid-type]
    return values


app = App("types", Sample, Seat, Painter, Pair, Ticket, Day, same)


class Case(NamedTuple):
    """A value of an attribute, and the Python value that SQL gives for it."""

    value: Any
    sql: Any


NOON = datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)
IDENT = UUID("00000000-0000-4000-8000-00000000000a")

CASES: dict[str, Case] = {
    "whole": Case(-(2**63), -(2**63)),
    "real": Case(0.1, 0.1),
    "text": Case('é"\\\u2028', 'é"\\\u2028'),
    "truth": Case(value=True, sql=True),
    "raw": Case(b"\x00\xff", b"\x00\xff"),
    "instant": Case(NOON, NOON),
    "day": Case(date(2024, 2, 29), date(2024, 2, 29)),
    "hour": Case(time(23, 59, 59, 999_999), time(23, 59, 59, 999_999)),
    "length": Case(timedelta(days=-1, seconds=30, microseconds=5), timedelta(-1, 30, 5)),
    "price": Case(Decimal("12.50"), Decimal("12.5")),
    "ident": Case(IDENT, IDENT),
    "colour": Case(Colour.BLUE, "blue"),
    "level": Case(Level.HIGH, 2),
    "choice": Case("down", "down"),
    "mixed": Case("a", '"a"'),
    "isbn": Case(Isbn("978"), "978"),
    "limit": Case(7, 7),
    "maybe": Case(5, 5),
    "words": Case(["a", ""], ["a", ""]),
    "queue": Case(deque([Decimal("1.10")]), [Decimal("1.1")]),
    "run": Case((1, 2, 3), [1, 2, 3]),
    "pair": Case(("a", Decimal("0.50")), ("a", Decimal("0.5"))),
    "days": Case({date(2026, 1, 2)}, [date(2026, 1, 2)]),
    "codes": Case(frozenset({1, 2}), [1, 2]),
    "by_name": Case({"a": Decimal("2.00")}, {"a": Decimal(2)}),
    "by_day": Case({date(2026, 1, 2): 3}, {date(2026, 1, 2): 3}),
    "by_colour": Case({Colour.RED: 1}, {"red": 1}),
    "by_pair": Case(
        {(1, "a"): timedelta(hours=1)}, [{"key": (1, "a"), "value": timedelta(hours=1)}]
    ),
    "box": Case(
        Box(Decimal("3.30"), [Decimal(4)]), {"value": Decimal("3.3"), "more": [Decimal(4)]}
    ),
    "boxes": Case([Box(b"\xff", [b""])], [{"value": b"\xff", "more": [b""]}]),
    "place": Case(Place(Colour.BLUE, 4), {"hall": "blue", "row": 4}),
    "film": Case(Film(title="Up", price=Decimal("9.90")), {"title": "Up", "price": Decimal("9.9")}),
    "note": Case(Note(text="n", page=3), {"text": "n", "page": 3}),
    "pet": Case(Cat(8, date(2021, 5, 6)), {"livesLeft": 8, "born": date(2021, 5, 6)}),
    "animal": Case(Cat(7), '{"type":"Cat","livesLeft":7,"born":"2020-02-29"}'),
    "address": Case(
        Address(street="High St", numbers=[1, 2], since=NOON),
        {"street": "High St", "numbers": [1, 2], "since": NOON},
    ),
    "friend": Case(Sample("other"), "other"),
    "seat": Case(Seat(Place(Colour.RED, 1)), {"hall": "red", "row": 1}),
    "painters": Case([Painter(Colour.BLUE)], ["blue"]),
    "pairs": Case({Pair((1, "x")): 2}, {(1, "x"): 2}),
    "ticket": Case(Ticket(IDENT), IDENT),
    "opened": Case(Day(date(2026, 1, 2)), date(2026, 1, 2)),
    "anything": Case([1, {"a": None}], '[1,{"a":null}]'),
}

KEYS: dict[str, tuple[Any, Any]] = {
    "Seat": (Place(Colour.RED, 1), {"hall": "red", "row": 1}),
    "Painter": (Colour.BLUE, "blue"),
    "Pair": ((1, "x"), (1, "x")),
    "Ticket": (IDENT, IDENT),
    "Day": (date(2026, 1, 2), date(2026, 1, 2)),
}
"""The key of an entity of each class, and the Python value that SQL gives for it."""
