"""Requests over pipelined connections: many requests on a single WebSocket."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import uvloop

from benchmarks.harness.latencies import Timed
from benchmarks.harness.load import Answer, Request
from benchmarks.harness.shop import EXAMPLE
from penstock import AsyncClient
from penstock.client.asynchronous_pipeline import AsyncPipeline
from penstock.deployment.loading import load_app
from penstock.errors import PenstockError
from penstock.model.call import Call

Item = TypeVar("Item")
T = TypeVar("T")


def pipelined_checkouts(
    port: int, unanswered: int, numbers: list[int], seconds: float
) -> list[Answer]:
    """Check out orders over one connection, until the orders or the seconds are used up.

    Args:
        port: The port of the gateway.
        unanswered: The requests in progress at once; each waits for the answer of the one before.
        numbers: The numbers of orders that are not paid.
        seconds: How long to send.

    Returns:
        The answers; their requests are those of the same checkouts over HTTP.
    """
    return uvloop.run(_checkouts(f"http://127.0.0.1:{port}", unanswered, iter(numbers), seconds))


async def _checkouts(
    url: str, unanswered: int, numbers: Iterator[int], seconds: float
) -> list[Answer]:
    async with (
        AsyncClient(url, load_app(EXAMPLE)) as client,
        client.pipeline(unanswered=unanswered) as pipeline,
    ):

        async def check_out(number: int) -> Answer:
            return await _answer(pipeline, client.prepare.Order(str(number)).checkout(), number)

        return await _for_seconds(check_out, numbers, unanswered, seconds)


async def _for_seconds(
    ask: Callable[[Item], Awaitable[T]], items: Iterator[Item], workers: int, seconds: float
) -> list[T]:
    """Ask for items, some at a time, until they or the seconds are used up; return the outcomes in the order of their ends.

    Args:
        ask: Is awaited for each item.
        items: The items, shared by all workers.
        workers: How many are asked for at once.
        seconds: How long workers begin with another item.
    """
    deadline_s = time.perf_counter() + seconds
    outcomes: list[T] = []

    async def work() -> None:
        for item in items:
            outcomes.append(await ask(item))
            if time.perf_counter() >= deadline_s:
                return

    await asyncio.gather(*(work() for _ in range(workers)))
    return outcomes


async def _answer(pipeline: AsyncPipeline, call: Call[str], number: int) -> Answer:
    """Send a call, and return its answer as one of `POST /orders/checkout/…`."""
    sent_s = time.perf_counter()
    status = 200
    try:
        body = await (await pipeline.send(call)).result()
    except PenstockError as error:
        status, body = 400, f"{error.code}: {error}"
    took_s = time.perf_counter() - sent_s
    request = Request("POST", f"/orders/checkout/{number}")
    return Answer(request, status, body.encode(), sent_s, took_s, 1)


async def call_all(
    pipeline: AsyncPipeline, calls: Iterator[Call[Any]], unanswered: int, seconds: float
) -> list[Timed]:
    """Send calls over one connection, and wait for each reply; return them in the order of replies.

    Args:
        pipeline: The connection; it says when a call is accepted.
        calls: The calls.
        unanswered: The calls in progress at once.
        seconds: How long calls begin; those under way are completed.
    """
    return await _for_seconds(partial(_timed, pipeline), calls, unanswered, seconds)


async def _timed(pipeline: AsyncPipeline, call: Call[Any]) -> Timed:
    sent_s = time.perf_counter()
    accepted_s, value, error = math.nan, None, ""
    try:
        pipelined = await pipeline.send(call)
        await pipelined.accepted()
        accepted_s = time.perf_counter() - sent_s
        value = await pipelined.result()
    except PenstockError as raised:
        error = f"{raised.code}: {raised}"
    return Timed(sent_s, accepted_s, time.perf_counter() - sent_s, error, value)
