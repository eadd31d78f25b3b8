"""The shop without Spark: a checkout takes stock and money together, or nothing."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Aborted, NoSuchEntity
from penstock.testing import Kit

from . import app
from .payment import User
from .reporting import Unpaid, unpaid


def reference(name: str, key: str) -> Any:
    return app.entities[name].cls(key)


@pytest.fixture
def kit() -> Kit:
    """A shop of three items, two users who can pay five each, and an order of two items."""
    kit = Kit(app)
    kit.call.init_items(3, 3, 2)
    kit.call.init_users(2, 5)
    kit.call.Order.create("o1", user_id=reference("User", "1"))
    for item in "12":
        kit.call.Order("o1").addItem(reference("Item", item), 1)
    return kit


def test_shop_checks_out_once(kit: Kit) -> None:
    """A checkout moves stock and money; a second one of the paid order charges nothing."""
    assert kit.call.Order("o1").checkout() == "Checkout successful"
    after = kit.digest()
    assert [one["stock"] for one in kit.entities("Item").values()] == [3, 2, 2]
    assert kit.entity("User", "1") == {"user_id": "1", "credit": 1}
    assert kit.call.Order("o1").checkout() == "Checkout successful"
    assert kit.digest() == after


def test_shop_refuses_whole(kit: Kit) -> None:
    """Without stock or credit nothing changes, also after earlier steps of the checkout."""
    kit.call.Order("o1").addItem(reference("Item", "1"), 1)
    before = kit.digest()
    with pytest.raises(Aborted, match="1: 5 credit, 6 wanted"):
        kit.call.Order("o1").checkout()
    assert kit.digest() == before
    kit.call.User("1").add_funds(100)
    kit.call.Item("2").subtract(3)
    before = kit.digest()
    with pytest.raises(Aborted, match="2: 0 in stock, 1 wanted"):
        kit.call.Order("o1").checkout()
    assert kit.digest() == before


def test_shop_names_what_is_unknown(kit: Kit) -> None:
    """An unknown item, user or order is named; an order may be made before its user."""
    kit.call.Order.create("o2", user_id=reference("User", "later"))
    with pytest.raises(NoSuchEntity, match="Item 'nope'"):
        kit.call.Order("o2").addItem(reference("Item", "nope"), 1)
    with pytest.raises(NoSuchEntity, match="User 'later'"):
        kit.call.Order("o2").checkout()
    with pytest.raises(NoSuchEntity, match="Order 'o3'"):
        kit.call.Order("o3").checkout()


def test_shop_is_filled_in_bulk() -> None:
    """Orders made in bulk have a known user and two known items each, and can be checked out."""
    kit = Kit(app)
    kit.call.init_items(10, 100, 3)
    kit.call.init_users(5, 1000)
    kit.call.init_orders(20, 10, 5, 3)
    orders = kit.entities("Order")
    assert sorted(orders, key=int) == [str(number) for number in range(20)]
    for order in orders.values():
        assert order["user_id"] in kit.entities("User")
        assert [quantity for _, quantity in order["items"]] == [1, 1]
        assert {item for item, _ in order["items"]} <= kit.entities("Item").keys()
        assert (order["total_cost"], order["paid"]) == (6, False)
        assert kit.call.Order(order["order_id"]).checkout() == "Checkout successful"
    assert len({(order["user_id"], *order["items"]) for order in orders.values()}) > 10
    assert sum(one["stock"] for one in kit.entities("Item").values()) == 1000 - 40
    assert sum(one["credit"] for one in kit.entities("User").values()) == 5000 - 20 * 6


def test_shop_is_filled_anew() -> None:
    """Filling the shop a second time replaces its content."""
    kit = Kit(app)
    for stock in (1, 7):
        kit.call.init_items(2, stock, 3)
        assert [one["stock"] for one in kit.entities("Item").values()] == [stock, stock]


def test_report_has_unpaid_orders_alone() -> None:
    """The table of unpaid orders has no row for a paid order."""
    order: Any = SimpleNamespace(order_id="o1", user_id=User("1"), total_cost=4, paid=False)
    assert unpaid(order) == Unpaid("o1", "1", 4)
    order.paid = True
    assert unpaid(order) is None
