"""The inventory: pieces and prices of items."""

from dataclasses import dataclass

from penstock import flow, portal, stream


@dataclass
class Put:
    """Pieces of an item arrive."""

    item: str
    price: int
    pieces: int = 1


def item_of(put: Put) -> str:
    return put.item


puts = stream("puts", Put)
take = portal("take", str, bool, key=str)
prices = portal("prices", str, int, key=str)


class Inventory:
    pieces: int = 0
    price: int = 0

    def on_event(self, put: Put) -> None:
        self.pieces += put.pieces
        self.price = put.price

    @take.reply
    def on_take(self, item: str) -> bool:
        """Give a piece away; False if no piece is left."""
        if self.pieces == 0:
            return False
        self.pieces -= 1
        return True

    @prices.reply
    def on_price(self, item: str) -> int:
        return self.price


stocked = flow("inventory", puts).key(item_of).task(Inventory).sink("stocked")
