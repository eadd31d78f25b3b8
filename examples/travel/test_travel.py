"""Trips are booked whole or not at all."""

from typing import Any

import pytest

from penstock import Final
from penstock.testing import Kit

from . import app
from .customers import Customer
from .providers import book, cancel, charge, refund
from .trips import Trip, trips


class Fakes:
    """Providers that note what is booked and not undone."""

    def __init__(self, *failing: str) -> None:
        self._failing = failing
        self.open: list[str] = []

    def book(self, what: str, place: str, day: str) -> str:
        return self._take(what, f"{what} to {place} on {day}")

    def charge(self, card: str, cents: int) -> str:
        return self._take("charge", f"{cents} of {card}")

    def undo(self, booking: str) -> None:
        self.open.remove(booking)

    def _take(self, what: str, booking: str) -> str:
        if what in self._failing:
            raise Final(f"no {what}")
        self.open.append(booking)
        return booking

    @property
    def effects(self) -> dict[Any, Any]:
        return {book: self.book, charge: self.charge, cancel: self.undo, refund: self.undo}


def travelled(fakes: Fakes) -> dict[str, Any]:
    kit = Kit(app, effects=fakes.effects)
    kit.call(Customer.create, "ada")
    kit.append(trips, [Trip("t1", "ada", "Rome", "2026-12-01", 45_000)])
    customer = kit.entity("Customer", "ada")
    assert customer is not None
    return customer


def test_trip_is_booked_whole() -> None:
    """The customer has all bookings."""
    fakes = Fakes()
    everything = ["flight to Rome on 2026-12-01", "hotel to Rome on 2026-12-01", "45000 of ada"]
    assert travelled(fakes)["bookings"] == {"t1": everything}
    assert fakes.open == everything


@pytest.mark.parametrize("failing", ["flight", "hotel", "charge"])
def test_trip_is_undone_whole(failing: str) -> None:
    """Whichever part fails, no other part stays booked."""
    fakes = Fakes(failing)
    customer = travelled(fakes)
    assert customer["bookings"] == {}
    assert f"no {failing}" in customer["problems"]["t1"]
    assert fakes.open == []
