"""The challenge's load test: 500 people who check out a random order, wait a second, and again.

Starts the shop as `penstock run` does, fills it by its three bulk routes with 100,000 each, and lets
the people come. Prints failures and latencies, and with `--json` one JSON object.

    python -m benchmarks.shop_load --people 500 --seconds 30
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import uvloop

from benchmarks.harness.answers import succeeded
from benchmarks.harness.http import HOST, complaints_of, fill, running
from benchmarks.harness.load import Answer, Load, Request
from penstock.process import presence

ORDERS: Final = 100_000
PAUSE_S: Final = 1.0


async def come(port: int, people: int, seconds: float, seed: int) -> list[Answer]:
    """Let people check out random orders until the time is up; return all answers."""
    deadline = time.perf_counter() + seconds
    answers: list[Answer] = []

    async def person(number: int) -> None:
        draw = random.Random(seed * people + number)
        await asyncio.sleep(draw.random() * PAUSE_S)  # people do not come all at once
        load = Load(HOST, port, 1)
        with load.connection() as connection:
            while time.perf_counter() < deadline:
                order = draw.randrange(ORDERS)
                answers.append(
                    await load.ask(connection, Request("POST", f"/orders/checkout/{order}"))
                )
                await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*(person(number) for number in range(people)))
    return answers


def measure(people: int, seconds: float, seed: int, data: Path) -> dict[str, Any]:
    """Return what the load test found."""
    with running(data) as port:
        began = time.perf_counter()
        fill(port, ORDERS)
        filled_s = time.perf_counter() - began
        answers = uvloop.run(come(port, people, seconds, seed))
        pids = [one.pid for one in presence.find(data, "gateway")]
        memory = sum(psutil.Process(pid).memory_info().rss for pid in pids)
    took_ms = np.array([one.took_s for one in answers]) * 1_000
    orders = {one.request.path: one for one in answers}  # a second checkout charges nothing
    return {
        "people": people,
        "seconds": seconds,
        "filled_s": round(filled_s, 2),
        "requests": len(answers),
        "failures": sum(not succeeded(one) for one in answers),
        "latency_ms": {
            f"p{one}": round(float(np.percentile(took_ms, one)), 1) for one in (50, 90, 99, 100)
        },
        "gateway_mb": round(memory / 1e6),
        "complaints": complaints_of(data, list(orders.values())),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-load-") as folder:
        found = measure(chosen.people, chosen.seconds, chosen.seed, Path(folder))
    if chosen.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:12} {value}")
    sys.exit(1 if found["failures"] or found["complaints"] else 0)


if __name__ == "__main__":
    main()
