"""Order: what a user is about to buy, and the checkout that spans all three services."""

from penstock import entity, key

from .payment import User
from .stock import Item


@entity
class Order:
    order_id: str = key()
    user: User
    items: list[tuple[Item, int]] = []
    total_cost: int = 0
    paid: bool = False

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
        return True
