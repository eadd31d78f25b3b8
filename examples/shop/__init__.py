"""The Stock / Order / Payment challenge: three services that know each other only by reference.

`Order.checkout` takes every item off the shelf, takes the money from the user and marks the order
paid, or does nothing at all. No line of it speaks of locks, retries, messages or compensation.
`reporting.py` is the same shop with a database for reports.
"""

from penstock import App

from .order import Order, init_orders
from .payment import User, init_users
from .stock import Item, init_items

app = App("shop", Item, User, Order, init_items, init_users, init_orders)
