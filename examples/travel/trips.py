"""The saga: a workflow that books a trip, and undoes what it has done if a part fails."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock import AskFailed, Emit, ask, flow, stream

from .providers import book, cancel, charge, refund


@dataclass(frozen=True)
class Trip:
    """A trip that a customer wants."""

    trip_id: str
    customer: str
    place: str
    day: str
    cents: int


@dataclass(frozen=True)
class Answer:
    """What became of a trip."""

    trip_id: str
    customer: str
    bookings: list[str]
    problem: str


trips = stream("trips", Trip)


class Agency:
    """Books trips."""

    booked: int = 0
    failed: int = 0

    async def on_event(self, trip: Trip, out: Emit[Answer]) -> None:
        """Book flight, hotel and payment; if one of them fails, undo the others."""
        done: list[tuple[Callable[[str], Any], str]] = []
        try:
            done.append((cancel, await ask(book, "flight", trip.place, trip.day)))
            done.append((cancel, await ask(book, "hotel", trip.place, trip.day)))
            done.append((refund, await ask(charge, trip.customer, trip.cents)))
        except AskFailed as error:
            for undo, booking in reversed(done):
                await ask(undo, booking)
            self.failed += 1
            out(Answer(trip.trip_id, trip.customer, [], str(error)))
            return
        self.booked += 1
        out(Answer(trip.trip_id, trip.customer, [booking for _, booking in done], ""))


booked = flow("agency", trips).task(Agency).sink("answers")
