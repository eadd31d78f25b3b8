"""The consistency conditions 1 to 12 (clause 3.3.2 of the specification) as SQL.

Each query returns the places that violate its condition; it returns no rows from a consistent database. `VIOLATIONS`
is one query that counts these places for all conditions. With `AS OF EPOCH` at its end it sees the database after
that epoch, also while transactions run.

Condition 11 of the specification holds at first only: orders minus new orders is 2,100 in each district, which is 7/10
of the customers. Here each delivered order counts too, so that the condition holds at all times.
"""

from typing import NamedTuple


class Condition(NamedTuple):
    """A condition: its number, its sentence, and the query that finds violations."""

    number: int
    sentence: str
    query: str


_DISTRICTS = "SELECT district_id.w_id AS w, district_id.d_id AS d, * FROM District"
_ORDERS = 'SELECT order_id.w_id AS w, order_id.d_id AS d, order_id.o_id AS o, * FROM "Order"'
_NEW_ORDERS = "SELECT order_id.w_id AS w, order_id.d_id AS d, order_id.o_id AS o FROM NewOrder"
_LINES = f"SELECT w, d, o, o_c_id, o_ol_cnt, o_carrier_id, unnest(lines) AS line FROM ({_ORDERS})"
_CUSTOMERS = """SELECT customer_id.w_id AS w, customer_id.d_id AS d, customer_id.c_id AS c, *
    FROM Customer"""
_DELIVERED = f"""SELECT w, d, o_c_id AS c, sum(line.ol_amount) AS amount FROM ({_LINES})
    WHERE line.ol_delivery_d IS NOT NULL GROUP BY ALL"""


CONDITIONS = (
    Condition(
        1,
        "W_YTD = sum(D_YTD)",
        """SELECT w_id, any_value(w_ytd) AS w_ytd, sum(d_ytd) AS d_ytd
        FROM Warehouse JOIN District ON district_id.w_id = w_id
        GROUP BY w_id HAVING any_value(w_ytd) <> sum(d_ytd)""",
    ),
    Condition(
        2,
        "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
        f"""SELECT w, d, d_next_o_id, newest, newest_new FROM ({_DISTRICTS})
        LEFT JOIN (SELECT w, d, max(o) AS newest FROM ({_ORDERS}) GROUP BY ALL) USING (w, d)
        LEFT JOIN (SELECT w, d, max(o) AS newest_new FROM ({_NEW_ORDERS}) GROUP BY ALL)
        USING (w, d)
        WHERE d_next_o_id - 1 IS DISTINCT FROM newest
        OR newest <> coalesce(newest_new, newest)""",
    ),
    Condition(
        3,
        "max(NO_O_ID) - min(NO_O_ID) + 1 = count of new orders",
        f"""SELECT w, d, max(o), min(o), count(*) FROM ({_NEW_ORDERS})
        GROUP BY w, d HAVING max(o) - min(o) + 1 <> count(*)""",
    ),
    Condition(
        4,
        "sum(O_OL_CNT) = count of order lines",
        f"""SELECT w, d, sum(o_ol_cnt), sum(len(lines)) FROM ({_ORDERS})
        GROUP BY w, d HAVING sum(o_ol_cnt) <> sum(len(lines))""",
    ),
    Condition(
        5,
        "O_CARRIER_ID is null if and only if there is a new order",
        """SELECT order_id FROM "Order" FULL JOIN NewOrder AS fresh USING (order_id)
        WHERE (o_entry_d IS NULL) OR (o_carrier_id IS NULL) <> (fresh.order_id IS NOT NULL)""",
    ),
    Condition(
        6,
        "O_OL_CNT = count of the order's lines",
        'SELECT order_id FROM "Order" WHERE o_ol_cnt <> len(lines)',
    ),
    Condition(
        7,
        "OL_DELIVERY_D is null if and only if O_CARRIER_ID is null",
        f"""SELECT w, d, o FROM ({_LINES})
        WHERE (line.ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)""",
    ),
    Condition(
        8,
        "W_YTD = sum(H_AMOUNT)",
        """SELECT w_id, any_value(w_ytd), sum(h_amount)
        FROM Warehouse LEFT JOIN History ON h_district_id.w_id = w_id
        GROUP BY w_id HAVING any_value(w_ytd) IS DISTINCT FROM sum(h_amount)""",
    ),
    Condition(
        9,
        "D_YTD = sum(H_AMOUNT)",
        """SELECT district_id, any_value(d_ytd), sum(h_amount)
        FROM District LEFT JOIN History ON h_district_id = district_id
        GROUP BY district_id HAVING any_value(d_ytd) IS DISTINCT FROM sum(h_amount)""",
    ),
    Condition(
        10,
        "C_BALANCE = sum(OL_AMOUNT of delivered lines) - sum(H_AMOUNT)",
        f"""SELECT customer_id, c_balance, amount, paid FROM ({_CUSTOMERS})
        LEFT JOIN ({_DELIVERED}) USING (w, d, c)
        LEFT JOIN (SELECT h_c_id AS customer_id, sum(h_amount) AS paid FROM History
        GROUP BY ALL) USING (customer_id)
        WHERE c_balance <> coalesce(amount, 0) - coalesce(paid, 0)""",
    ),
    Condition(
        11,
        "count of orders - count of new orders = 7/10 of customers + deliveries",
        f"""SELECT w, d, orders, fresh, customers, deliveries
        FROM (SELECT w, d, count(*) AS orders FROM ({_ORDERS}) GROUP BY ALL)
        LEFT JOIN (SELECT w, d, count(*) AS fresh FROM ({_NEW_ORDERS}) GROUP BY ALL)
        USING (w, d)
        LEFT JOIN (SELECT w, d, count(*) AS customers, sum(c_delivery_cnt) AS deliveries
        FROM ({_CUSTOMERS}) GROUP BY ALL) USING (w, d)
        WHERE orders - coalesce(fresh, 0) IS DISTINCT FROM 7 * customers // 10 + deliveries""",
    ),
    Condition(
        12,
        "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT of delivered lines)",
        f"""SELECT customer_id, c_balance, c_ytd_payment, amount FROM ({_CUSTOMERS})
        LEFT JOIN ({_DELIVERED}) USING (w, d, c)
        WHERE c_balance + c_ytd_payment <> coalesce(amount, 0)""",
    ),
)


VIOLATIONS = " UNION ALL ".join(
    f"SELECT {one.number} AS condition, count(*) AS violations FROM ({one.query})"
    for one in CONDITIONS
)
