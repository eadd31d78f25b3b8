"""Requests over pipelined connections: many requests on a single WebSocket."""

import asyncio
import math
import time
from collections.abc import Iterator
from typing import Any

import uvloop

from benchmarks.harness.latencies import Timed
from benchmarks.harness.load import Answer, Request
from benchmarks.harness.shop import EXAMPLE
from penstock import AsyncClient
from penstock.client.asynchronous_pipeline import AsyncPipeline
from penstock.errors import PenstockError
from penstock.model.call import Call
from penstock.process.loading import load_app


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
    answers: list[Answer] = []
    async with (
        AsyncClient(url, load_app(EXAMPLE)) as client,
        client.pipeline(unanswered=unanswered) as pipeline,
    ):
        deadline_s = time.perf_counter() + seconds

        async def work() -> None:
            for number in numbers:  # shared by all workers
                call = client.prepare.Order(str(number)).checkout()
                answers.append(await _answer(pipeline, call, number))
                if time.perf_counter() >= deadline_s:
                    return

        await asyncio.gather(*(work() for _ in range(unanswered)))
    return answers


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
    deadline_s = time.perf_counter() + seconds
    timed: list[Timed] = []

    async def work() -> None:
        for call in calls:  # shared by all workers of this loop
            timed.append(await _timed(pipeline, call))
            if time.perf_counter() >= deadline_s:
                return

    await asyncio.gather(*(work() for _ in range(unanswered)))
    return timed


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
