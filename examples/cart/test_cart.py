"""The shopping cart without Spark: carts get what the inventory has, and orders have the prices."""

from typing import Any

import pytest

from penstock.testing import Kit

from . import app
from .analytics import Report, reports
from .carts import Action, actions
from .inventory import Put, puts
from .orders import Order, orders


def flat(atoms: list[list[Any]]) -> list[Any]:
    return [event for atom in atoms for event in atom]


@pytest.fixture
def shop() -> Kit:
    """The shopping cart with two pieces of i1 and one piece of i2."""
    kit = Kit(app)
    kit.append(puts, [Put("i1", 3), Put("i1", 3), Put("i2", 5)])
    return kit


def test_carts_get_no_more_than_the_inventory_has(shop: Kit) -> None:
    """Three users get the three pieces, the fourth user gets none, and the orders have the prices."""
    shop.append(actions, [Action("U1", "i1"), Action("U2", "i2")])
    shop.append(actions, [Action("U3", "i1"), Action("U4", "i2")])
    shop.append(actions, [Action(f"U{number}") for number in range(1, 5)])
    assert flat(shop.atoms(orders)) == [
        Order("U4", [], 0),  # it has no price to wait for
        Order("U1", ["i1"], 3),
        Order("U2", ["i2"], 5),
        Order("U3", ["i1"], 3),
    ]
    assert [shop.task("inventory.Inventory", item)["pieces"] for item in ("i1", "i2")] == [0, 0]
    assert shop.atoms(reports)[-1] == [Report(11, {"i1": 2, "i2": 1})]


def test_a_checkout_waits_for_its_cart(shop: Kit) -> None:
    """A checkout in the atom of the last piece has this piece."""
    shop.append(actions, [Action("A", "i1"), Action("A")])
    assert flat(shop.atoms(orders)) == [Order("A", ["i1"], 3)]
