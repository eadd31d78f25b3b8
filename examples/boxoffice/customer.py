"""Customers, their money, and their tickets."""

from decimal import Decimal

from penstock import Aborted, Entity, key


class NotEnoughCredit(Aborted):
    """The customer must pay in more first."""

    code = "not-enough-credit"


class Customer(Entity):
    name: str = key()
    credit: Decimal = Decimal(0)
    tickets: list["Ticket"] = []

    def pay_in(self, amount: Decimal) -> Decimal:
        if amount <= 0:
            raise Aborted(f"{amount} cannot be paid in")
        self.credit += amount
        return self.credit

    def pay(self, amount: Decimal) -> None:
        if self.credit < amount:
            raise NotEnoughCredit(f"{self.name}: {self.credit} left, {amount} wanted")
        self.credit -= amount


class Ticket(Entity):
    ticket_id: str = key()
    show_id: str
    seat: str
    paid: Decimal
    owner: Customer

    def pass_to(self, other: Customer) -> None:
        """Give the ticket to another customer."""
        self.owner.tickets.remove(self)
        other.tickets.append(self)
        self.owner = other

    def refund(self) -> Decimal:
        """Return its price to the owner; the ticket is gone."""
        paid = self.paid
        self.owner.tickets.remove(self)
        self.owner.credit += paid
        self.delete()
        return paid
