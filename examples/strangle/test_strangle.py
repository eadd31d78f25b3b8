"""Customers follow the old application until they are moved."""

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Aborted, Change
from penstock.model.streams.change_stream import ChangeKind
from penstock.testing import Kit

from . import app
from .customers import Customer, CustomerRow, OrderRow, old

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def change(kind: ChangeKind, row: Any, table: str = "public.customers") -> Change[Any]:
    return Change(kind, table, str(row.id), None if kind == "delete" else row, None, 1, NOW)


def customer(kit: Kit, number: int) -> dict[str, Any]:
    shown = kit.entity("Customer", number)
    assert shown is not None
    return shown


@pytest.fixture
def kit() -> Kit:
    """Return an application that has read the tables."""
    kit = Kit(app)
    rows = [CustomerRow(1, "Ada", "ada@old"), CustomerRow(2, "Bob", None)]
    kit.append(old, [change("snapshot", row) for row in rows])
    return kit


def test_a_customer_follows_until_it_is_moved(kit: Kit) -> None:
    """Behind the move, the address is that of this application."""
    kit.append(old, [change("update", CustomerRow(1, "Ada", "ada@new"))])
    assert customer(kit, 1)["email"] == "ada@new"
    with pytest.raises(Aborted, match="still in the old application"):
        kit.call(Customer.change_email, Customer(1), "ada@here")
    kit.call(Customer.move, Customer(1))
    kit.call(Customer.change_email, Customer(1), "ada@here")
    kit.append(old, [change("update", CustomerRow(1, "Ada", "late@old"))])
    assert customer(kit, 1)["email"] == "ada@here"
    assert customer(kit, 1)["late"] == 1


def test_orders_give_points_once(kit: Kit) -> None:
    """An order that comes again gives no points again."""
    order = OrderRow(7, 1, 1_250)
    kit.append(old, [change("insert", order, "public.orders")])
    kit.append(old, [change("snapshot", order, "public.orders")])
    assert customer(kit, 1)["points"] == 12


def test_a_customer_that_is_gone_there_is_gone_here(kit: Kit) -> None:
    """Unless it was moved."""
    kit.call(Customer.move, Customer(2))
    kit.append(old, [change("delete", CustomerRow(number, "", None)) for number in (1, 2)])
    assert list(kit.entities("Customer")) == [2]
