"""The shop with a reporting database: its items, users and orders, and the orders that wait for a payment, in SQLite."""

from dataclasses import dataclass

from penstock import App, rows, sqlite, view

from .order import Order, init_orders
from .payment import User, init_users
from .stock import Item, init_items


@dataclass
class Unpaid:
    order_id: str
    user_id: str
    total_cost: int


@rows(Order)
def unpaid(order: Order) -> Unpaid | None:
    return None if order.paid else Unpaid(order.order_id, order.user_id.user_id, order.total_cost)


reporting = view("reporting", sqlite(), Item, User, Order, unpaid)
app = App("shop", Item, User, Order, init_items, init_users, init_orders, reporting)
