"""The Stock / Order / Payment challenge: three services that know each other only by reference."""

from penstock import App

from .order import Order
from .payment import User
from .stock import Item

app = App("shop", Item, User, Order)
