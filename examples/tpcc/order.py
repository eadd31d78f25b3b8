"""Orders with their lines, the orders that are not delivered yet, and the newest order of each customer."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from penstock import Entity, key

from .customer import CustomerId


class OrderId(NamedTuple):
    w_id: int
    d_id: int
    o_id: int


@dataclass
class OrderLine:
    ol_i_id: int
    ol_supply_w_id: int
    ol_quantity: int
    ol_amount: Decimal
    ol_dist_info: str
    ol_delivery_d: datetime | None = None


class Order(Entity):
    """An order. Its lines are part of it: no transaction uses a line without its order."""

    order_id: OrderId = key()
    o_c_id: int
    o_entry_d: datetime
    o_ol_cnt: int
    o_all_local: bool
    lines: list[OrderLine]
    o_carrier_id: int | None = None

    @property
    def customer_id(self) -> CustomerId:
        w_id, d_id, _ = self.order_id
        return CustomerId(w_id, d_id, self.o_c_id)

    def amount(self) -> Decimal:
        return sum((line.ol_amount for line in self.lines), Decimal(0))

    def deliver(self, o_carrier_id: int, date: datetime) -> None:
        """Give the order to a carrier; all its lines get the date."""
        self.o_carrier_id = o_carrier_id
        for line in self.lines:
            line.ol_delivery_d = date


class NewOrder(Entity):
    """An order that is not delivered. The delivery deletes it."""

    order_id: OrderId = key()


class NewestOrder(Entity):
    """The index of a customer's newest order."""

    customer_id: CustomerId = key()
    order: Order
