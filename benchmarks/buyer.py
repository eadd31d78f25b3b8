"""One connection that checks out orders on PostgreSQL, as a process of its own; see `postgres`.

All clients meet when they are connected, so that slow starts are in nobody's measured seconds.
"""

import random
import time
from array import array
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any, Final

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

Answer = tuple[int, "array[float]"]
"""How many checkouts were committed in all, and the milliseconds of the measured ones."""


class Refused(Exception):
    """A rule of the shop forbids a checkout; never, with the stock and credit of a benchmark."""


def by_statements(connection: Connection, order: int) -> None:
    """Check out as a service does, with the rules in Python."""
    with connection.transaction(), connection.cursor() as cursor:
        execute = cursor.execute
        basket = execute(
            "SELECT user_id, items, quantities, total_cost FROM orders"
            " WHERE order_id = %s FOR UPDATE",
            (order,),
        ).fetchone()
        if basket is None:
            raise Refused(f"there is no order {order}")
        user, items, quantities, total_cost = basket
        wanted: dict[int, int] = {}
        for item, quantity in zip(items, quantities, strict=True):
            wanted[item] = wanted.get(item, 0) + quantity
        shelves = execute(
            "SELECT item_id, stock FROM items WHERE item_id = ANY (%s) ORDER BY item_id FOR UPDATE",
            (list(wanted),),
        ).fetchall()
        left = {item: stock - wanted[item] for item, stock in shelves}
        if len(left) != len(wanted) or min(left.values()) < 0:
            raise Refused("out of stock")
        purse = execute(
            "SELECT credit FROM users WHERE user_id = %s FOR UPDATE", (user,)
        ).fetchone()
        if purse is None or purse[0] < total_cost:
            raise Refused("not enough credit")
        execute(
            "UPDATE items SET stock = new.stock"
            " FROM unnest(%s::integer[], %s::bigint[]) AS new (item_id, stock)"
            " WHERE items.item_id = new.item_id",
            (list(left), list(left.values())),
        )
        execute("UPDATE users SET credit = %s WHERE user_id = %s", (purse[0] - total_cost, user))
        execute(
            "UPDATE orders SET paid = true, checkouts = checkouts + 1 WHERE order_id = %s",
            (order,),
        )


def by_function(connection: Connection, order: int) -> None:
    """Check out by one call, which is a transaction of its own."""
    connection.execute("SELECT checkout(%s)", (order,))


WAYS: Final[dict[str, Callable[[Connection, int], None]]] = {
    "statements": by_statements,
    "function": by_function,
}


def client(  # noqa: PLR0913 -- what crosses to another process, each for itself
    address: str,
    way: str,
    orders: int,
    seed: int,
    seconds: tuple[float, float],
    meeting: Barrier,
    found: "Queue[Answer]",
) -> None:
    """Be one connection: check out until the measured time is over.

    `seconds` are those of warming up and of measuring; both begin when all clients are connected.
    """
    check_out, draw = WAYS[way], random.Random(seed)
    committed, latencies = 0, array("d")
    with psycopg.connect(address, autocommit=True, prepare_threshold=0) as connection:
        meeting.wait()
        begins = time.monotonic() + seconds[0]
        ends = begins + seconds[1]
        while (began := time.monotonic()) < ends:
            check_out(connection, draw.randrange(orders))
            now = time.monotonic()
            committed += 1
            if began >= begins and now <= ends:
                latencies.append((now - began) * 1_000)
    found.put((committed, latencies))
