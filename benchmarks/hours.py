"""Hours under a steady load: latency, memory, files and disk of a running application, minute by minute.

    python -m benchmarks.hours [--minutes 60] [--rate 2000] [--plot docs/hours.svg] [--json docs/hours.json]

Runs an application of 100,000 accounts on two cores, and sends transfers over one pipelined connection on a fixed schedule, which no reply
delays: a stalled system does not hide its own latency. Snapshots are taken, and history and request ids are forgotten, after
--keep seconds, so all that an application keeps comes to its bound within a few minutes.

Prints a line for each minute, and one JSON object at the end. It has the trend of each figure, from the third minute on, by least squares: its
change in an hour as a share of its mean, and the standard error of this share. A trend within two errors is flat. The exit code is 1
if a request failed.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop

from benchmarks.harness import transfer
from benchmarks.harness.http import running
from benchmarks.machine import machine
from benchmarks.sizes import APP, CORES, await_view, fill
from benchmarks.watch import Watch
from penstock import AsyncClient
from penstock.client.asynchronous_pipeline import AsyncPipelined
from penstock.errors import PenstockError

ACCOUNTS: Final = 100_000
TICK_S: Final = 0.005
WARM: Final = 2
"""The first minutes, in which Java compiles and nothing is forgotten yet, are no part of a trend."""

FIGURES: Final = ("p50_ms", "p99_ms", "memory_mb", "files", "disk_mb")

Row = dict[str, float]


class Steady:
    """Sends transfers on a schedule.

    Attributes:
        latencies_s: The latency of each request of a minute, from its place in the schedule to its reply; NaN without one.
        failures: The texts of failures, and their numbers.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._draw = np.random.default_rng(1)
        self._waiting: set[asyncio.Task[None]] = set()
        self.latencies_s: dict[int, list[float]] = {}
        self.failures: dict[str, int] = {}

    async def run(self, url: str, minutes: int) -> None:
        """Send for so many minutes, and wait for the last replies."""
        count = self._rate * 60 * minutes
        async with (
            AsyncClient(url, transfer.app, timeout_s=120) as client,
            client.pipeline(unanswered=100 * self._rate) as pipeline,
        ):
            account = transfer.app.entities["Account"].cls
            began_s = time.perf_counter()
            sent = 0
            while sent < count:
                due = min(count, int((time.perf_counter() - began_s) * self._rate) + 1)
                pairs = self._draw.integers(ACCOUNTS, size=(due - sent, 2)).tolist()
                for source, target in pairs:
                    other = account(str(target if target != source else (target + 1) % ACCOUNTS))
                    call = client.prepare.Account(str(source)).transfer(other, 1)
                    self._await(await pipeline.send(call), began_s + sent / self._rate, sent)
                    sent += 1
                await asyncio.sleep(TICK_S)
            await asyncio.gather(*self._waiting)

    def _await(self, pipelined: AsyncPipelined[Any], due_s: float, number: int) -> None:
        task = asyncio.create_task(self._reply(pipelined, due_s, number // (60 * self._rate)))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _reply(self, pipelined: AsyncPipelined[Any], due_s: float, minute: int) -> None:
        latency_s = math.nan
        try:
            await pipelined.result()
            latency_s = time.perf_counter() - due_s
        except PenstockError as error:
            text = f"{error.code}: {error}"
            self.failures[text] = self.failures.get(text, 0) + 1
        self.latencies_s.setdefault(minute, []).append(latency_s)


def measured(data: Path, rate: int, minutes: int, keep_s: int) -> dict[str, Any]:
    """Run, and return the figures."""
    settings = (
        f"cores={CORES}",
        f"retention_s={keep_s}",
        f"history.keep_s={keep_s}",
        f"history.snapshot_s={keep_s}",
    )
    steady = Steady(rate)
    with ExitStack() as stack:
        port = stack.enter_context(running(data, 1, *settings, app=APP))
        fill(data, ACCOUNTS)
        await_view(data)
        watch = stack.enter_context(Watch(data))
        uvloop.run(steady.run(f"http://127.0.0.1:{port}", minutes))
    rows = rows_of(steady, watch, minutes)
    return {
        "rate": rate,
        "minutes": rows,
        "trends": {name: trend([row[name] for row in rows[WARM:]]) for name in FIGURES},
        "failures": steady.failures,
    }


def rows_of(steady: Steady, watch: Watch, minutes: int) -> list[Row]:
    """Return the figures of each minute: percentiles of latency, the most memory, the mean of files and disk."""
    rows = []
    for minute in range(minutes):
        looks = [look for look in watch.looks if minute <= look.time_s / 60 < minute + 1]
        p50, p99 = np.nanpercentile(steady.latencies_s[minute], [50, 99]) * 1e3
        rows.append(
            {
                "minute": minute + 1,
                "p50_ms": round(float(p50), 2),
                "p99_ms": round(float(p99), 2),
                "memory_mb": round(max(look.memory_mb for look in looks), 1),
                "files": round(float(np.mean([look.files for look in looks])), 1),
                "disk_mb": round(float(np.mean([look.disk_mb for look in looks])), 2),
            }
        )
    return rows


def trend(values: Sequence[float]) -> dict[str, float] | None:
    """Return the change in an hour of a figure of each minute, as a share of its mean, and its standard error; None for too few."""
    if len(values) < 3:  # a line through two points has no error
        return None
    (slope, _), covariance = np.polyfit(np.arange(len(values)), values, 1, cov="unscaled")
    fitted = np.polyval(np.polyfit(np.arange(len(values)), values, 1), np.arange(len(values)))
    spread = float(np.sum((np.asarray(values) - fitted) ** 2)) / (len(values) - 2)
    mean = float(np.mean(values))
    error = math.sqrt(spread * float(covariance[0, 0]))
    return {
        "per_hour": round(60 * float(slope) / mean, 4),
        "error": round(60 * error / mean, 4),
    }


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--rate", type=int, default=2_000, help="transfers a second")
    parser.add_argument("--keep", type=int, default=120, help="seconds of history")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--plot", type=Path, help="file for the plot")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    about = machine(options.directory)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="penstock-hours-") as folder:
        found = measured(Path(folder), options.rate, options.minutes, options.keep)
    found["machine"] = about
    for row in found["minutes"]:
        sys.stdout.write("  ".join(f"{name} {value:,}" for name, value in row.items()) + "\n")
    for name, line in found["trends"].items():
        if line is not None:
            text = f"{100 * line['per_hour']:+.1f} % in an hour (± {200 * line['error']:.1f})"
            sys.stdout.write(f"{name}: {text}\n")
    if options.plot:
        from benchmarks.hours_plot import draw  # noqa: PLC0415 -- the figures need no matplotlib

        draw(found, options.plot)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.exit(1 if found["failures"] else 0)


if __name__ == "__main__":
    main()
