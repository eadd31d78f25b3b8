"""A shop whose checkout can publish an event for `benchmarks.streams`; one global task adds up all of them."""

import random
from typing import Any

from benchmarks.harness.shop import Item, Order, User, load_items, load_orders, load_users
from penstock import App, Emit, emit, flow, stream, transactional

ORDERS = 2_000
ITEMS = 1_000
SEED = 7

sold = stream("sold", int)


class Revenue:
    """Adds up the cost of all orders; it has no key, so each event uses the same row."""

    total: int = 0

    def on_event(self, cost: int, out: Emit[int]) -> None:
        """Publish the sum so far."""
        self.total += cost
        out(self.total)


revenues = flow("revenue", sold).task(Revenue).sink("revenues")


@transactional
def check_out(order: Order) -> int:
    """Check an order out; return its cost."""
    order.reorder()
    return order.total_cost


@transactional
def check_out_and_tell(order: Order) -> int:
    """Check an order out, and publish its cost."""
    order.reorder()
    emit(sold, order.total_cost)
    return order.total_cost


shop = App(
    "stream-shop",
    *(Item, User, Order, revenues),
    *(load_items, load_users, load_orders, check_out, check_out_and_tell),
)


def loading() -> list[tuple[bytes, bytes]]:
    """Return the requests that fill the shop: their bodies and access hints."""
    drawn = random.Random(SEED)
    baskets = [(number, drawn.sample(range(ITEMS), 3)) for number in range(ORDERS)]
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("load_items", (0, ITEMS)),
        ("load_users", (0, ORDERS)),
        ("load_orders", (0, baskets)),
    ]
    return [shop.request("", None, name, arguments) for name, arguments in calls]


def checkouts(function: str, count: int) -> list[tuple[bytes, bytes]]:
    """Return requests that check orders out, drawn uniformly: their bodies and access hints."""
    drawn = random.Random(SEED)
    orders = drawn.choices(range(ORDERS), k=count)
    return [shop.request("", None, function, (Order(str(number)),)) for number in orders]
