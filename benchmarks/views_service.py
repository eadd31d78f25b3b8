"""Measure views of a running application; `benchmarks.views` runs this as its part `service`.

An application with `penstock run` has 10,000 items, in an SQLite database and in a search index. A client offers requests at
a fixed rate over one pipelined connection; each changes one item, drawn at random.

visible
    From the commit of an epoch (the time of its file in the journal) until the applier has committed it to its target.
at
    `client.at` with a sum in SQLite and a search, by 1, 10 and 50 callers, each of which asks again at once. `replies_per_s`
    and `reply_p50_ms` are those of the writes meanwhile.
driver
    The processor time of the driver for each request, with Java and workers, with views and without, in turns.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from benchmarks.harness.http import running
from penstock import AsyncClient
from penstock.deployment.loading import load_app
from penstock.errors import PenstockError
from penstock.journal.action import epoch_of_version
from penstock.process import presence
from penstock.process.view_files import folder_of, read_report

APP: Final = str(Path(__file__).with_name("views_app.py"))
ITEMS: Final = 10_000
VIEWS: Final = ("reporting", "catalogue")
QUESTIONS: Final = (
    {"view": "reporting", "sql": 'SELECT sum(stock) FROM "Item"'},
    {"view": "catalogue", "search": {"query": "green", "limit": 10}},
)
TICK_S: Final = 0.02


def p50_ms(times_s: list[float]) -> float | None:
    """Return the median in milliseconds; None without times."""
    return round(statistics.median(times_s) * 1_000, 1) if times_s else None


class Visibility(threading.Thread):
    """Notes when each epoch is in the journal, and when it is in each target."""

    def __init__(self, data: Path) -> None:
        super().__init__(daemon=True)
        self._data = data
        self._ended = threading.Event()
        self._reached: dict[str, dict[int, float]] = {name: {} for name in VIEWS}

    def run(self) -> None:
        """Look at the files of the appliers."""
        while not self._ended.wait(0.002):
            for name, reached in self._reached.items():
                with suppress(OSError, ValueError):
                    path = folder_of(self._data, name) / "epoch"
                    written_s, epoch = path.stat().st_mtime, int(path.read_text())
                    reached.setdefault(epoch, written_s)

    def end(self) -> dict[str, Any]:
        """Return the medians."""
        self._ended.set()
        self.join()
        committed: dict[int, float] = {}
        for path in self._data.glob("journal/_delta_log/*.json"):
            with suppress(OSError, ValueError):
                committed[epoch_of_version(int(path.stem))] = path.stat().st_mtime
        figures = {}
        for name, reached in self._reached.items():
            lags = []
            epochs = sorted(reached)
            for former, epoch in pairwise(epochs):
                lags += [
                    reached[epoch] - committed[each]
                    for each in range(former + 1, epoch + 1)
                    if each in committed
                ]
            figures[name] = {
                "p50_ms": p50_ms(lags),
                "p95_ms": round(statistics.quantiles(lags, n=20)[18] * 1_000, 1),
                "epochs": len(lags),
            }
        return figures


class Service:
    """A running application and a client of it."""

    def __init__(self, client: AsyncClient, data: Path, rate: int) -> None:
        self._client = client
        self._data = data
        self._rate = rate
        self._draw = random.Random(7)

    async def fill(self) -> None:
        """Create the items."""
        words = ("green", "black", "white", "herbal")
        prepare = self._client.prepare.Item
        async with self._client.pipeline() as pipeline:
            for number in range(ITEMS):
                name = f"{words[number % 4]} tea {number}"
                await pipeline.send(prepare.create(f"i{number}", name=name, price=number % 50))

    async def write(self, seconds: float) -> dict[str, Any]:
        """Offer requests at the rate; return the replies in a second, and their median time."""
        took_s: list[float] = []
        began = time.perf_counter()
        async with (
            self._client.pipeline(unanswered=20_000) as pipeline,
            asyncio.TaskGroup() as group,
        ):
            sent = 0

            async def replied(pending: Any, sent_s: float) -> None:
                await pending.result()
                took_s.append(time.perf_counter() - sent_s)

            while (now := time.perf_counter()) < began + seconds:
                while sent < (now - began) * self._rate:
                    item = self._client.prepare.Item(f"i{self._draw.randrange(ITEMS)}")
                    pending = await pipeline.send(item.buy())
                    group.create_task(replied(pending, time.perf_counter()))
                    sent += 1
                await asyncio.sleep(TICK_S)
        return {
            "replies_per_s": round(len(took_s) / (time.perf_counter() - began)),
            "reply_p50_ms": p50_ms(took_s),
        }

    async def ask(self, callers: int, seconds: float) -> dict[str, Any]:
        """Ask at one epoch while writes go on."""
        took_s: list[float] = []
        failed = 0
        began = time.perf_counter()

        async def caller() -> None:
            nonlocal failed
            while time.perf_counter() < began + seconds:
                asked_s = time.perf_counter()
                try:
                    await self._client.at(*QUESTIONS)
                    took_s.append(time.perf_counter() - asked_s)
                except PenstockError:
                    failed += 1

        writes, *_ = await asyncio.gather(self.write(seconds), *(caller() for _ in range(callers)))
        asked = {"calls_per_s": round(len(took_s) / seconds, 1), "p50_ms": p50_ms(took_s)}
        return {**asked, "failed": failed, **writes}


def driver_cpu_s(data: Path) -> float:
    """Return the processor time of the driver and of its children."""
    (driver,) = presence.find(data, "driver")
    process = psutil.Process(driver.pid)
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


@contextmanager
def started(*, has_views: bool, directory: Path) -> Iterator[tuple[Path, int]]:
    """Run the application; give its data directory and its port."""
    data = Path(tempfile.mkdtemp(dir=directory, prefix="penstock-views-"))
    os.environ["VIEWS"] = "on" if has_views else "off"
    try:
        with running(data, 1, app=APP) as port:
            yield data, port
    finally:
        shutil.rmtree(data, ignore_errors=True)


async def with_client(
    data: Path, port: int, rate: int, seconds: float, *, has_views: bool, asks: bool
) -> dict[str, Any]:
    """Measure one running application."""
    async with AsyncClient(f"http://127.0.0.1:{port}", load_app(APP), connections=64) as client:
        service = Service(client, data, rate)
        await service.fill()
        while has_views and not all(is_following(data, name) for name in VIEWS):
            await asyncio.sleep(0.2)
        await service.write(5)  # warm
        figures: dict[str, Any] = {}
        visibility = Visibility(data)
        visibility.start()
        before = driver_cpu_s(data)
        figures["writes"] = await service.write(seconds)
        requests = figures["writes"]["replies_per_s"] * seconds
        figures["driver_cpu_ms_per_request"] = round(
            1_000 * (driver_cpu_s(data) - before) / requests, 3
        )
        if has_views:
            figures["visible"] = visibility.end()
        if has_views and asks:
            figures["at"] = {
                str(callers): await service.ask(callers, seconds) for callers in (1, 10, 50)
            }
            figures["writes_after"] = await service.write(seconds)
        return figures


def is_following(data: Path, name: str) -> bool:
    """Say whether a view is filled."""
    report = read_report(data, name)
    return report is not None and report.state == "following"


def measured(directory: Path, rate: int, seconds: float, turns: int) -> list[dict[str, Any]]:
    """Measure the application with and without views, in turns."""
    told = []
    for turn in range(turns):
        for has_views in (True, False):
            with started(has_views=has_views, directory=directory) as (data, port):
                figures = uvloop.run(
                    with_client(data, port, rate, seconds, has_views=has_views, asks=not turn)
                )
            load = os.getloadavg()[0]
            told.append({"views": has_views, "load": round(load, 1), **figures})
            print(json.dumps(told[-1]), file=sys.stderr, flush=True)
    return told


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    chosen = parser.parse_args()
    print(json.dumps(measured(chosen.directory, chosen.rate, chosen.seconds, chosen.turns)))


if __name__ == "__main__":
    main()
