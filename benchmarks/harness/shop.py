"""The shop of `examples/shop`, made so that a benchmark can run it for as long as it likes.

Items and users are the example's own. Orders have the example's methods, unchanged, and also count
their checkouts. The functions create many entities in each transaction. Keys are decimals, as in the
bulk loading of the challenge.
"""

from pathlib import Path
from typing import Any

from examples.shop import app as _shop
from penstock.model.application import App
from penstock.model.entity import entity, key
from penstock.model.handler import transactional

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "shop")

Item: Any = _shop.entities["Item"].cls
User: Any = _shop.entities["User"].cls
_order: Any = _shop.entities["Order"].cls

PRICES = 100
STOCK = 1_000_000_000
CREDIT = 1_000_000_000_000
"""Amounts that no benchmark uses up: every abort is a finding."""


@entity
class Order:
    """The example's order, with the number of its checkouts."""

    order_id: str = key()
    user_id: User
    items: list[tuple[Item, int]] = []  # noqa: RUF012 -- copied
    total_cost: int = 0
    paid: bool = False
    checkouts: int = 0

    addItem = _order.addItem  # noqa: N815 -- the contract's word
    checkout = _order.checkout

    def reorder(self) -> str:
        """Check the same basket out again.

        It reads and writes the same entities as `checkout` of an unpaid order. The benchmark measures
        it, because a second `checkout` of a paid order is free.
        """
        self.paid = False
        self.checkouts += 1
        answer: str = self.checkout()
        return answer


@transactional
def load_items(first: int, count: int) -> None:
    """Create items; the price is 1 to 100, by number."""
    for number in range(first, first + count):
        Item.create(str(number), price=1 + number % PRICES, stock=STOCK)


@transactional
def load_users(first: int, count: int) -> None:
    """Create users with the same credit."""
    for number in range(first, first + count):
        User.create(str(number), credit=CREDIT)


@transactional
def load_orders(first: int, baskets: list[tuple[int, list[int]]]) -> None:
    """Create unpaid orders, each of one user for one of every item of its basket."""
    for number, (user, items) in enumerate(baskets, first):
        basket = [(Item(str(item)), 1) for item in items]
        Order.create(  # type: ignore[attr-defined]
            str(number),
            user_id=User(str(user)),
            items=basket,
            total_cost=sum(item.price * quantity for item, quantity in basket),
        )


app = App("shop-benchmark", Item, User, Order, load_items, load_users, load_orders)
