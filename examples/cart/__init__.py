"""The shopping cart of the Portals model (Spenger, Carbone & Haller, *Portals*, Onward! 2022).

Four workflows: the inventory, the carts of users, the orders that checkouts make, and an analysis of all orders. Two
portals connect them: a cart takes pieces from the inventory while a user shops, and an order asks for prices. The
inventory never gives away more than it has.
"""

from penstock import App

from .analytics import reports
from .carts import checkouts
from .inventory import stocked
from .orders import orders

app = App("cart", stocked, checkouts, orders, reports)
