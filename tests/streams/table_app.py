"""A shop that publishes its open orders, in several versions, and a desk that keeps a copy of them."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import App, Emit, Entity, Put, Removed, flow, key, publish, registry, rows
from penstock.model.application_set import combined


class Order(Entity):
    order_id: str = key()
    total: int = 0
    shipped: bool = False

    def ship(self) -> None:
        self.shipped = True

    def add(self, more: int) -> None:
        self.total += more


@dataclass
class OpenOrder:
    order_id: str
    total: int


@rows(Order)
def open_orders(order: Order) -> OpenOrder | None:
    return None if order.shipped else OpenOrder(order.order_id, order.total)


@rows(Order)
def doubled(order: Order) -> Iterator[OpenOrder]:
    """Make two rows of each order that is open, and of another type of total."""
    if order.total < 0:
        raise ValueError("a negative total")
    if not order.shipped:
        yield OpenOrder(order.order_id, order.total)
        yield OpenOrder(order.order_id, 2 * order.total)


class Copy:
    rows: dict[int, OpenOrder] = {}

    def on_event(self, change: Put[OpenOrder] | Removed, out: Emit[str]) -> None:
        if isinstance(change, Put):
            self.rows[change.place] = change.row
        else:
            self.rows.pop(change.place, None)
        out(change.key)


def key_of(change: Put[OpenOrder] | Removed) -> str:
    return change.key


taken = registry.rows("/shop/open_orders", OpenOrder)
copies = flow("copies", taken, start="earliest").key(key_of).task(Copy).sink("copied")
desk = App("desk", copies)

unpublished = App("shop", Order)
published = App("shop", Order, publish(open_orders))
changed = App("shop", Order, publish(doubled, "open_orders"))
before = combined((unpublished,))
shop = combined((published,))
shop_and_desk = combined((published, desk))
changed_shop = combined((changed,))
