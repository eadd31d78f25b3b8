"""An application whose view has every source of tables: classes, a row function, a stream."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from penstock import App, emit, entity, kafka, key, postgres, rows, search, sqlite, stream, view
from penstock.model.target_choice import TargetChoice
from penstock.model.views.view import View


@entity
class Customer:
    name: str = key()
    credit: Decimal = Decimal(0)
    since: datetime | None = None


@entity
class Order:
    number: int = key()
    customer: Customer
    total: Decimal = Decimal(0)
    shipped: bool = False
    lines: dict[str, int] = {}
    token: UUID | None = None
    patience: timedelta = timedelta(0)
    weight: float = 0.0

    def ship(self) -> None:
        self.shipped = True
        emit(shipments, Shipment(self.number, self.total))

    def add(self, item: str, count: int) -> None:
        self.lines[item] = self.lines.get(item, 0) + count
        self.total += count


@dataclass
class OpenLine:
    number: int
    customer: Customer
    item: str
    count: int


@dataclass
class Shipment:
    number: int
    total: Decimal


shipments = stream("shipments", Shipment)


def _raises(_: Order) -> OpenLine:
    raise ValueError("an item that no one sells")


def _hangs(_: Order) -> OpenLine:
    while True:
        time.sleep(3_600)


def _reads(order: Order) -> OpenLine:
    return OpenLine(order.number, order.customer, str(order.customer.credit), 1)


def _wrong(order: Order) -> OpenLine:
    return OpenLine(order.number, order.customer, "wrong", "three")  # type: ignore[arg-type]


HOSTILE = {
    "raises": _raises,
    "hangs": _hangs,
    "ends": lambda _: os._exit(7),
    "stops": lambda _: sys.exit(3),
    "reads": _reads,
    "wrong": _wrong,
}
"""Items whose rows fail."""


@rows(Order)
def open_lines(order: Order) -> Iterator[OpenLine]:
    if order.shipped:
        return
    for item, count in order.lines.items():
        if item in HOSTILE:
            yield HOSTILE[item](order)
        while item == "endless":
            yield OpenLine(order.number, order.customer, item, count)
        yield OpenLine(order.number, order.customer, item, count)


def shown(name: str, target: TargetChoice) -> View:
    return view(name, target, Customer, Order, open_lines, shipments)


def orders_with(*views: View) -> App:
    return App("orders", Customer, Order, shipments, *views)


app = orders_with(shown("reporting", sqlite()))
in_postgres = orders_with(shown("reporting", postgres(schema="orders")))
in_kafka = orders_with(shown("reporting", kafka()))
in_index = orders_with(shown("reporting", search()))
in_two = orders_with(shown("reporting", postgres(schema="faults")), shown("beside", sqlite()))
in_two_files = orders_with(shown("reporting", sqlite()), shown("beside", sqlite()))
