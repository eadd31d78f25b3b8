"""Order: the basket of a user, and the checkout that spans all three services."""

from penstock import Entity, key, limit, random, route

from .payment import User
from .stock import Item


@route("/orders", "POST create/{user_id}", "GET find/{order_id}")
class Order(Entity):
    order_id: str = key()
    user_id: User
    items: list[tuple[Item, int]] = []
    total_cost: int = 0
    paid: bool = False

    def addItem(self, item: Item, quantity: int) -> str:  # noqa: N802 -- the contract's word
        self.items.append((item, quantity))
        self.total_cost += quantity * item.price
        return f"Item: {item.item_id} added to: {self.order_id} price updated to: {self.total_cost}"

    def checkout(self) -> str:
        if not self.paid:
            for item, quantity in self.items:
                item.subtract(quantity)
            self.user_id.pay(self.total_cost)
            self.paid = True
        return "Checkout successful"


@route("POST /orders/batch_init/{n}/{items}/{users}/{price}")
@limit(time="60s")
def init_orders(n: int, items: int, users: int, price: int) -> dict[str, str]:
    for i, user in enumerate(random().choices(range(users), k=n)):
        basket = [(Item(str(item)), 1) for item in random().choices(range(items), k=2)]
        Order.upsert(str(i), user_id=User(str(user)), items=basket, total_cost=2 * price)
    return {"msg": "Batch init for orders successful"}
