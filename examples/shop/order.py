"""Order: what a user is about to buy, and the checkout that spans all three services."""

import penstock
from penstock import entity, key, transactional

from .payment import User
from .stock import Item


@entity
class Order:
    order_id: str = key()
    user: User
    items: list[tuple[Item, int]] = []
    total_cost: int = 0
    paid: bool = False
    checkouts: int = 0

    def add_item(self, item: Item, quantity: int) -> int:
        self.items.append((item, quantity))
        self.total_cost += quantity * item.price
        return self.total_cost

    def checkout(self) -> bool:
        if not self.paid:
            for item, quantity in self.items:
                item.subtract(quantity)
            self.user.pay(self.total_cost)
            self.paid = True
            self.checkouts += 1
        return True

    def reorder(self) -> bool:
        """Check the same basket out once more: what `checkout` of an unpaid order reads and writes.

        `penstock bench` measures this, because a second `checkout` of a paid order is free.
        """
        self.paid = False
        return self.checkout()


@transactional
def init_orders(start: int, count: int, users: int, items: int) -> None:
    """Place orders `start` to `start + count - 1`: some user, two items that may be the same."""
    draw = penstock.random().randrange
    for number in range(start, start + count):
        order = Order.create(str(number), user=User(str(draw(users))))
        order.add_item(Item(str(draw(items))), 1)
        order.add_item(Item(str(draw(items))), 1)
