"""The items of the company, and the stock of each item in each warehouse."""

from decimal import Decimal
from typing import NamedTuple

from penstock import Entity, key

RESTOCK_BELOW = 10
RESTOCK = 91


class StockId(NamedTuple):
    w_id: int
    i_id: int


class Item(Entity):
    """An item, the same for all warehouses. No transaction changes it."""

    i_id: int = key()
    i_im_id: int
    i_name: str
    i_price: Decimal
    i_data: str


class Stock(Entity):
    """An item in a warehouse. `s_dist` holds S_DIST_01 to S_DIST_10, a text for each district."""

    stock_id: StockId = key()
    s_quantity: int
    s_dist: list[str]
    s_data: str
    s_ytd: int = 0
    s_order_cnt: int = 0
    s_remote_cnt: int = 0

    def take(self, quantity: int, *, remote: bool) -> None:
        """Take pieces for an order line; a low stock is filled up."""
        self.s_quantity -= quantity
        if self.s_quantity < RESTOCK_BELOW:
            self.s_quantity += RESTOCK
        self.s_ytd += quantity
        self.s_order_cnt += 1
        self.s_remote_cnt += remote
