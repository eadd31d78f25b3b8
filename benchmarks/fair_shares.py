"""Fair shares: the latency of a quiet caller next to a loud one, with and without the turns of principals.

    python -m benchmarks.fair_shares [--seconds N] [--connections N] [--items N] [--gateways N]

Runs the shop with two API keys. The quiet caller calls a method every 100 ms. The loud caller sends requests
that each create some items, over many connections and without waiting for replies, so that it sends more
than is processed. Prints one JSON object with the latencies of the quiet caller in milliseconds: alone
(`alone`), next to the loud caller with turns (`turns`), and without turns (`no_turns`, which is
`gateway.window_ms = 0`). `accepted` is the time until the request is durable in the log, and `committed` the time
until the caller has its reply. `loud_accepted_per_s` is the number of the loud caller's requests that were accepted in a
second, and `processed_per_s` the number of all requests that epochs have committed in a second. With turns the two
numbers are nearly equal, because requests are accepted as fast as they are processed. Without turns the log grows by
the difference. With several gateways, the connections of the loud caller are divided among them, and the quiet caller
has a connection to one.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import tempfile
import time
import uuid
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.harness.http import HOST, running
from benchmarks.harness.latencies import Timed, latencies_of, send_and_wait
from benchmarks.harness.load import Load, Request
from benchmarks.harness.shop import EXAMPLE
from penstock.deployment.loading import load_app
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import EVERYTHING
from penstock.process.status import status_in

_APP = load_app(EXAMPLE).name

PAUSE_S = 0.1
WARM_S = 5.0
ACCEPTED = 202


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--gateways", type=int, default=1)
    print(json.dumps(measured(parser.parse_args())))


def measured(chosen: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of each setting."""
    figures: dict[str, dict[str, Any]] = {}
    context = multiprocessing.get_context("spawn")
    for name, settings in (("turns", ()), ("no_turns", ("gateway.window_ms=0",))):
        with (
            ProcessPoolExecutor(1, context) as processes,
            tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-shares-") as folder,
        ):
            data = Path(folder)
            store = KeyStore(data)
            quiet, loud = (
                store.add(each, [EVERYTHING], None, utc_now())[1] for each in ("quiet", "loud")
            )
            with running(data, chosen.gateways, *settings) as port:
                test = _Test(port, data, (quiet, loud), chosen)
                figures.setdefault("alone", test.run(0, processes))
                figures[name] = test.run(chosen.connections, processes)
    return figures


class _Test:
    """The two callers of one application."""

    def __init__(
        self, port: int, data: Path, keys: tuple[str, str], chosen: argparse.Namespace
    ) -> None:
        quiet, loud = keys
        body = b'{"price": 3, "stock": 1000000}'
        warm = Request("POST", "/call/Item/quiet/upsert", body, key=quiet)
        Load(HOST, port, 1).run(iter([warm]))
        Load(HOST, port, 1).run(itertools.repeat(self._add(quiet)), WARM_S)
        self._data = data
        self._load = Load(HOST, port, 1)
        self._quiet = quiet
        self._loud = Request("POST", "/send/init_items", f"[{chosen.items},1,1]".encode(), key=loud)
        self._seconds = chosen.seconds

    def run(self, connections: int, processes: Executor) -> dict[str, Any]:
        """Return the latencies of the quiet caller next to so many connections of the loud caller.

        Args:
            connections: The number of connections; 0 without the loud caller.
            processes: Runs the loud caller, in a process of its own, so that the quiet caller only waits for Penstock.
        """
        before, began = status_in(self._data, _APP), time.perf_counter()
        shout = partial(_shout, self._load.port, self._loud, connections, self._seconds)
        shouting = processes.submit(shout)
        quiet = uvloop.run(self._call())
        accepted = shouting.result()
        after, took_s = status_in(self._data, _APP), time.perf_counter() - began
        return {
            **latencies_of(quiet),
            "quiet_calls": len(quiet),
            "quiet_errors": sum(bool(timed.error) for timed in quiet),
            "loud_accepted_per_s": round(accepted / self._seconds, 1),
            "processed_per_s": round((after.answered - before.answered) / took_s, 1),
        }

    async def _call(self) -> list[Timed]:
        """Send the requests of the quiet caller for the time of the test, and wait for each reply."""
        all_timed: list[Timed] = []
        deadline = time.perf_counter() + self._seconds
        with self._load.connection() as connection:
            while time.perf_counter() < deadline:
                request = Request(
                    "POST", "/send/Item/quiet/add", b"[1]", str(uuid.uuid4()), self._quiet
                )
                all_timed.append(await send_and_wait(self._load, connection, request))
                await asyncio.sleep(PAUSE_S)
        return all_timed

    @staticmethod
    def _add(key: str) -> Request:
        return Request("POST", "/call/Item/quiet/add", b"[1]", key=key)


def _shout(port: int, request: Request, connections: int, seconds: float) -> int:
    """Send requests of the loud caller without a pause; return how many were accepted.

    Args:
        port: The port of the gateway.
        request: The request.
        connections: The number of connections.
        seconds: The time.
    """
    if not connections:
        return 0
    answers = Load(HOST, port, connections).run(itertools.repeat(request), seconds)
    return sum(answer.status == ACCEPTED for answer in answers)


if __name__ == "__main__":
    main()
