"""Orders: checkouts with their prices."""

from dataclasses import dataclass

from penstock import Emit, flow, gather

from .carts import Checkout, checkouts
from .inventory import prices


@dataclass
class Order:
    user: str
    items: list[str]
    total: int


class Ordering:
    async def on_event(self, checkout: Checkout, out: Emit[Order]) -> None:
        found = await gather(*(prices.ask(item) for item in checkout.items))
        out(Order(checkout.user, checkout.items, sum(found)))


orders = flow("ordering", checkouts).task(Ordering).sink("orders")
