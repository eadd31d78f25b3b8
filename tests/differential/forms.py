"""Entities of the machine whose keys, attributes, arguments and results have all types of records.

A request carries a list of acts. Each act changes an attribute in place or replaces it, and may do so at
another entity, so that transactions are in conflict about values of every type.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Self,
    TypedDict,
    TypeVar,
)

import msgspec
import pydantic

from penstock import Entity, key, reference, savepoint

T = TypeVar("T")
Tag = NewType("Tag", str)


class Hall(Enum):
    BIG = "big"
    SMALL = "small"


class Form(Enum):
    """The acts, by their names in `ACTS`."""

    CORNER = "corner"
    FILM = "film"
    BOX = "box"
    PET = "pet"
    LAST = "last"
    CODES = "codes"
    CHOICE = "choice"
    TAG = "tag"
    ADDRESS = "address"
    FRIEND = "friend"
    OWNER = "owner"
    COUNTS = "counts"
    DAYS = "days"
    CENSUS = "census"
    GIVE = "give"
    UNDO = "undo"
    DROP = "drop"


class Spot(NamedTuple):
    hall: Hall
    number: int


class Act(NamedTuple):
    form: Form
    number: int
    at: Spot


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Film(TypedDict):
    title: str
    price: Decimal
    year: NotRequired[int]


@dataclass
class Box(Generic[T]):
    value: T
    more: list[T] = field(default_factory=list)


@dataclass(frozen=True)
class Code:
    number: int
    since: date = date(2020, 2, 29)


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True, rename="camel"):
    good_boy: bool = True
    born: timedelta = timedelta()


class Address(pydantic.BaseModel):
    street: str = ""
    numbers: list[int] = []
    since: datetime | None = None


class Census(Entity):
    """The number of acts in a hall; its key is an Enum."""

    hall: Hall = key()
    count: int = 0
    spots: "deque[Delta]" = field(default_factory=deque)


class Delta(Entity):
    """An entity whose key is a NamedTuple."""

    spot: Spot = key()
    corner: Point = Point(0)
    film: Film = field(default_factory=lambda: Film(title="", price=Decimal(0)))
    box: Box[int] = field(default_factory=lambda: Box(0))
    pet: Cat | Dog = field(default_factory=Cat)
    last: deque[Point] = field(default_factory=deque)
    codes: frozenset[Code] = frozenset()
    choice: Literal["up", "down", 3] = "up"
    tag: Tag | None = None
    address: Address = field(default_factory=Address)
    friend: Self | None = None
    owner: "Delta | None" = reference(exists=True, default=None)
    counts: "dict[Delta, int]" = field(default_factory=dict)
    days: dict[tuple[Hall, int], set[date]] = field(default_factory=dict)

    def mold(self, acts: list[Act], gift: Box[Film] | None = None) -> Box[Spot]:
        """Perform acts, and return the spots that they named."""
        for act in acts:
            ACTS[act.form](self, act)
        if gift is not None:
            self.film = gift.value
        return Box(self.spot, [act.at for act in acts])


def _census(delta: Delta, act: Act) -> None:
    census = Census(act.at.hall)
    if not Census.exists(census):
        Census.create(act.at.hall)
    census.count += act.number
    census.spots.append(delta)
    if len(census.spots) > 3:
        census.spots.popleft()


def _undo(delta: Delta, act: Act) -> None:
    """Change all attributes that can change in place, and undo that."""
    try:
        with savepoint():
            for form in (Form.FILM, Form.BOX, Form.LAST, Form.ADDRESS, Form.COUNTS, Form.DAYS):
                ACTS[form](delta, act)
            raise ValueError("on purpose")
    except ValueError:
        delta.box.more.append(act.number)


def _film(delta: Delta, act: Act) -> None:
    delta.film["price"] += Decimal("0.10") * act.number
    if act.number % 3 == 0:
        delta.film.pop("year", None)
    else:
        delta.film["year"] = act.number


def _address(delta: Delta, act: Act) -> None:
    delta.address.numbers.append(act.number)
    delta.address.since = datetime(2026, 1, 1 + act.number, tzinfo=UTC)


def _set(name: str, value: Callable[[Delta, Act], Any]) -> Callable[[Delta, Act], None]:
    return lambda delta, act: setattr(delta, name, value(delta, act))


ACTS: Final[dict[Form, Callable[[Delta, Act], None]]] = {
    Form.CORNER: _set("corner", lambda delta, act: Point(act.number, delta.corner.x / 4)),
    Form.FILM: _film,
    Form.BOX: lambda delta, act: delta.box.more.append(delta.box.value + act.number),
    Form.PET: _set(
        "pet", lambda _, act: Cat(act.number) if act.number % 2 else Dog(born=timedelta(act.number))
    ),
    Form.LAST: lambda delta, act: delta.last.appendleft(Point(act.number)),
    Form.CODES: _set("codes", lambda delta, act: delta.codes ^ {Code(act.number)}),
    Form.CHOICE: _set("choice", lambda _, act: ("up", "down", 3)[act.number % 3]),
    Form.TAG: _set("tag", lambda _, act: Tag(str(act.number))),
    Form.ADDRESS: _address,
    Form.FRIEND: _set("friend", lambda _, act: Delta(act.at)),
    Form.OWNER: _set("owner", lambda _, act: Delta(act.at)),
    Form.COUNTS: lambda delta, act: delta.counts.update({Delta(act.at): len(delta.counts)}),
    Form.DAYS: lambda delta, act: delta.days.setdefault((act.at.hall, act.number), set()).add(
        date(2026, 1, 1 + act.at.number)
    ),
    Form.CENSUS: _census,
    Form.GIVE: lambda delta, act: Delta(act.at).last.append(delta.corner),
    Form.UNDO: _undo,
    Form.DROP: lambda _, act: Delta(act.at).delete(),
}
