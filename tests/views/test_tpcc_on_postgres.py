"""TPC-C on PostgreSQL, a peer of the benchmarks, answers as the application does, and its conditions hold."""

import asyncio
from decimal import Decimal
from itertools import chain, islice
from typing import Any

import msgspec
import psycopg

from benchmarks import tpcc_service
from benchmarks.cluster import Cluster
from benchmarks.tpcc_company import request_for
from benchmarks.tpcc_postgres import load, violations
from examples.tpcc.nurand import Scale
from examples.tpcc.terminal import Terminal, Transaction
from penstock.model.call import call_of

SCALE = Scale(items=60, customers=30)
EACH = 12
CLOCKS = {"o_entry_d", "h_date", "ol_delivery_d"}


def alike(value: Any) -> Any:
    """Return a value without times, and with numbers as numbers: PostgreSQL writes a `Decimal` as one, JSON here as a text."""
    match value:
        case dict():
            shown = {name: alike(item) for name, item in value.items() if name not in CLOCKS}
            return shown | ({"customer": None} if "customer" in shown else {})
        case list():
            return [alike(item) for item in value]
        case str() if value.removeprefix("-").replace(".", "", 1).isdecimal():
            return float(value)
        case _:
            return value


def test_both_ways_answer_as_the_application(postgres: Cluster) -> None:
    """Functions and statements, in turns, give the answers of the serial runtime to the same terminals."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS tpcc CASCADE")
        connection.execute("CREATE SCHEMA tpcc")
    address = f"{postgres.address} options=-csearch_path=tpcc"
    kit = load(address, 2, SCALE, 1)
    drawn = chain.from_iterable(
        islice(Terminal(number, 2, SCALE), EACH) for number in range(0, 20, 3)
    )

    async def ask(each: Transaction, answer: tpcc_service.Answer) -> Any:
        body = request_for(each.work, "r", "call").body
        try:
            data = await answer(each.work.function.__name__, msgspec.json.decode(body), "r")
            return alike(msgspec.json.decode(data))
        except tpcc_service.UnusedItem:
            return "unused"

    async def compare() -> set[str]:
        async with (
            tpcc_service.pooled(address, 1, "function") as by_function,
            tpcc_service.pooled(address, 1, "statements") as by_statements,
        ):
            kinds: set[str] = set()
            for number, each in enumerate(drawn):
                theirs = await ask(each, (by_function, by_statements)[number % 2])
                reply = kit.submit(call_of(each.work.function, each.work.arguments, {}))
                ours = msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(reply.data)))
                assert theirs == ("unused" if each.rolls_back else alike(ours)), each
                kinds.add(each.kind)
            return kinds

    assert len(asyncio.run(compare())) == 5
    assert violations(address) == {}
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("UPDATE customer SET c_balance = c_balance + %s", [Decimal(1)])
    assert violations(address).keys() == {10, 12}
