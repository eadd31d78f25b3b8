"""The customers, and the history of their payments."""

from bisect import insort
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from penstock import Entity, key

from .warehouse import DistrictId

BAD_CREDIT = "BC"
GOOD_CREDIT = "GC"
DATA_MAX = 500


class CustomerId(NamedTuple):
    w_id: int
    d_id: int
    c_id: int


class NameId(NamedTuple):
    w_id: int
    d_id: int
    last: str


class Customer(Entity):
    customer_id: CustomerId = key()
    c_first: str
    c_middle: str
    c_last: str
    c_street_1: str
    c_street_2: str
    c_city: str
    c_state: str
    c_zip: str
    c_phone: str
    c_since: datetime
    c_credit: str
    c_credit_lim: Decimal
    c_discount: Decimal
    c_balance: Decimal
    c_ytd_payment: Decimal
    c_data: str
    c_payment_cnt: int = 1
    c_delivery_cnt: int = 0

    def pay(self, district_id: DistrictId, amount: Decimal) -> None:
        """Take a payment that arrives at a district; the data of a customer with bad credit tell of it."""
        self.c_balance -= amount
        self.c_ytd_payment += amount
        self.c_payment_cnt += 1
        if self.c_credit == BAD_CREDIT:
            w_id, d_id, c_id = self.customer_id
            paid = f"{c_id} {d_id} {w_id} {district_id.d_id} {district_id.w_id} {amount}|"
            self.c_data = (paid + self.c_data)[:DATA_MAX]

    def receive(self, amount: Decimal) -> None:
        """Take the delivery of an order, whose amount the customer now owes."""
        self.c_balance += amount
        self.c_delivery_cnt += 1


class LastName(Entity):
    """The index of the customers of a district who have the same last name, ordered by first name."""

    name_id: NameId = key()
    customers: list[tuple[str, Customer]] = []

    def add(self, c_first: str, customer: Customer) -> None:
        insort(self.customers, (c_first, customer), key=lambda pair: pair[0])

    def middle(self) -> Customer:
        """Return the customer in the middle of the list, rounded up, as the specification says."""
        return self.customers[(len(self.customers) + 1) // 2 - 1][1]


class History(Entity):
    """A payment. The specification gives it no key, so Penstock derives one."""

    h_id: str = key()
    h_c_id: CustomerId
    h_district_id: DistrictId
    h_date: datetime
    h_amount: Decimal
    h_data: str
