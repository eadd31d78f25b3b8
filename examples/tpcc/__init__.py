"""TPC-C: a company with warehouses sells items to the customers of its districts.

The five transactions of TPC-C (Standard Specification, revision 5.11) over plain classes, with the names of the
specification. `population` creates the company, `terminal` draws the inputs of terminals, and `consistency` has the
conditions 1 to 12 as SQL. README.md says how to run it, and where it differs from the specification.
"""

from penstock import App

from .customer import Customer, History, LastName
from .order import NewestOrder, NewOrder, Order
from .population import load_customers, load_items, load_orders, load_stock, load_warehouse
from .stock import Item, Stock
from .transactions import (
    delivery,
    new_order,
    order_status,
    order_status_by_name,
    payment,
    payment_by_name,
    stock_level,
)
from .warehouse import District, Warehouse

app = App(
    "tpcc",
    Warehouse,
    District,
    Customer,
    LastName,
    History,
    Item,
    Stock,
    Order,
    NewOrder,
    NewestOrder,
    new_order,
    payment,
    payment_by_name,
    order_status,
    order_status_by_name,
    delivery,
    stock_level,
    load_items,
    load_warehouse,
    load_stock,
    load_customers,
    load_orders,
)
