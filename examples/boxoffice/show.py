"""Shows, and the state of each of their seats."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from penstock import Aborted, Entity, key, now, readonly

from .customer import Customer, Ticket

HOLD = timedelta(minutes=10)


class SeatTaken(Aborted):
    """Another customer holds or has bought the seat."""

    code = "seat-taken"


class TooLate(Aborted):
    """The show has started, or the hold has expired."""

    code = "too-late"


@dataclass
class Hold:
    """A seat that waits for its payment."""

    customer: Customer
    until: datetime


class Show(Entity):
    show_id: str = key()
    title: str
    starts: datetime
    price: Decimal
    seats: list[str] = []
    held: dict[str, Hold] = {}
    sold: dict[str, Ticket] = {}

    def hold(self, customer: Customer, seats: list[str]) -> datetime:
        """Keep seats for a customer; return the end of the hold."""
        if now() >= self.starts:
            raise TooLate(f"{self.title} started at {self.starts}")
        for seat in seats:
            if seat not in self.free(customer):
                raise SeatTaken(f"{self.show_id}: {seat}")
            self.held[seat] = Hold(customer, now() + HOLD)
        return now() + HOLD

    def buy(self, customer: Customer) -> list[Ticket]:
        """Sell all seats that a customer holds, or none of them."""
        seats = self.held_by(customer)
        if not seats:
            raise TooLate(f"{customer.name} holds no seat of {self.show_id}")
        customer.pay(self.price * len(seats))
        for seat in seats:
            del self.held[seat]
            ticket = Ticket.create(show_id=self.show_id, seat=seat, paid=self.price, owner=customer)
            self.sold[seat] = ticket
            customer.tickets.append(ticket)
        return [self.sold[seat] for seat in seats]

    def give_back(self, seat: str) -> Decimal:
        """Return the price of a sold seat to its owner, and sell the seat again."""
        if now() >= self.starts:
            raise TooLate(f"{self.title} started at {self.starts}")
        if seat not in self.sold:
            raise Aborted(f"{self.show_id}: {seat} is not sold")
        return self.sold.pop(seat).refund()

    @readonly
    def free(self, customer: Customer | None = None) -> list[str]:
        """Return the seats that a customer can hold now, which include those that the customer holds."""
        taken = {
            seat
            for seat, hold in self.held.items()
            if hold.until > now() and hold.customer != customer
        }
        return [seat for seat in self.seats if seat not in taken and seat not in self.sold]

    @readonly
    def held_by(self, customer: Customer) -> list[str]:
        return [
            seat
            for seat, hold in self.held.items()
            if hold.customer == customer and hold.until > now()
        ]
