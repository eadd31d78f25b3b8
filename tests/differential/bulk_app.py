"""A shop that takes its items in bulk, for tests of imports."""

from datetime import date
from decimal import Decimal
from typing import Annotated

from msgspec import Meta

from penstock import App, Entity, index, key, reference, unique


class Maker(Entity):
    number: int = key()
    name: str = ""


class Item(Entity):
    item_id: str = key()
    price: Decimal
    stock: Annotated[int, Meta(ge=0)] = 0
    maker: Maker | None = None
    tags: list[str] = []
    since: date | None = None

    def add(self, amount: int) -> int:
        self.stock += amount
        return self.stock


class Box(Entity):
    """A class with code that checks its values."""

    box_id: str
    volume: int

    def __init__(self, box_id: str, width: int, height: int = 1) -> None:
        if width < 0:
            raise ValueError("a box has no negative width")
        self.box_id = box_id
        self.volume = width * height

    def __key__(self) -> str:
        return self.box_id


class Crate(Entity):
    """A class with code that checks its values, and with indexes."""

    crate_id: str
    place: str
    code: int
    by_place = index("place")
    by_code = unique("code")

    def __init__(self, crate_id: str, place: str, code: int = 0) -> None:
        if place == "crowded" and Crate.by_place(place):
            raise ValueError("it is full")
        self.crate_id = crate_id
        self.place = Maker(1).name if place == "unknown" else place
        self.code = code

    def __key__(self) -> str:
        return self.crate_id


class Strict(Entity):
    name: str = key()
    maker: Maker = reference(exists=True)


class Person(Entity, personal=True):
    name: str = key()
    mail: str


app = App("bulk", Maker, Item, Box, Crate, Strict, Person)
