"""Stock: the items on the shelves. This application knows no other application."""

from penstock import Aborted, App, Entity, key, limit, route


@route("/stock", "POST item/create/{price}", "GET find/{item_id}", shows=("stock", "price"))
class Item(Entity):
    item_id: str = key()
    price: int
    stock: int = 0

    def add(self, amount: int) -> str:
        self.stock += amount
        return f"Item: {self.item_id} stock updated to: {self.stock}"

    def subtract(self, amount: int) -> str:
        if self.stock < amount:
            raise Aborted(f"{self.item_id}: {self.stock} in stock, {amount} wanted")
        return self.add(-amount)


@route("POST /stock/batch_init/{n}/{starting_stock}/{item_price}")
@limit(time="60s")
def init_items(n: int, starting_stock: int, item_price: int) -> dict[str, str]:
    for i in range(n):
        Item.upsert(str(i), stock=starting_stock, price=item_price)
    return {"msg": "Batch init for stock successful"}


app = App("stock", Item, init_items)
