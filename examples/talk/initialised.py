"""A user buys items: attributes assigned in `__init__`, as on the talk's slides."""

from penstock import App, Entity, transactional


class OutOfStock(Exception):
    """There is less in stock than was asked for."""


class Item(Entity):
    def __init__(self, item_id: str, price: int) -> None:
        self.item_id: str = item_id
        self.price: int = price
        self.stock: int = 0

    def __key__(self) -> str:
        return self.item_id

    def update_stock(self, amount: int) -> bool:
        self.stock += amount
        return self.stock >= 0


class User(Entity):
    def __init__(self, username: str) -> None:
        self.username: str = username
        self.balance: int = 1

    def __key__(self) -> str:
        return self.username

    @transactional
    def buy_item(self, amount: int, item: Item) -> bool:
        total = amount * item.price
        if self.balance < total:
            return False
        if not item.update_stock(-amount):
            raise OutOfStock(item)
        self.balance -= total
        return True


app = App("talk", User, Item)
