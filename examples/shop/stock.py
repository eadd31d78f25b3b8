"""Stock: what is on the shelves."""

from penstock import entity, key, transactional


class OutOfStock(Exception):
    """There is less on the shelf than was asked for."""


@entity
class Item:
    item_id: str = key()
    price: int
    stock: int = 0

    def add(self, amount: int) -> int:
        self.stock += amount
        return self.stock

    def subtract(self, amount: int) -> int:
        if self.stock < amount:
            raise OutOfStock(f"{self.item_id}: {self.stock} left, {amount} wanted")
        self.stock -= amount
        return self.stock


@transactional
def init_items(start: int, count: int, stock: int, price: int) -> None:
    """Put items `start` to `start + count - 1` on the shelves."""
    for number in range(start, start + count):
        Item.create(str(number), stock=stock, price=price)
