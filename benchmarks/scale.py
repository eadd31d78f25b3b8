"""A model of how work scales over hosts: an epoch has costs that the hosts divide, costs that each host pays, and waits.

    python -m benchmarks.scale [--json docs/scale.json] [--plot docs/scale.svg]

`scripts/cluster --parts scaling --json docs/scale.json` measures on one host, with epochs of two sizes, the costs of an epoch
and of a record, and compares the model with 1, 2 and 4 hosts. This program measures in its own process the costs of a
checkout, by processor time, with the real driver, tasks, log, journal and stores, and without Spark. It draws the model for both.

An epoch of E records on N hosts with C cores each, of which the processes of a host at rest use o, takes

    T = W + w·E + (t + p·E) / (N·(C - o)) + (a + r·E) / (C - o)

seconds: it waits (W and w), the tasks of the hosts run it (t and p), and each host follows it (a and r). A call over HTTP costs
a gateway g. The gateways work also while an epoch waits, so they lengthen it only if the processors of the hosts are busy all the time:

    T = max(the sum above, (t + (p + g)·E) / (N·(C - o)) + (a + r·E) / (C - o))

E / T records are done in a second. E is an input; at most half of the clients that send the next request after each reply have one in an epoch.
The model leaves out the latency between hosts, and `copies` below all.
"""

import argparse
import functools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.harness import shop
from benchmarks.machine import machine
from benchmarks.page import DOCS, update
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
SMALLER: Final = 10
"""Of two sizes of epochs, one is so many times the other one."""
TASKS: Final = 4

HOSTS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
CORES: Final = 2
"""Of a host of the curves."""
KEYS: Final = 1_000_000
"""The items of the shop of the curves."""
CONNECTIONS: Final = 500
"""Clients of each host, each with one request at a time."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of an epoch and of a record: seconds in which it waits, and seconds of a processor.

    Attributes:
        wait_s: W: an epoch waits for the driver, the store and the broker.
        wait_record_s: w: the same for each record.
        tasks_s: t: the tasks of an epoch, together.
        task_record_s: p: a record in its task.
        host_s: a: each host for an epoch. Its stores, its gateway and Spark's Java follow.
        host_record_s: r: each host for a record of any host.
        request_s: g: a gateway for a request over HTTP; else 0.
        idle: o: the cores that the processes of a host use without any work, all the time.
    """

    wait_s: float
    wait_record_s: float
    tasks_s: float
    task_record_s: float
    host_s: float
    host_record_s: float
    request_s: float = 0.0
    idle: float = 0.0

    def terms(
        self, hosts: int, cores: float, records: float, largest: float = 0.0
    ) -> dict[str, float]:
        """Return the seconds of an epoch by their reasons, without the gateways.

        Args:
            cores: Of each host; may be a part of one.
            largest: The share of the epoch's largest component, which one task runs.
        """
        cores -= self.idle
        one = min(cores, 1.0)  # a single process cannot use more
        slowest = max(1 / (hosts * cores), largest / one)
        return {
            "waiting": self.wait_s + self.wait_record_s * records,
            "tasks": self.tasks_s / (hosts * cores) + self.task_record_s * records * slowest,
            "copies": (self.host_s + self.host_record_s * records) / one,
        }

    def epoch_s(self, hosts: int, cores: float, records: float, largest: float = 0.0) -> float:
        """Return the seconds of an epoch; see `terms`."""
        divided_s = self.tasks_s + (self.task_record_s + self.request_s) * records
        followed_s = self.host_s + self.host_record_s * records
        busy_s = (divided_s / hosts + followed_s) / (cores - self.idle)
        return max(sum(self.terms(hosts, cores, records, largest).values()), busy_s)

    def rate(
        self, hosts: int, cores: float, records: float, largest: float = 0.0
    ) -> tuple[float, str]:
        """Return the records that are done in a second, and the greatest part of an epoch's time; see `terms`."""
        terms = self.terms(hosts, cores, records, largest)
        epoch_s = self.epoch_s(hosts, cores, records, largest)
        longest = max(terms, key=lambda name: terms[name])
        return records / epoch_s, longest if sum(terms.values()) >= epoch_s else "gateways"


def of_tasks(known: Mapping[int, Costs], tasks: int) -> Costs:
    """Return the costs of epochs of so many tasks, from those of a few numbers of tasks.

    Between two numbers, and beyond the last one, processor time grows as it does between the nearest two. The tasks of several hosts
    wait at the same time, so an epoch of more tasks than were measured waits no longer.
    """
    if tasks in known:
        return known[tasks]
    numbers = sorted(known)
    after = next((at for at, number in enumerate(numbers) if number > tasks), len(numbers) - 1)
    low, high = numbers[max(0, after - 1)], numbers[after]
    way = (tasks - low) / (high - low)
    grown = {
        name: value + (getattr(known[high], name) - value) * (min(way, 1.0) if "wait" in name else way)
        for name, value in asdict(known[low]).items()
    }  # fmt: skip
    return Costs(**grown)


def line(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the value at 0 and the slope of the line through two points."""
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return one[1] - slope * one[0], slope


Call = tuple[str, str | None, str, tuple[Any, ...]]
"""A call: class, key, method and arguments."""


@dataclass(frozen=True, slots=True)
class Work:
    """The calls that are measured.

    Attributes:
        spec: The application, as for `penstock run`.
        app: The same.
        loading: The calls that come first, and do not count.
        calls: The calls of the larger epoch, none of which fails.
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


@dataclass(frozen=True, slots=True)
class Measured:
    """The processor time of an epoch, in seconds.

    Attributes:
        records: Its records.
        driver_s: Of the driver.
        tasks_s: Of its tasks, together, with the records that run again.
        stores_s: Of all stores, for its changes.
    """

    records: int
    driver_s: float
    tasks_s: float
    stores_s: float


def measured(folder: Path, tasks: int, work: Work) -> tuple[Measured, Measured]:
    """Measure epochs of some tasks and of two sizes, the smaller one first."""
    # Without a bound of the time: calls that take long would become several epochs.
    config = Config(
        folder, cores=1, partitions=tasks, small_epoch=0, epoch_time_ms=0,
        epoch_records_max=max(len(work.calls), RECORDS),
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

        def advance(calls: Sequence[Call], run: str) -> float:
            entries = [
                Entry(RequestId(f"{run}-{number}"), *work.app.request(*call), 0)
                for number, call in enumerate(calls)
            ]
            log.append(entries)
            began = time.thread_time()
            driver.advance({ONLY_PARTITION: log.end()})
            return time.thread_time() - began

        def epoch(calls: Sequence[Call]) -> Measured:
            for run in ("warm", "warmer"):
                advance(calls, f"{run}{len(calls)}")
            reports.clear()
            jobs.spent_s.clear()
            whole_s = sum(advance(calls, f"run{len(calls)}-{number}") for number in range(EPOCHS))
            assert [report.records for report in reports] == [len(calls)] * EPOCHS
            assert {report.tasks for report in reports} == {tasks}, "no epoch was kept in one task"
            assert not sum(report.aborts for report in reports), "no call fails"
            tasks_s, stores_s = jobs.spent_s[RunTransactions], jobs.spent_s[ApplyEpoch]
            spent_s = [each / EPOCHS for each in (whole_s - tasks_s, tasks_s, stores_s)]
            return Measured(len(calls), *spent_s)

        advance(work.loading, "load")
        # The driver has seen conflicts while it filled the shop, and keeps epochs in one task for a while.
        for number in range(PROBE_EVERY + 1):
            advance(work.calls[number : number + 1], f"alone{number}")
        found = epoch(work.calls[: len(work.calls) // SMALLER]), epoch(work.calls)
        driver.close()
    return found


def calibrated(folder: Path, work: Work, tasks: int) -> Costs:
    """Return the costs of calls in epochs of so many tasks, without those of hosts; it waits for the driver alone."""

    def costs(name: str) -> tuple[float, float]:
        one, other = ((each.records, getattr(each, name)) for each in sizes)
        return line(one, other)

    sizes = measured(folder, tasks, work)
    return Costs(*costs("driver_s"), *costs("tasks_s"), *costs("stores_s"))


@functools.cache
def largest_share(count: int) -> float:
    """Return the share of the largest component of an epoch of checkouts: each has two of `KEYS` items, and one of as many users."""
    generator = np.random.default_rng(3)
    items, users = generator.integers(0, KEYS, (count, 2)), generator.integers(0, KEYS, (count, 1))
    entity = np.hstack([items, users + KEYS]).ravel().astype(np.uint64)
    position = np.repeat(np.arange(count, dtype=np.uint32), 3)
    labels = components(count, AccessSet(position, entity, np.ones(3 * count, np.bool_)))
    return float(np.bincount(labels).max() / count)


def curves(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rates of the model for each kind of load, on hosts with `CORES` cores."""
    checkout = Costs(**found["checkout"])
    hosts_costs = {kind: costs_of(found[kind]) for kind in ("calls", "http")}

    def points(kind: str, handler_s: float, records: Mapping[int, int]) -> list[dict[str, Any]]:
        made = []
        for hosts in HOSTS:
            # A checkout costs its task and the stores more than the call that was measured on a host; all else is the same.
            of_host = of_tasks(hosts_costs[kind], hosts * CORES)
            costs = replace(
                of_host,
                wait_record_s=checkout.wait_record_s,
                task_record_s=checkout.task_record_s + handler_s,
                host_record_s=checkout.host_record_s + found["follow_record_s"],
            )
            count = records[hosts]
            per_s, limit = costs.rate(hosts, CORES, count, largest_share(count))
            made.append({"hosts": hosts, "records": count, "per_s": round(per_s), "limit": limit})
        return made

    # The requests of half of the clients are in an epoch, those of the other half are on their way to the next one.
    crowd = {hosts: CONNECTIONS * hosts // 2 for hosts in HOSTS}
    return {
        "in bulk, epochs of 10,000": points("calls", 0.0, dict.fromkeys(HOSTS, 10_000)),
        "in bulk, epochs of 100,000": points("calls", 0.0, dict.fromkeys(HOSTS, 100_000)),
        f"over HTTP, {CONNECTIONS} clients for each host": points("http", 0.0, crowd),
        "with 1 ms more in each handler, epochs of 10,000": points(
            "calls", 1e-3, dict.fromkeys(HOSTS, 10_000)
        ),
    }


def costs_of(found: Mapping[str, Mapping[str, float]]) -> dict[int, Costs]:
    """Return costs from JSON, by the number of tasks."""
    return {int(tasks): Costs(**costs) for tasks, costs in found.items()}


def main() -> None:
    """Measure checkouts in this process, and draw the model for them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json",
        type=Path,
        default=DOCS / "scale.json",
        help="file of `scripts/cluster --parts scaling --json`, for the costs of hosts; costs of checkouts and curves are added",
    )
    parser.add_argument("--plot", type=Path, help="file for the plot")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.json.read_text())
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-scale-") as top:
        work = Work(SPEC, shop.app, list(loading()), checkouts())
        found["checkout"] = rounded(calibrated(Path(top) / "shop", work, TASKS))
        found["checkout_machine"] = machine(Path(top))
    publish(found, options.json)
    if options.plot:
        from benchmarks.scale_plot import draw  # noqa: PLC0415 -- the model needs no matplotlib

        draw(found, options.plot)
    sys.stdout.write(f"{json.dumps(found)}\n")


def publish(found: dict[str, Any], file: Path) -> None:
    """Write costs and figures to a file, with the curves that follow from them; that of the docs changes the page, too."""
    if "checkout" in found:
        found["curves"] = curves(found)
    if file.resolve() == (DOCS / "scale.json").resolve():
        update("scale", found)
    else:
        file.write_text(json.dumps(found, indent=2) + "\n")


def rounded(costs: Costs) -> dict[str, float]:
    """Return costs for JSON, to a hundredth of a microsecond."""
    return {name: round(value, 8) for name, value in asdict(costs).items()}


if __name__ == "__main__":
    main()
