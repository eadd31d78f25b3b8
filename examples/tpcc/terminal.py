"""A terminal: it draws the transactions of its user, and their inputs (clause 2 of the specification)."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Literal

from .customer import Customer, CustomerId, LastName, NameId
from .nurand import (
    CUSTOMER_A,
    FULL,
    ITEM_A,
    LAST_NAME_A,
    Scale,
    constants,
    last_name,
    nurand,
)
from .population import Work
from .transactions import (
    WantedLine,
    delivery,
    new_order,
    order_status,
    order_status_by_name,
    payment,
    payment_by_name,
    stock_level,
)
from .warehouse import DISTRICTS, District, DistrictId, Warehouse

Kind = Literal["new-order", "payment", "order-status", "delivery", "stock-level"]

WEIGHTS: dict[Kind, int] = {
    "new-order": 45,
    "payment": 43,
    "order-status": 4,
    "delivery": 4,
    "stock-level": 4,
}
"""The mix in percent (clause 5.2.3); the least shares that the specification allows, and New-Order for the rest."""

KEYING_S: dict[Kind, float] = {
    "new-order": 18.0,
    "payment": 3.0,
    "order-status": 2.0,
    "delivery": 2.0,
    "stock-level": 2.0,
}
"""The seconds that a user takes to type the input (clause 5.2.5.2)."""

THINK_S: dict[Kind, float] = {
    "new-order": 12.0,
    "payment": 12.0,
    "order-status": 10.0,
    "delivery": 5.0,
    "stock-level": 5.0,
}
"""The mean seconds that a user thinks after the output (clause 5.2.5.4)."""


@dataclass(frozen=True)
class Transaction:
    """One transaction of a user: its kind, its call, and the times of the user.

    Attributes:
        kind: The name of the transaction.
        work: The call.
        rolls_back: Whether the call has an unused item, and fails by intent.
        keying_s: The seconds that the user types before the call.
        think_s: The seconds that the user thinks after the reply.
    """

    kind: Kind
    work: Work
    rolls_back: bool
    keying_s: float
    think_s: float


class Terminal:
    """Draws the transactions of one terminal, without end. Equal numbers and seeds give equal transactions."""

    def __init__(self, number: int, warehouses: int, scale: Scale = FULL, seed: int = 1) -> None:
        """Place the terminal in a district.

        Args:
            number: The number of the terminal, from 0 on. Ten terminals belong to each warehouse, one to each
                district; further terminals begin at the first warehouse again.
            warehouses: The number of warehouses.
            scale: The numbers of items and customers.
            seed: The seed of the population.
        """
        self._w_id = number // DISTRICTS % warehouses + 1
        self._d_id = number % DISTRICTS + 1
        self._warehouses = warehouses
        self._scale = scale
        self._constants = constants(seed)
        self._draw = Random(f"{seed}/{number}")

    def __iter__(self) -> Iterator[Transaction]:
        draw = self._draw
        kinds: list[Kind] = [*WEIGHTS]
        while True:
            (kind,) = draw.choices(kinds, [*WEIGHTS.values()])
            rolls_back = kind == "new-order" and draw.randrange(100) == 0
            work = self._work(kind, rolls_back=rolls_back)
            think_s = min(draw.expovariate(1 / THINK_S[kind]), 10 * THINK_S[kind])
            yield Transaction(kind, work, rolls_back, KEYING_S[kind], think_s)

    def _work(self, kind: Kind, *, rolls_back: bool) -> Work:
        draw = self._draw
        match kind:
            case "new-order":
                return self._new_order(rolls_back=rolls_back)
            case "payment":
                return self._payment()
            case "order-status":
                return self._order_status()
            case "delivery":
                return Work(delivery, (Warehouse(self._w_id), draw.randint(1, 10)))
            case "stock-level":
                district = District(DistrictId(self._w_id, self._d_id))
                return Work(stock_level, (district, draw.randint(10, 20)))

    def _new_order(self, *, rolls_back: bool) -> Work:
        """Return an order of 5 to 15 items; one line in a hundred comes from another warehouse."""
        draw, scale = self._draw, self._scale
        wanted = [
            WantedLine(
                ol_i_id=nurand(draw, ITEM_A, self._constants.item, scale.items),
                ol_supply_w_id=self._w_id if draw.randrange(100) else self._other_warehouse(),
                ol_quantity=draw.randint(1, 10),
            )
            for _ in range(draw.randint(5, 15))
        ]
        if rolls_back:
            wanted[-1].ol_i_id = scale.items + 1
        return Work(new_order, (self._customer(self._w_id, self._district()), wanted))

    def _payment(self) -> Work:
        """Return a payment; 15 of 100 customers belong to another warehouse, 60 of 100 give their last name."""
        draw = self._draw
        d_id = self._district()
        customer_place = (self._w_id, d_id)
        if draw.randrange(100) >= 85 and self._warehouses > 1:
            customer_place = (self._other_warehouse(), self._district())
        district = District(DistrictId(self._w_id, d_id))
        amount = Decimal(draw.randint(100, 500_000)) / 100
        if draw.randrange(100) < 60:
            return Work(payment_by_name, (district, self._name(*customer_place), amount))
        return Work(payment, (district, self._customer(*customer_place), amount))

    def _order_status(self) -> Work:
        place = (self._w_id, self._district())
        if self._draw.randrange(100) < 60:
            return Work(order_status_by_name, (self._name(*place),))
        return Work(order_status, (self._customer(*place),))

    def _district(self) -> int:
        return self._draw.randint(1, DISTRICTS)

    def _other_warehouse(self) -> int:
        """Return another warehouse than the own one, if there is another one."""
        if self._warehouses == 1:
            return self._w_id
        other = self._draw.randint(1, self._warehouses - 1)
        return other + (other >= self._w_id)

    def _customer(self, w_id: int, d_id: int) -> Customer:
        number = nurand(self._draw, CUSTOMER_A, self._constants.customer, self._scale.customers)
        return Customer(CustomerId(w_id, d_id, number))

    def _name(self, w_id: int, d_id: int) -> LastName:
        last = self._scale.last_names - 1
        number = nurand(self._draw, LAST_NAME_A, self._constants.last_name, last, 0)
        return LastName(NameId(w_id, d_id, last_name(number)))
