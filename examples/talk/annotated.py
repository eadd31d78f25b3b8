"""A user buys items: attributes declared in the class."""

from penstock import App, Entity, key, transactional


class OutOfStock(Exception):
    """There is less in stock than was asked for."""


class Item(Entity):
    item_id: str = key()
    price: int
    stock: int = 0

    def update_stock(self, amount: int) -> bool:
        self.stock += amount
        return self.stock >= 0


class User(Entity):
    username: str = key()
    balance: int = 1

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
