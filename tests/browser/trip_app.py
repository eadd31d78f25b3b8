"""Trips: an application whose arguments have every shape that a form must offer."""

from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Literal

from penstock import App, Entity, key, stream


class Board(Enum):
    BREAKFAST = "breakfast"
    FULL = "full"


class Hotel(Entity):
    name: str = key()
    rooms: int = 10


@dataclass
class Night:
    """One night in a hotel."""

    day: date
    hotel: Hotel
    board: Board = Board.BREAKFAST


@dataclass
class Contact:
    name: str
    phones: list[str] = field(default_factory=list)
    call_at: time | None = None


class Trip(Entity):
    trip_id: str = key()
    leaves: datetime | None = None
    nights: list[Night] = []
    contact: Contact | None = None
    price: Decimal = Decimal(0)

    def plan(
        self,
        leaves: datetime,
        nights: list[Night],
        stars: Literal[3, 4, 5],
        contact: Contact | None = None,
        prices: dict[str, Decimal] | None = None,
        *,
        insured: bool = False,
    ) -> int:
        """Plan the whole trip.

        Args:
            leaves: When the train leaves.
            nights: The nights, in order.
            stars: The stars that each hotel has at least.
            contact: The person to call.
            prices: The price of each part.
            insured: Whether the trip is insured.
        """
        self.leaves = leaves
        self.nights = nights
        self.contact = contact
        self.price = sum((prices or {}).values(), Decimal(0))
        return len(nights)

    def stay(self, hotel: Hotel, nights: int) -> str:
        hotel.rooms -= 1
        return f"{nights} nights in {hotel.name}"


class Note(Entity):
    note_id: str = key()
    text: str = ""
    weight: float = 0.0

    def write(self, text: str, weight: float) -> float:
        self.text, self.weight = text, weight
        return weight


app = App("trips", Hotel, Trip, Note, stream("nights", Night))
