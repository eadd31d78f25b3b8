"""Hours under a steady load: latency, memory, processor time, files and disk of a running application, minute by minute.

    python -m benchmarks.hours [--minutes 60] [--rate 2000] [--update-docs]

Runs an application of 100,000 accounts on two cores, and sends transfers over one pipelined connection on a fixed schedule, which no reply
delays: a stalled system does not hide its own latency. Snapshots are taken, and history and request ids are forgotten, after
--keep seconds; the SQL view keeps the newest --requests requests. So all that an application keeps has a bound, which `full_minute` knows.

Prints a line for each minute as soon as it is over, and one JSON object at the end. It has the trend of each figure, also of each process
and of each name in the data directory, by least squares: once from the third minute on, and once from the minute on in which
all is kept that is ever kept. A trend is flat if it is within two standard errors. Ctrl-C ends the run early, and the minutes
that are over count. `--update-docs` writes docs/hours.json, docs/hours.svg and the page. The exit code is 1 if a request failed.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop

from benchmarks import page
from benchmarks.harness import transfer
from benchmarks.harness.http import running
from benchmarks.machine import machine, require_idle
from benchmarks.sizes import APP, CORES, await_view, fill
from benchmarks.watch import Look, Watch
from penstock import AsyncClient
from penstock.client.asynchronous_pipeline import AsyncPipelined
from penstock.errors import PenstockError
from penstock.process.config import ViewConfig

ACCOUNTS: Final = 100_000
TICK_S: Final = 0.005
WARM: Final = 2
"""The first minutes, in which Java compiles and nothing is forgotten yet, are no part of a trend."""

LOOK_S: Final = 10.0
"""A look at 50,000 files takes 0.3 s of a core, so there are few of them."""

FIGURES: Final = ("p50_ms", "p99_ms", "memory_mb", "files", "disk_mb", "cores")
SHARES: Final = ("memory", "cpu", "disk")
"""The figures of each process, and of each name in the data directory."""

_SLACK: Final = 1.05
"""The view removes old requests when there are so many times as many as it keeps."""

Row = dict[str, Any]


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

    async def run(self, url: str, minutes: int, is_over: Callable[[int], None]) -> None:
        """Send for so many minutes, and wait for the last replies.

        Args:
            is_over: Called with the number of a minute, from 0, when it has all its replies, and the next one is over.
        """
        count = self._rate * 60 * minutes
        told = 0
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
                if self.has_all(told) and sent >= (told + 2) * 60 * self._rate:
                    is_over(told)
                    told += 1
                await asyncio.sleep(TICK_S)
            await asyncio.gather(*self._waiting)

    def has_all(self, minute: int) -> bool:
        """Say whether each request of a minute has a reply, or has failed."""
        return len(self.latencies_s.get(minute, ())) == 60 * self._rate

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


def measured(data: Path, rate: int, minutes: int, keep_s: int, requests: int) -> dict[str, Any]:
    """Run, and return the figures."""
    settings = (
        f"cores={CORES}",
        f"retention_s={keep_s}",
        f"history.keep_s={keep_s}",
        f"history.snapshot_s={keep_s}",
        f"view.requests_max={requests}",
    )
    steady, rows = Steady(rate), list[Row]()
    with ExitStack() as stack:
        port = stack.enter_context(running(data, 1, *settings, app=APP))
        fill(data, ACCOUNTS)
        await_view(data)
        watch = stack.enter_context(Watch(data, LOOK_S))

        def add(minute: int) -> None:
            rows.append(row_of(steady, watch, minute))
            tell(rows[-1])

        with suppress(KeyboardInterrupt):
            uvloop.run(steady.run(f"http://127.0.0.1:{port}", minutes, add))
        watch.look()
        while steady.has_all(len(rows)):
            add(len(rows))
    begins = {"started": WARM, "full": full_minute(rate, keep_s, requests)}
    return {
        "rate": rate,
        "keep_s": keep_s,
        "requests": requests,
        "minutes": rows,
        "trends": {name: trends(rows, first) for name, first in begins.items()},
        "failures": steady.failures,
    }


def full_minute(rate: int, keep_s: int, requests: int) -> int:
    """Return the first minute, from 0, in which an application keeps as much as it ever keeps.

    An epoch is forgotten once a snapshot that is younger by `keep_s` has been taken, and maintenance begins every `keep_s`.
    """
    return math.ceil(max(3 * keep_s, _SLACK * requests / rate) / 60)


def row_of(steady: Steady, watch: Watch, minute: int) -> Row:
    """Return the figures of a minute: percentiles of latency, the means of all others, and the most memory."""
    looks = watch.looks.copy()
    following = next((look for look in looks if look.time_s >= 60 * (minute + 1)), looks[-1])
    # On a busy machine, a look may take longer than a minute.
    inside = [look for look in looks if minute <= look.time_s / 60 < minute + 1] or [following]
    p50, p99 = np.nanpercentile(steady.latencies_s[minute], [50, 99]) * 1e3
    cpu = cores_between(inside[0], following)
    return {
        "minute": minute + 1,
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "memory_mb": round(float(np.mean([look.memory_mb for look in inside])), 1),
        "memory_most_mb": round(max(look.memory_mb for look in inside), 1),
        "files": round(float(np.mean([look.files for look in inside]))),
        "disk_mb": round(float(np.mean([look.disk_mb for look in inside])), 2),
        "cores": round(sum(cpu.values()), 3),
        "memory": means([look.memory for look in inside]),
        "cpu": cpu,
        "disk": means([{name: size for name, (_, size) in look.disk.items()} for look in inside]),
    }


def cores_between(before: Look, after: Look) -> dict[str, float]:
    """Return the cores that each process has used, with two digits; processes that used less are left out."""
    span_s = max(after.time_s - before.time_s, LOOK_S)
    used = {
        name: round((spent_s - before.cpu_s.get(name, 0.0)) / span_s, 2)
        for name, spent_s in after.cpu_s.items()
    }
    return {name: share for name, share in used.items() if share > 0}


def means(looks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each name over all looks; those below 1 are left out."""
    names = {name: None for look in looks for name in look}
    found = {name: sum(look.get(name, 0.0) for look in looks) / len(looks) for name in names}
    return {name: round(mean, 1) for name, mean in found.items() if mean >= 1}


def tell(row: Row) -> None:
    """Print a minute."""
    words = [f"{name} {row[name]:,}" for name in ("minute", *FIGURES)]
    words += [f"{name} {mb:,}" for name, mb in row["memory"].items()]
    sys.stdout.write("  ".join(words) + "\n")
    sys.stdout.flush()


def trends(rows: Sequence[Row], first: int) -> dict[str, Any] | None:
    """Return the trends of all figures from a minute on; None if too few follow."""
    rows = rows[first:]
    if len(rows) < FEWEST:
        return None
    found: dict[str, Any] = {name: trend([row[name] for row in rows]) for name in FIGURES}
    for share in SHARES:
        names = {name: None for row in rows for name in row[share]}
        found[share] = {
            name: trend([row[share].get(name, 0.0) for row in rows]) for name in sorted(names)
        }
    return {"from": first + 1, **found}


FEWEST: Final = 4
"""The fewest minutes of a trend: a line through two points has no error, and one through three tells nothing of the noise."""


def trend(values: Sequence[float]) -> dict[str, float]:
    """Return the mean of a figure over its minutes, its change in an hour, the standard error of the change, and the noise.

    The noise is the standard deviation from the line. The error counts that neighbours are alike: it is longer by
    sqrt((1 + r) / (1 - r)) where the correlation r of neighbours is positive.
    """
    minutes = np.arange(len(values))
    slope, start = np.polyfit(minutes, values, 1)
    rest = np.asarray(values) - (slope * minutes + start)
    noise = math.sqrt(float(rest @ rest) / (len(values) - 2))
    alike = float(rest[:-1] @ rest[1:]) / float(rest @ rest) if noise else 0.0
    alike = min(max(alike, 0.0), 0.9)
    error = noise / math.sqrt(float(np.sum((minutes - minutes.mean()) ** 2)))
    error *= math.sqrt((1 + alike) / (1 - alike))
    return {
        "mean": round(float(np.mean(values)), 3),
        "per_hour": round(60 * float(slope), 3),
        "error": round(60 * error, 3),
        "noise": round(noise, 3),
    }


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--rate", type=int, default=2_000, help="transfers a second")
    parser.add_argument("--keep", type=int, default=120, help="seconds of history")
    parser.add_argument(
        "--requests", type=int, default=ViewConfig().requests_max, help="requests in the SQL view"
    )
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--update-docs", action="store_true", help="write docs/")
    parser.add_argument("--plot", type=Path, help="file for the plot, without --update-docs")
    options = parser.parse_args()
    plot = page.DOCS / "hours.svg" if options.update_docs else options.plot
    if plot:
        from benchmarks.hours_plot import draw  # noqa: PLC0415 -- the figures need no matplotlib
    if options.update_docs:
        require_idle()
    about = machine(options.directory)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="penstock-hours-") as folder:
        found = measured(
            Path(folder), options.rate, options.minutes, options.keep, options.requests
        )
    found["machine"] = about
    sys.stdout.write(f"{page.hours_content(found)}\n{json.dumps(found)}\n")
    if options.update_docs:
        page.update("hours", found)
    if plot:
        draw(found, plot)
    sys.exit(1 if found["failures"] else 0)


if __name__ == "__main__":
    main()
