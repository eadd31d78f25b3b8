"""The shop of `examples/shop`, with the two functions by which a benchmark fills it.

The three classes are the example's own, unchanged; the functions only create, many entities in one
transaction. Keys are decimals, as in the challenge's own bulk loading.
"""

from typing import Any

from penstock.cli.samples import sample_path
from penstock.model.application import App
from penstock.model.entity import transactional
from penstock.runtime.loading import load_app

_shop = load_app(str(sample_path("shop")))
Item: Any = _shop.entities["Item"].cls
User: Any = _shop.entities["User"].cls
Order: Any = _shop.entities["Order"].cls

PRICES = 100
STOCK = 1_000_000_000
CREDIT = 1_000_000_000_000
"""So much that a benchmark never runs out: an abort is always a finding."""


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
        Order.create(
            str(number),
            user=User(str(user)),
            items=basket,
            total_cost=sum(item.price * quantity for item, quantity in basket),
        )


app = App("shop-benchmark", Item, User, Order, load_items, load_users, load_orders)
