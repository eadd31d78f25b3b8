"""The two latencies of a request: accepted, when it is durable in the log, and committed, when its reply is.

A benchmark publishes both. Over HTTP, `POST /send` answers as soon as the request is durable, and `GET /requests/ID`
waits for the reply of the same request.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from benchmarks.harness.load import Answer, Connection, Load, Request

PERCENTILES: Final = (50, 90, 99)
WAIT_S: Final = 20
_ACCEPTED: Final = 202
_OK: Final = 200
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Timed:
    """A request with its times.

    Attributes:
        sent_s: The time at which it was sent, on the clock of `time.perf_counter`.
        accepted_s: The seconds until the client knew that it is durable; NaN for a read, which the log does not hold.
        committed_s: The seconds until the client had its reply.
        error: The code of its error, with the message; empty if it succeeded.
        value: Its result.
    """

    sent_s: float
    accepted_s: float
    committed_s: float
    error: str
    value: Any = None


async def send_and_wait(load: Load, connection: Connection, request: Request) -> Timed:
    """Send a request to a path below `/send`, and wait for its reply.

    Args:
        load: The address, and the time limit.
        connection: The connection to use.
        request: The request; it has a request id.
    """
    sent_s = time.perf_counter()
    answer = await load.ask(connection, request)
    accepted_s = time.perf_counter() - sent_s
    if answer.status != _ACCEPTED:
        return Timed(sent_s, math.nan, accepted_s, _said(answer))
    ask = Request("GET", f"/requests/{request.request_id}?wait={WAIT_S}", key=request.key)
    reply: dict[str, Any] = {}
    while reply.get("status", "pending") == "pending":
        answer = await load.ask(connection, ask)
        if answer.status != _OK:
            return Timed(sent_s, accepted_s, time.perf_counter() - sent_s, _said(answer))
        reply = _decode(answer.body)
    committed_s = time.perf_counter() - sent_s
    error = reply.get("error")
    text = f"{error['code']}: {error['message']}" if error else ""
    return Timed(sent_s, accepted_s, committed_s, text, reply.get("value"))


async def send_all(load: Load, requests: Iterator[Request], seconds: float) -> list[Timed]:
    """Send requests over all connections of a load, and wait for each reply; return them in the order of replies.

    Args:
        load: The address, and the number of connections; each has one request at a time.
        requests: The requests, to paths below `/send`, each with a request id.
        seconds: How long requests begin; those under way are completed.
    """
    found: list[Timed] = []

    async def work(connection: Connection, deadline: float) -> None:
        for request in requests:  # shared by all workers of this loop
            found.append(await send_and_wait(load, connection, request))
            if time.perf_counter() >= deadline:
                return

    async with load.opened() as connections:
        deadline = time.perf_counter() + seconds
        await asyncio.gather(*(work(each, deadline) for each in connections))
    return found


async def read(load: Load, connection: Connection, request: Request) -> Timed:
    """Make a call of a `@readonly` function, which is answered from the state.

    Args:
        load: The address, and the time limit.
        connection: The connection to use.
        request: The request, to a path below `/call`, without a request id.
    """
    sent_s = time.perf_counter()
    answer = await load.ask(connection, request)
    took_s = time.perf_counter() - sent_s
    if answer.status != _OK:
        return Timed(sent_s, math.nan, took_s, _said(answer))
    return Timed(sent_s, math.nan, took_s, "", _decode(answer.body))


def percentiles_ms(seconds: ArrayLike) -> dict[str, float | None]:
    """Return p50, p90 and p99 of seconds, in milliseconds; None without values. NaN is left out."""
    times = np.asarray(seconds, np.float64)
    values = times[~np.isnan(times)] * 1_000
    return {
        f"p{one}": round(float(np.percentile(values, one)), 2) if len(values) else None
        for one in PERCENTILES
    }


def latencies_of(timed: Sequence[Timed]) -> dict[str, dict[str, float | None]]:
    """Return the percentiles of both latencies in milliseconds."""
    return {
        "accepted_ms": percentiles_ms([one.accepted_s for one in timed]),
        "committed_ms": percentiles_ms([one.committed_s for one in timed]),
    }


def _said(answer: Answer) -> str:
    return f"{answer.status}: {answer.body[:200].decode(errors='replace')}"
