"""Customers and orders, which come from the tables of the old application."""

import msgspec

from penstock import Change, Entity, changes, key, postgres, transactional, view


class CustomerRow(msgspec.Struct, frozen=True, tag=True):
    """A row of the old application. It has more columns, which are not taken."""

    id: int
    name: str
    email: str | None


class OrderRow(msgspec.Struct, frozen=True, tag=True):
    id: int
    customer_id: int
    cents: int


old = changes("old", postgres(), {"public.customers": CustomerRow, "public.orders": OrderRow})


class Customer(Entity):
    customer_id: int = key()
    name: str
    email: str | None = None
    points: int = 0  # the old application has no points
    is_moved: bool = False
    late: int = 0  # changes that the old application has made since then, and that do not count

    def follow(self, row: CustomerRow) -> None:
        if self.is_moved:
            self.late += 1
        else:
            self.name, self.email = row.name, row.email

    def move(self) -> None:
        self.is_moved = True

    def change_email(self, email: str) -> None:
        if not self.is_moved:
            raise ValueError(f"customer {self.customer_id} is still in the old application")
        self.email = email


class Order(Entity):
    order_id: int = key()
    customer: Customer
    cents: int


@transactional
def take(change: Change[CustomerRow | OrderRow]) -> None:
    """Take a change of the old application; a row that comes again, because the tables were read again, changes nothing."""
    row = change.row
    if isinstance(row, CustomerRow):
        if Customer.exists(row.id):
            Customer(row.id).follow(row)
        else:
            Customer.create(row.id, name=row.name, email=row.email)
    elif isinstance(row, OrderRow):
        if not Order.exists(row.id):
            customer = Customer(row.customer_id)
            Order.create(row.id, customer=customer, cents=row.cents)
            customer.points += row.cents // 100
    elif change.kind == "delete" and change.table == "public.customers":
        number = int(change.key)
        if Customer.exists(number) and not Customer(number).is_moved:
            Customer(number).delete()
    elif change.kind in ("unfit", "truncate"):
        # The request fails, and an operator sees it among the failed ones.
        raise ValueError(f"{change.table}: {change.kind} {change.key} {change.reason}")


back = view("back", postgres(), Customer)
