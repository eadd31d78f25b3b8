"""TPC-C as one would serve it from PostgreSQL: Starlette, Granian, a pool of psycopg connections.

    python -m benchmarks.tpcc_service PORT ADDRESS WAY CONNECTIONS

It answers `POST /call/new_order` and the other transactions with the bodies that terminals send to Penstock, in one process,
like a gateway of Penstock: the same server (Granian), event loop (uvloop) and framework. Three ways:

function
    Each transaction is one PL/pgSQL function of tpcc.sql: one round trip.
statements
    The rules are in Python: `BEGIN`, the statements of the transaction, `COMMIT`. Lines of an order go together.
dbos
    The function is a transaction of a durable workflow of DBOS Transact (`benchmarks.dbos_workflow`), which runs each
    request exactly once by its id.

A transaction that PostgreSQL ends because of a deadlock is tried again.
"""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, Final

import msgspec
import psycopg
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from psycopg.errors import DeadlockDetected
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples.tpcc.stock import RESTOCK, RESTOCK_BELOW

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]
CENT: Final = Decimal("0.01")
TRIES: Final = 10
SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
UNUSED_ITEM: Final = b'{"error":{"code":"unused-item","message":"Item number is not valid"}}'
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class UnusedItem(Exception):
    """The order has an item that does not exist: about one order in a hundred, by intent."""


def key_of(text: str) -> list[Any]:
    """Return the parts of a reference's key."""
    parts = _decode(text)
    return parts if isinstance(parts, list) else [parts]


def lines_of(wanted: list[dict[str, int]]) -> tuple[list[int], list[int], list[int]]:
    """Return the items, warehouses and quantities of wanted lines."""
    names = ("ol_i_id", "ol_supply_w_id", "ol_quantity")
    items, supplies, quantities = ([line[name] for line in wanted] for name in names)
    return items, supplies, quantities


async def one(connection: Connection, query: str, values: tuple[Any, ...]) -> Row:
    """Return the row of a statement."""
    found = await (await connection.execute(query.encode(), values)).fetchone()
    assert found is not None, query
    return found


async def every(connection: Connection, query: str, values: tuple[Any, ...]) -> list[Row]:
    """Return the rows of a statement."""
    return await (await connection.execute(query.encode(), values)).fetchall()


Perform = Callable[[str, tuple[Any, ...]], Awaitable[str | None]]
"""Runs a statement of one value, and returns this value."""


class ByFunction:
    """Each transaction is a call of a function, which returns JSON as text."""

    async def _call(self, perform: Perform, call: str, values: tuple[Any, ...]) -> bytes:
        text = await perform(f"SELECT {call}::text", values)
        if text is None:
            raise UnusedItem
        return text.encode()

    async def new_order(
        self, perform: Perform, customer: str, wanted: list[dict[str, int]]
    ) -> bytes:
        """Enter an order."""
        values = (*key_of(customer), *lines_of(wanted))
        return await self._call(
            perform, "enter_order(%s, %s, %s, %s::integer[], %s::integer[], %s::integer[])", values
        )

    async def payment(self, perform: Perform, district: str, customer: str, amount: str) -> bytes:
        """Take a payment."""
        values = (*key_of(district), *key_of(customer), amount)
        return await self._call(perform, "pay(%s, %s, %s, %s, %s, %s::numeric)", values)

    async def payment_by_name(
        self, perform: Perform, district: str, name: str, amount: str
    ) -> bytes:
        """Take a payment of a customer with a last name."""
        w, d, last = key_of(name)
        values = (*key_of(district), w, d, w, d, last, amount)
        call = "pay(%s, %s, %s, %s, middle_of(%s, %s, %s), %s::numeric)"
        return await self._call(perform, call, values)

    async def order_status(self, perform: Perform, customer: str) -> bytes:
        """Show the newest order of a customer."""
        return await self._call(perform, "show_status(%s, %s, %s)", (*key_of(customer),))

    async def order_status_by_name(self, perform: Perform, name: str) -> bytes:
        """Show the newest order of a customer with a last name."""
        w, d, last = key_of(name)
        call = "show_status(%s, %s, middle_of(%s, %s, %s))"
        return await self._call(perform, call, (w, d, w, d, last))

    async def delivery(self, perform: Perform, warehouse: str, carrier: int) -> bytes:
        """Deliver the oldest order of each district."""
        return await self._call(perform, "deliver(%s, %s)", (*key_of(warehouse), carrier))

    async def stock_level(self, perform: Perform, district: str, threshold: int) -> bytes:
        """Count items with a low stock."""
        values = (*key_of(district), threshold)
        return await self._call(perform, "count_low_stock(%s, %s, %s)", values)


class ByStatements:
    """The rules are in Python, and each transaction is some statements."""

    async def new_order(
        self, connection: Connection, customer: str, wanted: list[dict[str, int]]
    ) -> bytes:
        """Enter an order."""
        w, d, c = key_of(customer)
        items, supplies, quantities = lines_of(wanted)
        async with connection.transaction():
            o, d_tax, w_tax = await one(
                connection,
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 FROM warehouse"
                " WHERE d_w_id = %s AND d_id = %s AND w_id = d_w_id"
                " RETURNING d_next_o_id - 1, d_tax, w_tax",
                (w, d),
            )
            last, credit, discount = await one(
                connection,
                "SELECT c_last, c_credit, c_discount FROM customer"
                " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
                (w, d, c),
            )
            known = {
                row[0]: row[1:]
                for row in await every(
                    connection,
                    "SELECT i_id, i_name, i_price, i_data FROM item WHERE i_id = ANY (%s)",
                    (items,),
                )
            }
            if not known.keys() >= {*items}:
                raise UnusedItem
            shelves = {
                row[:2]: [*row[2:]]
                for row in await every(
                    connection,
                    "SELECT s_w_id, s_i_id, s_quantity, s_ytd, s_order_cnt, s_remote_cnt, s_data,"
                    " s_dist[%s] FROM stock WHERE (s_w_id, s_i_id) IN"
                    " (SELECT * FROM unnest(%s::integer[], %s::integer[]))"
                    " ORDER BY s_w_id, s_i_id FOR UPDATE",
                    (d, supplies, items),
                )
            }
            wanted_lines = zip(items, supplies, quantities, strict=True)
            sold = [
                take(known[i], shelves[supply, i], count, supply != w)
                for i, supply, count in wanted_lines
            ]
            amounts = [line["ol_amount"] for line in sold]
            texts = [shelves[place][5] for place in zip(supplies, items, strict=True)]
            changed = [(*place, *shelf[:4]) for place, shelf in shelves.items()]
            await connection.execute(
                "UPDATE stock SET s_quantity = quantity, s_ytd = ytd, s_order_cnt = orders,"
                " s_remote_cnt = remote FROM unnest(%s::integer[], %s::integer[], %s::integer[],"
                " %s::bigint[], %s::integer[], %s::integer[]) AS"
                " new (w, i, quantity, ytd, orders, remote) WHERE s_w_id = w AND s_i_id = i",
                columns_of(changed),
            )
            moment = datetime.now(UTC)
            is_local = all(supply == w for supply in supplies)
            await connection.execute(
                "INSERT INTO orders VALUES (%s, %s, %s, %s, %s, %s, %s, NULL)",
                (w, d, o, c, moment, len(items), is_local),
            )
            await connection.execute("INSERT INTO new_order VALUES (%s, %s, %s)", (w, d, o))
            await connection.execute(
                "INSERT INTO order_line SELECT %s, %s, %s, * FROM unnest(%s::integer[],"
                " %s::integer[], %s::integer[], %s::integer[], %s::numeric[], %s::text[])",
                (w, d, o, [*range(1, len(items) + 1)], items, supplies, quantities, amounts, texts),
            )
        total = sum(amounts) * (1 - discount) * (1 + w_tax + d_tax)
        return _encode(
            {
                "o_id": o,
                "o_entry_d": moment,
                "c_last": last,
                "c_credit": credit,
                "c_discount": discount,
                "w_tax": w_tax,
                "d_tax": d_tax,
                "total": total.quantize(CENT),
                "lines": sold,
            }
        )

    async def payment(
        self, connection: Connection, district: str, customer: str, amount: str
    ) -> bytes:
        """Take a payment."""
        async with connection.transaction():
            return await self._pay(connection, district, key_of(customer), Decimal(amount))

    async def payment_by_name(
        self, connection: Connection, district: str, name: str, amount: str
    ) -> bytes:
        """Take a payment of a customer with a last name."""
        async with connection.transaction():
            customer = await self._middle(connection, name)
            return await self._pay(connection, district, customer, Decimal(amount))

    async def _middle(self, connection: Connection, name: str) -> list[Any]:
        w, d, last = key_of(name)
        named = await every(
            connection,
            "SELECT c_id FROM customer WHERE c_w_id = %s AND c_d_id = %s AND c_last = %s"
            " ORDER BY c_first",
            (w, d, last),
        )
        return [w, d, named[(len(named) + 1) // 2 - 1][0]]

    async def _pay(
        self, connection: Connection, district: str, customer: list[Any], amount: Decimal
    ) -> bytes:
        w, d = key_of(district)
        (w_name,) = await one(
            connection,
            "UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %s RETURNING w_name",
            (amount, w),
        )
        (d_name,) = await one(
            connection,
            "UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %s AND d_id = %s"
            " RETURNING d_name",
            (amount, w, d),
        )
        first, last, credit, discount, balance, data = await one(
            connection,
            "SELECT c_first, c_last, c_credit, c_discount, c_balance, c_data FROM customer"
            " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s FOR UPDATE",
            (*customer,),
        )
        balance -= amount
        if credit == "BC":
            c_w, c_d, c = customer
            data = f"{c} {c_d} {c_w} {d} {w} {amount}|{data}"[:500]
        await connection.execute(
            "UPDATE customer SET c_balance = %s, c_ytd_payment = c_ytd_payment + %s,"
            " c_payment_cnt = c_payment_cnt + 1, c_data = %s"
            " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
            (balance, amount, data, *customer),
        )
        moment = datetime.now(UTC)
        await connection.execute(
            "INSERT INTO history VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (*customer, w, d, moment, amount, f"{w_name}    {d_name}"),
        )
        return _encode(
            {
                "customer": customer,
                "c_first": first,
                "c_last": last,
                "c_credit": credit,
                "c_discount": discount,
                "c_balance": balance,
                "c_data": data[:200] if credit == "BC" else "",
                "h_date": moment,
            }
        )

    async def order_status(self, connection: Connection, customer: str) -> bytes:
        """Show the newest order of a customer."""
        async with connection.transaction():
            await connection.execute(SNAPSHOT)
            return await self._show(connection, key_of(customer))

    async def order_status_by_name(self, connection: Connection, name: str) -> bytes:
        """Show the newest order of a customer with a last name."""
        async with connection.transaction():
            await connection.execute(SNAPSHOT)
            return await self._show(connection, await self._middle(connection, name))

    async def _show(self, connection: Connection, customer: list[Any]) -> bytes:
        row = await one(
            connection,
            "SELECT c_first, c_middle, c_last, c_balance, o_id, o_entry_d, o_carrier_id"
            " FROM customer JOIN orders ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)"
            " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s ORDER BY o_id DESC LIMIT 1",
            (*customer,),
        )
        names = ("c_first", "c_middle", "c_last", "c_balance", "o_id", "o_entry_d", "o_carrier_id")
        lines = await every(
            connection,
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info, ol_delivery_d"
            " FROM order_line WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s"
            " ORDER BY ol_number",
            (*customer[:2], row[4]),
        )
        of_line = ("ol_i_id", "ol_supply_w_id", "ol_quantity", "ol_amount", "ol_dist_info")
        shown = [dict(zip((*of_line, "ol_delivery_d"), line, strict=True)) for line in lines]
        return _encode({**dict(zip(names, row, strict=True)), "lines": shown})

    async def delivery(self, connection: Connection, warehouse: str, carrier: int) -> bytes:
        """Deliver the oldest order of each district."""
        (w,) = key_of(warehouse)
        done: list[int | None] = []
        moment = datetime.now(UTC)
        async with connection.transaction():
            for d in range(1, 11):
                oldest = await every(
                    connection,
                    "UPDATE district SET d_next_delivery = d_next_delivery + 1 WHERE d_w_id = %s"
                    " AND d_id = %s AND d_next_delivery < d_next_o_id RETURNING d_next_delivery - 1",
                    (w, d),
                )
                done.append(oldest[0][0] if oldest else None)
                if not oldest:
                    continue
                place = (w, d, oldest[0][0])
                await connection.execute(
                    "DELETE FROM new_order WHERE no_w_id = %s AND no_d_id = %s AND no_o_id = %s",
                    place,
                )
                (c,) = await one(
                    connection,
                    "UPDATE orders SET o_carrier_id = %s WHERE o_w_id = %s AND o_d_id = %s"
                    " AND o_id = %s RETURNING o_c_id",
                    (carrier, *place),
                )
                amounts = await every(
                    connection,
                    "UPDATE order_line SET ol_delivery_d = %s WHERE ol_w_id = %s AND ol_d_id = %s"
                    " AND ol_o_id = %s RETURNING ol_amount",
                    (moment, *place),
                )
                await connection.execute(
                    "UPDATE customer SET c_balance = c_balance + %s,"
                    " c_delivery_cnt = c_delivery_cnt + 1"
                    " WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s",
                    (sum(row[0] for row in amounts), w, d, c),
                )
        return _encode(done)

    async def stock_level(self, connection: Connection, district: str, threshold: int) -> bytes:
        """Count items with a low stock."""
        w, d = key_of(district)
        async with connection.transaction():
            await connection.execute(SNAPSHOT)
            (end,) = await one(
                connection,
                "SELECT d_next_o_id FROM district WHERE d_w_id = %s AND d_id = %s",
                (w, d),
            )
            (count,) = await one(
                connection,
                "SELECT count(*) FROM stock WHERE s_w_id = %s AND s_quantity < %s AND s_i_id IN"
                " (SELECT ol_i_id FROM order_line WHERE ol_w_id = %s AND ol_d_id = %s"
                " AND ol_o_id >= %s AND ol_o_id < %s)",
                (w, threshold, w, d, end - 20, end),
            )
        return _encode(count)


def take(item: Row, shelf: list[Any], quantity: int, is_remote: bool) -> dict[str, Any]:  # noqa: FBT001
    """Take pieces of an item from its stock; return the line on the terminal's screen."""
    name, price, data = item
    shelf[0] -= quantity
    if shelf[0] < RESTOCK_BELOW:
        shelf[0] += RESTOCK
    shelf[1] += quantity
    shelf[2] += 1
    shelf[3] += is_remote
    is_brand = "ORIGINAL" in data and "ORIGINAL" in shelf[4]
    return {
        "i_name": name,
        "i_price": price,
        "s_quantity": shelf[0],
        "brand": is_brand,
        "ol_amount": quantity * price,
    }


def columns_of(rows: list[Row]) -> tuple[list[Any], ...]:
    """Return the columns of rows."""
    return tuple([*column] for column in zip(*rows, strict=True))


Answer = Callable[[str, list[Any], str], Awaitable[bytes]]
"""Performs the transaction of a name, with its arguments, for the request of an id."""


@asynccontextmanager
async def pooled(address: str, connections: int, way: str) -> AsyncIterator[Answer]:
    """Give transactions that each take a connection of a pool; they ignore the ids of requests."""
    free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
    for _ in range(connections):
        free.put_nowait(
            await psycopg.AsyncConnection.connect(address, autocommit=True, prepare_threshold=0)
        )
    by_function, by_statements = ByFunction(), ByStatements()

    async def once(connection: Connection, name: str, arguments: list[Any]) -> bytes:
        found: bytes
        if way == "statements":
            found = await getattr(by_statements, name)(connection, *arguments)
        else:

            async def perform(statement: str, values: tuple[Any, ...]) -> str | None:
                text: str | None = (await one(connection, statement, values))[0]
                return text

            found = await getattr(by_function, name)(perform, *arguments)
        return found

    async def answer(name: str, arguments: list[Any], _: str) -> bytes:
        connection = await free.get()
        try:
            for _left in range(TRIES - 1):
                with suppress(DeadlockDetected):
                    return await once(connection, name, arguments)
            return await once(connection, name, arguments)
        finally:
            free.put_nowait(connection)

    yield answer
    while not free.empty():
        await free.get_nowait().close()


@asynccontextmanager
async def durable(address: str, connections: int) -> AsyncIterator[Answer]:
    """Give transactions that are each a durable workflow, whose id is that of the request."""
    dbos_workflow = import_module("benchmarks.dbos_workflow")  # its import costs 1 s
    by_function = ByFunction()
    async with dbos_workflow.durable(address, connections) as run:

        async def answer(name: str, arguments: list[Any], request_id: str) -> bytes:
            async def perform(statement: str, values: tuple[Any, ...]) -> str | None:
                text: str | None = await run(statement, values, request_id)
                return text

            found: bytes = await getattr(by_function, name)(perform, *arguments)
            return found

        yield answer


async def serve(port: int, address: str, way: str, connections: int) -> None:
    """Serve until the process is killed."""
    ready = durable(address, connections) if way == "dbos" else pooled(address, connections, way)
    async with ready as answer:
        await serve_company(port, answer)


async def serve_company(port: int, answer: Answer) -> None:
    """Serve the routes of the company until the process is killed."""

    async def call(request: Request) -> Response:
        arguments = _decode(await request.body())
        request_id = request.headers.get("idempotency-key") or str(uuid.uuid4())
        try:
            data = await answer(request.path_params["name"], arguments, request_id)
        except UnusedItem:
            return Response(UNUSED_ITEM, 400, media_type="application/json")
        return Response(data, media_type="application/json")

    server = Server(
        Starlette(routes=[Route("/call/{name}", call, methods=["POST"])]),
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
