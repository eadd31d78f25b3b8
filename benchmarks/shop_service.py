"""The shop as one would serve it from PostgreSQL: Starlette, Granian, a pool of psycopg connections.

    python -m benchmarks.shop_service PORT ADDRESS WAY CONNECTIONS

It answers `POST /orders/checkout/{order_id}` as `examples/shop` does, in one process, like a gateway
of Penstock: the same server (Granian), event loop (uvloop) and framework. Three ways:

statements
    The rules are in Python: `BEGIN`, three `SELECT … FOR UPDATE` (order; items in key order; user),
    three `UPDATE`, `COMMIT`.
function
    All of that is one PL/pgSQL function: one round trip.
dbos
    The function is a transaction of a durable workflow of DBOS Transact (`benchmarks.dbos_workflow`), which runs
    each request exactly once by its id.
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import psycopg
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
DONE: Final = "Checkout successful"


class Refused(Exception):
    """A rule of the shop forbids a checkout; never, with the stock and credit of a benchmark."""


async def by_statements(connection: Connection, order: int) -> None:
    """Check out with the rules in Python."""
    async with connection.transaction():
        execute = connection.execute
        found = await execute(
            "SELECT user_id, items, quantities, total_cost FROM orders"
            " WHERE order_id = %s FOR UPDATE",
            (order,),
        )
        basket = await found.fetchone()
        if basket is None:
            raise Refused(f"there is no order {order}")
        user, items, quantities, total_cost = basket
        wanted: dict[int, int] = {}
        for item, quantity in zip(items, quantities, strict=True):
            wanted[item] = wanted.get(item, 0) + quantity
        shelves = await execute(
            "SELECT item_id, stock FROM items WHERE item_id = ANY (%s) ORDER BY item_id FOR UPDATE",
            (list(wanted),),
        )
        purse = await execute("SELECT credit FROM users WHERE user_id = %s FOR UPDATE", (user,))
        left = {item: stock - wanted[item] for item, stock in await shelves.fetchall()}
        if len(left) != len(wanted) or min(left.values()) < 0:
            raise Refused("out of stock")
        credit = await purse.fetchone()
        if credit is None or credit[0] < total_cost:
            raise Refused("not enough credit")
        await execute(
            "UPDATE items SET stock = new.stock"
            " FROM unnest(%s::integer[], %s::bigint[]) AS new (item_id, stock)"
            " WHERE items.item_id = new.item_id",
            (list(left), list(left.values())),
        )
        await execute(
            "UPDATE users SET credit = %s WHERE user_id = %s", (credit[0] - total_cost, user)
        )
        await execute(
            "UPDATE orders SET paid = true, checkouts = checkouts + 1 WHERE order_id = %s",
            (order,),
        )


async def by_function(connection: Connection, order: int) -> None:
    """Check out by one call, which is a transaction of its own."""
    await connection.execute("SELECT checkout(%s)", (order,))


CheckOut = Callable[[int, str], Awaitable[None]]
"""Checks an order out, for the request of an id."""


@asynccontextmanager
async def pooled(
    address: str, connections: int, check_out: Callable[[Connection, int], Awaitable[None]]
) -> AsyncIterator[CheckOut]:
    """Give checkouts that each take a connection of a pool; they ignore the ids of requests."""
    free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
    for _ in range(connections):
        free.put_nowait(
            await psycopg.AsyncConnection.connect(address, autocommit=True, prepare_threshold=0)
        )

    async def run(order: int, _: str) -> None:
        connection = await free.get()
        try:
            await check_out(connection, order)
        finally:
            free.put_nowait(connection)

    yield run


@asynccontextmanager
async def workflows(address: str, connections: int) -> AsyncIterator[CheckOut]:
    """Give checkouts that are each a durable workflow, whose id is that of the request."""
    from benchmarks.dbos_workflow import durable  # noqa: PLC0415 -- its import costs 1 s

    async with durable(address, connections) as run:

        async def check_out(order: int, request_id: str) -> None:
            await run("SELECT checkout(%s)", (order,), request_id)

        yield check_out


def ready(way: str, address: str, connections: int) -> AbstractAsyncContextManager[CheckOut]:
    """Prepare a way of checking out."""
    if way == "dbos":
        return workflows(address, connections)
    return pooled(address, connections, {"statements": by_statements, "function": by_function}[way])


async def serve(port: int, address: str, way: str, connections: int) -> None:
    """Serve until the process is killed."""
    async with ready(way, address, connections) as check_out:
        await serve_shop(port, check_out)


async def serve_shop(port: int, check_out: CheckOut) -> None:
    """Serve the shop's route until the process is killed."""

    async def checkout(request: Request) -> PlainTextResponse:
        request_id = request.headers.get("idempotency-key") or str(uuid.uuid4())
        try:
            await check_out(int(request.path_params["order_id"]), request_id)
        except Refused as error:
            return PlainTextResponse(str(error), 400)
        return PlainTextResponse(DONE)

    server = Server(
        Starlette(routes=[Route("/orders/checkout/{order_id}", checkout, methods=["POST"])]),
        port=port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=4_096,
        log_enabled=False,
    )
    await asyncio.shield(server.serve())


def main() -> None:
    """Serve."""
    port, address, way, connections = sys.argv[1:]
    uvloop.run(serve(int(port), address, way, int(connections)))


if __name__ == "__main__":
    main()
