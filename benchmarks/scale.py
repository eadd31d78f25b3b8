"""A model of how checkouts scale over hosts, fed with measured costs alone.

    python -m benchmarks.scale [--gateway-us 83] [--plot docs/scale.svg] [--json docs/scale.json]

Measures what a checkout costs in this process, by processor time, with the real driver, tasks, log, journal and stores, and without
Spark: the driver's planning (d), a task (p), the share that runs again (rho), and its changes in the stores of one host (r).
The cost of a request over HTTP (g) is an option, because it needs a running application: `penstock bench checkout` over HTTP
measures it. Of N hosts with C cores:

    checkouts/s = min(1/d, N·C / (g + p·(1 + rho) + N·r), E/f)

E is the size of the largest epoch whose largest component, which one task runs, is not more than the share of a core. f is the shortest
time of an epoch: its parts are put into the store, and its commit is created. The model says nothing about the latency between hosts, and nothing about `copies` below all.
"""

import argparse
import functools
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.harness import shop
from benchmarks.machine import machine
from penstock.base.ids import ONLY_PARTITION, RequestId
from penstock.engine.access import AccessSet, components
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.epoch_report import EpochReport
from penstock.runtime.spark import messages
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    RunTransactions,
    TaskCommand,
    TaskResult,
    WorkerSettings,
    worker_settings,
)
from penstock.runtime.spark.parallelism import PROBE_EVERY
from penstock.runtime.spark.stage import Worker

SPEC: Final = "benchmarks.harness.shop:app"
ENTITIES: Final = 100_000
EPOCHS: Final = 6
RECORDS: Final = 10_000
TASKS: Final = 4
FLOOR_S: Final = 0.088
"""The time of an epoch without work, with a store and a topic, at the 90th percentile: measured on two cores that were busy."""

HOSTS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
HANDLER_US: Final = 1_000.0
"""The handler of the last curve."""

Costs = dict[str, float]
"""Microseconds of a processor for a checkout, and `rho`, a share."""


Call = tuple[str, str | None, str, tuple[Any, ...]]
"""A call: class, key, method and arguments."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured.

    Attributes:
        spec: The application, as for `penstock run`.
        app: The same.
        loading: The calls that come first, and do not count.
        calls: The calls of an epoch, none of which fails.
    """

    spec: str
    app: App
    loading: Sequence[Call]
    calls: Sequence[Call]


class MeasuredJobs(Jobs):
    """Runs commands in this process, and measures them.

    Attributes:
        spent_s: The processor time of each type of command.
    """

    def __init__(self, settings: WorkerSettings, partitions: int) -> None:
        self.use(settings)
        self._residents = []
        self.partitions = partitions
        self.worker = Worker(settings)
        self.spent_s: Counter[type] = Counter()
        self._turn = threading.Lock()  # the stores are fed in a thread of their own

    def _run_job(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        results = []
        for command in commands:
            order = messages.encode(command)
            with self._turn:
                began = time.thread_time()
                results.append(self.worker.perform(messages.decode_command(order)))
                self.spent_s[type(command)] += time.thread_time() - began  # type: ignore[assignment]
        return [messages.decode_result(messages.encode(result)) for result in results]


def loading() -> Iterator[Call]:
    """Yield the calls that fill the shop."""
    generator = np.random.default_rng(1)
    for first in range(0, ENTITIES, 500):
        yield "", None, "load_items", (first, 500)
        yield "", None, "load_users", (first, 500)
    for first in range(0, ENTITIES, 500):
        baskets = [
            (int(generator.integers(ENTITIES)), generator.integers(0, ENTITIES, 2).tolist())
            for _ in range(500)
        ]
        yield "", None, "load_orders", (first, baskets)


def checkouts() -> list[Call]:
    """Return the calls of an epoch, each of another order."""
    order = np.random.default_rng(2).permutation(ENTITIES)[:RECORDS]
    return [("Order", str(number), "reorder", ()) for number in order]


def measured(folder: Path, tasks: int, work: Work) -> Costs:
    """Measure calls in epochs of some tasks."""
    # Without a bound of the time: calls that take long would become several epochs.
    config = Config(
        folder, cores=1, partitions=tasks, small_epoch=0, epoch_time_ms=0,
        epoch_records_max=len(work.calls),
    )  # fmt: skip
    directory = DataDirectory(folder)
    directory.create()
    scratch = folder / "scratch"
    scratch.mkdir()
    reports: list[EpochReport] = []
    with (
        closing(directory.open_log(config)) as log,
        closing(directory.open_journal(work.app)) as journal,
    ):
        jobs = MeasuredJobs(worker_settings(work.spec, config, scratch), tasks)
        driver = EpochDriver(config, log, journal, jobs, scratch)
        driver.on_epoch.append(reports.append)

        def advance(calls: Sequence[tuple[Any, ...]], run: str) -> float:
            entries = [
                Entry(RequestId(f"{run}-{number}"), *work.app.request(*call), 0)
                for number, call in enumerate(calls)
            ]
            log.append(entries)
            began = time.thread_time()
            driver.advance({ONLY_PARTITION: log.end()})
            return time.thread_time() - began

        advance(work.loading, "load")
        # The driver has seen conflicts while it filled the shop, and keeps epochs in one task for a while.
        for number in range(PROBE_EVERY + 1):
            advance(work.calls[number : number + 1], f"alone{number}")
        for run in ("warm", "warmer"):
            advance(work.calls, run)
        reports.clear()
        jobs.spent_s.clear()
        whole_s = sum(advance(work.calls, f"run{epoch}") for epoch in range(EPOCHS))
        driver.close()
        count = sum(report.records for report in reports)
        reran = sum(report.reran for report in reports)
        assert count == EPOCHS * len(work.calls), "each epoch is counted"
        assert {report.tasks for report in reports} == {tasks}, "no epoch was kept in one task"
        assert not sum(report.aborts for report in reports), "no call fails"
    run_s = jobs.spent_s[RunTransactions]
    return {
        "d": (whole_s - run_s) / count * 1e6,
        "p": run_s / (count + reran) * 1e6,
        "r": jobs.spent_s[ApplyEpoch] / count * 1e6,
        "rho": reran / count,
    }


def calibrated(folder: Path, work: Work) -> Costs:
    """Return the costs of a call for the model."""
    one, several = measured(folder / "one", 1, work), measured(folder / "several", TASKS, work)
    # Of several tasks: their accesses are reported and validated. Of one task: its stores are fed as those of a host.
    return {name: round(cost, 3) for name, cost in {**several, "r": one["r"]}.items()}


def largest_share(count: int, keys: int) -> float:
    """Return the share of an epoch's largest component, of checkouts of two items out of so many for a user out of so many."""
    generator = np.random.default_rng(3)
    items, users = generator.integers(0, keys, (count, 2)), generator.integers(0, keys, (count, 1))
    entity = np.hstack([items, users + keys]).ravel().astype(np.uint64)
    position = np.repeat(np.arange(count, dtype=np.uint32), 3)
    labels = components(count, AccessSet(position, entity, np.ones(3 * count, np.bool_)))
    return float(np.bincount(labels).max() / count)


@functools.cache
def epoch_most(processors: float, keys: int) -> int:
    """Return the checkouts of the largest epoch whose largest component is not more than the share of one processor."""
    sizes = [round(1_000 * 1.25**step) for step in range(36)]
    if processors <= 1:
        return sizes[-1]
    fitting = itertools.takewhile(lambda count: largest_share(count, keys) <= 1 / processors, sizes)
    return max(fitting, default=sizes[0])


def rate(
    costs: Costs, hosts: int, cores: float, *, keys: int, more_us: float = 0.0
) -> tuple[float, str]:
    """Return the checkouts a second of the model, and the limit that comes first.

    Args:
        keys: The items of the shop.
        more_us: The processor time of a checkout outside of tasks and stores (HTTP), or of a longer handler.
    """
    task_us = costs["p"] * (1 + costs["rho"])
    limits = {
        "processors": hosts * cores * 1e6 / (more_us + task_us + hosts * costs["r"]),
        "driver": 1e6 / costs["d"],
        "largest component": epoch_most(hosts * cores, keys) / FLOOR_S,
    }
    first = min(limits, key=lambda name: limits[name])
    return limits[first], first


def curves(costs: Costs) -> dict[str, list[dict[str, Any]]]:
    """Return the rates of the model for each kind of load."""
    kinds: dict[str, tuple[int, int, float]] = {
        "bulk, 2 cores a host, 1,000,000 items": (2, 1_000_000, 0.0),
        "bulk, 16 cores a host, 1,000,000 items": (16, 1_000_000, 0.0),
        "bulk, 16 cores a host, 100,000 items": (16, 100_000, 0.0),
        "HTTP, 2 cores a host, 1,000,000 items": (2, 1_000_000, costs["g"]),
        "handler of 1 ms, 16 cores a host, 1,000,000 items": (16, 1_000_000, HANDLER_US),
    }
    made: dict[str, list[dict[str, Any]]] = {}
    for name, (cores, keys, more_us) in kinds.items():
        points = [rate(costs, hosts, cores, keys=keys, more_us=more_us) for hosts in HOSTS]
        made[name] = [
            {"hosts": hosts, "per_s": round(per_s), "limit": limit}
            for hosts, (per_s, limit) in zip(HOSTS, points, strict=True)
        ]
    return made


def main() -> None:
    """Measure the costs, print the model, and draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gateway-us", type=float, default=83.0, help="g: processor time of a request over HTTP"
    )
    parser.add_argument("--plot", type=Path, help="file for the plot")
    parser.add_argument("--json", type=Path, help="file for costs and curves")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-scale-") as top:
        work = Work(SPEC, shop.app, list(loading()), checkouts())
        costs = calibrated(Path(top), work)
        about = machine(Path(top))
    costs["g"] = options.gateway_us
    found: dict[str, Any] = {"costs": costs, "curves": curves(costs), "machine": about}
    for name, cost in costs.items():
        sys.stdout.write(f"{name:4} {cost:8.2f}{'' if name == 'rho' else ' µs'}\n")
    for name, points in found["curves"].items():
        sys.stdout.write(f"{name}\n")
        for point in points:
            sys.stdout.write(
                f"  {point['hosts']:3} hosts {point['per_s']:>10,}/s, limit: {point['limit']}\n"
            )
    if options.plot:
        from benchmarks.scale_plot import draw  # noqa: PLC0415 -- the model needs no matplotlib

        draw(found, options.plot)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
