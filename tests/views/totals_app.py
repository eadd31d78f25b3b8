"""The application of `tests.views.book` with SQL tables beside its other tables."""

from datetime import timedelta

from penstock import App, sql, sqlite, view
from tests.views.orders_app import Customer, Order, open_lines, shipments

OFTEN = timedelta(milliseconds=100)

totals = sql(
    """
    SELECT o.customer, count(*) AS orders, sum(o.total) AS total, any_value(c.credit) AS credit,
        max(o.patience) AS patience, list(o.number ORDER BY o.number) AS numbers
    FROM "Order" AS o LEFT JOIN Customer AS c ON c.name = o.customer
    GROUP BY o.customer
    """,
    key="customer",
    every=OFTEN,
    name="totals",
)
lines = sql(
    """
    SELECT o.number, line.key AS item, line.value AS pieces, o.shipped
    FROM "Order" AS o, unnest(map_entries(o.lines)) AS entries(line)
    """,
    key=("number", "item"),
    every=OFTEN,
    name="lines",
)
reporting = view("reporting", sqlite(), Customer, Order, open_lines, shipments, totals, lines)

app = App("orders", Customer, Order, shipments, reporting)
