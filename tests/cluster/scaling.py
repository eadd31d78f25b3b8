"""Hosts of a fifth of a core: how much 1, 2 and 4 of them do, beside the model of `benchmarks.scale`.

A cgroup bounds all processes of a host, from when they have started. The driver, the object store, the broker and the clients have the rest
of the machine. `scripts/cluster --parts scaling` runs it.

The costs of the model are measured on one host, with as many tasks as hosts are compared. Two loads differ in the records of an
epoch, so the processor time of each kind of process gives a cost for an epoch and one for a record; and so do two numbers of clients
for a gateway. What the processes of a host use at rest is measured first, and is part of no other cost. An epoch waits for as
long as it takes longer than its processor time. Of the processor time of tasks, the share of the stores is that in this process.

A second of a processor does more or less work: its other half, other guests of the machine and its clock differ from moment to
moment. So a fixed piece of work is measured again and again (`Probe`), beside everything else, and all processor time is in seconds of
the best moment at the start. The model is asked for hosts with as many of those as they had.

It also changes from minute to minute, so nothing is measured in one long run: hosts join and leave again, and each cost and each figure is
measured for a few seconds in every round. The model has the medians of the costs. A figure is compared with it in each of its runs, at the
speed of that run, and the median of these ratios is told; so is that of the ratios of hosts in one round.

Run as a program on a host, it appends requests, waits until they are committed, and prints what was done:

    python -m tests.cluster.scaling append DIRECTORY KIND RUN COUNT ROUNDS
    python -m tests.cluster.scaling epochs DIRECTORY KIND RUN RECORDS ROUNDS SECONDS
    python -m tests.cluster.scaling between DIRECTORY BEGIN_US END_US

`append` prints the requests, or events, of a second. `epochs` keeps twice so many records in the log, so that one half waits while the
other half is an epoch. It prints the time from one epoch to the next one, and their records; `between` prints the same of former epochs.
"""

import hashlib
import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import psutil

from benchmarks.harness.load import Load, Request
from benchmarks.machine import machine
from benchmarks.scale import CONNECTIONS, Call, Costs, Work, calibrated, line, publish, rounded
from penstock.base.ids import ONLY_PARTITION, Epoch, RequestId
from penstock.journal.api import Commit
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.cluster.lab import Host, Lab
from tests.cluster.running import PORT, START_S, RunningApplication
from tests.cluster.scaling_app import app
from tests.kafka_hosts import ONE_MACHINE
from tests.waiting import wait_for

if TYPE_CHECKING:
    from tests.cluster.campaign import Report

SPEC: Final = str(Path(__file__).with_name("scaling_app.py"))
CORES: Final = 0.2
HOSTS: Final = (1, 2, 4)
KEYS: Final = 20_000
"""Counters, which are called in turn: no call waits for another one."""
EVENTS: Final = 1_000
"""The events of an atom."""
SMALL, LARGE = 40, 4_000
"""The records of the epochs from which the costs are measured; more than `small_epoch`."""
HEAVY: Final = 200
"""The records of an epoch of calls of 1 ms, for each host."""
FEW: Final = CONNECTIONS // 5
"""Of the two numbers of clients from which the costs of HTTP are measured, the smaller one."""
SECONDS: Final = 5.0
"""The time of a run."""
ROUNDS: Final = 3
IDLE_S: Final = 4.0
_TRIES: Final = 3
PROBE_S: Final = 1e-3
"""The processor time of a `Probe` at the best moment."""
SAMPLE_S: Final = 0.25
FIRST: Final = 2
"""The first epochs of a run have other sizes, and do not count."""
EPOCHS_LEAST: Final = 3
BEGIN_S: Final = 0.03
"""After so long, a driver that has waited for records has begun an epoch."""
RECENT: Final = 1_000
"""No run has more epochs."""
WARM_SHARE: Final = 0.25
"""The part of a run over HTTP that does not count: all clients send their first requests at once."""

HTTP, HANDLERS, ATOMS = "HTTP", "handlers of 1 ms", "events of 0.2 ms in large atoms"
RATIOS: Final = {HTTP: 2.8, HANDLERS: 3.4, ATOMS: 2.5}
"""What four hosts do at least, in times of one host."""

MODEL_SHARE: Final = 0.15
"""How far a figure may be from the model."""


def rounds_of(milliseconds: float) -> int:
    """Return the rounds of `work` that take so long."""
    count = 20_000
    taken = []
    for _ in range(5):
        began = time.thread_time()
        hashlib.pbkdf2_hmac("sha256", b"", b"", count)
        taken.append(time.thread_time() - began)
    return round(count * milliseconds / 1e3 / min(taken))


def costs_here(tasks: int) -> Costs:
    """Return the costs of calls that do nothing, measured in this process."""
    creations: list[Call] = [("Counter", str(number), "create", ()) for number in range(LARGE)]
    calls: list[Call] = [("Counter", str(number), "add", (0,)) for number in range(LARGE)]
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        return calibrated(Path(folder) / "data", Work(SPEC, app, creations, calls), tasks)


class Window(NamedTuple):
    """Some epochs.

    Attributes:
        begin_us: The commit before the first one, in microseconds since the Unix epoch.
        end_us: The commit of the last one.
        epochs: Their number.
        records: Their records.
    """

    begin_us: int
    end_us: int
    epochs: int
    records: int


@dataclass(frozen=True, slots=True)
class Done:
    """Epochs that are alike, one after the other.

    Attributes:
        seconds: Their time.
        epochs: Their number.
        records: Their records.
        spent_s: The processor time of one host meanwhile, by the kinds of its processes, in seconds of the best moment and
            without what they use at rest.
        speed: The work of a processor meanwhile, as a share of that at the best moment.
    """

    seconds: float
    epochs: int
    records: float
    spent_s: Mapping[str, float]
    speed: float = 1.0

    @property
    def per_s(self) -> float:
        """The records of a second."""
        return self.records / self.seconds

    @property
    def epoch_s(self) -> float:
        """The time of an epoch."""
        return self.seconds / self.epochs

    @property
    def epoch_records(self) -> float:
        """The records of an epoch."""
        return self.records / self.epochs

    def cost(self, kind: str, other: "Done") -> tuple[float, float]:
        """Return the processor time of a kind of processes for an epoch, and for a record, from this run and another one."""
        sizes = [
            (each.epoch_records, each.spent_s.get(kind, 0.0) / each.epochs)
            for each in (self, other)
        ]
        return line(*sizes)


def typical(runs: Sequence[Done]) -> Done:
    """Return the epoch of some runs of the same work: each of its figures is the median of theirs."""
    kinds = {kind for run in runs for kind in run.spent_s}
    return Done(
        seconds=_median(run.epoch_s for run in runs),
        epochs=1,
        records=_median(run.epoch_records for run in runs),
        spent_s={kind: _median(run.spent_s.get(kind, 0.0) / run.epochs for run in runs) for kind in kinds},
        speed=_median(run.speed for run in runs),
    )  # fmt: skip


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def costs_of_calls(small: Done, large: Done, here: Costs, cores: float, idle: float = 0.0) -> Costs:
    """Return the costs of calls from two runs on one host.

    Args:
        here: The costs in a process of its own, whose tasks and stores are measured apart.
        idle: The cores that the host uses at rest.
    """
    of_tasks, per_call = small.cost("tasks", large)
    others = [small.cost(kind, large) for kind in {*small.spent_s, *large.spent_s} if kind != "tasks"]  # fmt: skip
    epoch_share = here.tasks_s / (here.tasks_s + here.host_s)
    call_share = here.task_record_s / (here.task_record_s + here.host_record_s)
    costs = Costs(
        wait_s=0.0,
        wait_record_s=0.0,
        tasks_s=of_tasks * epoch_share,
        task_record_s=per_call * call_share,
        host_s=of_tasks * (1 - epoch_share) + sum(epoch for epoch, _ in others),
        host_record_s=per_call * (1 - call_share) + sum(record for _, record in others),
        idle=idle,
    )
    waits = [
        (run.epoch_records, run.epoch_s - costs.epoch_s(1, cores * run.speed, run.epoch_records))
        for run in (small, large)
    ]
    wait_s, wait_record_s = line(*waits)
    return replace(costs, wait_s=wait_s, wait_record_s=wait_record_s)


def costs_of_http(
    calls: Costs, small: Done, large: Done, crowd: Done, request_s: float, here: Costs
) -> Costs:
    """Return the costs of calls over HTTP, whose epochs cost more: a gateway looks for replies.

    Args:
        calls: The costs of other calls, from the runs `small` and `large`.
        crowd: A run over HTTP on one host.
        request_s: A gateway for a request.
    """

    def of_epoch(kind: str) -> float:
        record_s = small.cost(kind, large)[1] + (request_s if kind == "gateway" else 0.0)
        return crowd.spent_s.get(kind, 0.0) / crowd.epochs - record_s * crowd.epoch_records

    share = here.tasks_s / (here.tasks_s + here.host_s)
    others = sum(of_epoch(kind) for kind in crowd.spent_s if kind != "tasks")
    return replace(
        calls,
        tasks_s=of_epoch("tasks") * share,
        host_s=of_epoch("tasks") * (1 - share) + others,
        request_s=request_s,
    )


class AllCosts(NamedTuple):
    """The costs of the model.

    Attributes:
        calls: Those of calls, by the number of tasks.
        http: Those of calls over HTTP, by the number of tasks.
        handler_s: A handler of 1 ms on a host, in seconds of a processor.
        followed_s: The gateway of a host for a record of any host.
    """

    calls: dict[int, Costs]
    http: dict[int, Costs]
    handler_s: float
    followed_s: float

    def of(self, what: str, hosts: int) -> Costs:
        """Return the costs of a kind of work on so many hosts."""
        costs = self.http[hosts] if what == HTTP else self.calls[hosts]
        more_s = self.handler_s if what == HANDLERS else 0.0
        return replace(costs, task_record_s=costs.task_record_s + more_s)


class Figure(NamedTuple):
    """A figure of one run, beside the model.

    Attributes:
        per_s: The records of a second.
        ratio: How much that is of the model's, at the speed of this run.
        limit: What takes most of an epoch in the model.
    """

    per_s: float
    ratio: float
    limit: str


def compared(run: Done, hosts: int, costs: Costs) -> Figure:
    """Return the figure of a run on some hosts, beside the model for epochs of the same size."""
    model, limit = costs.rate(hosts, CORES * run.speed, run.epoch_records)
    return Figure(run.per_s, run.per_s / model, limit)


class Scaling:
    """Measures the same work on more and fewer hosts, again and again.

    Args:
        seconds: The time of a run.
        found: A file for costs, figures and the model; None writes none.
    """

    def __init__(
        self, hosts: Lab, report: "Report", seconds: float = SECONDS, found: Path | None = None
    ) -> None:
        self._lab = hosts
        self._report = report
        self._seconds = seconds
        self._file = found
        self._rounds = rounds_of(1.0)
        self._probe = Probe(self._rounds)
        self._rest: Counter[str] = Counter()
        self._here = {tasks: costs_here(tasks) for tasks in HOSTS}
        # The runs of one host from which the costs are measured, by their names and numbers of tasks, and those that are compared.
        self._costly: defaultdict[tuple[str, int], list[Done]] = defaultdict(list)
        self._figures: defaultdict[tuple[str, int], list[Done]] = defaultdict(list)
        self._ratios: defaultdict[str, list[float]] = defaultdict(list)
        self._loads: list[float] = []
        self._used = 1
        self._runs = itertools.count()
        self._running = RunningApplication(
            hosts, apps=(SPEC,), hosts=1, cores=len(hosts.hosts) - 1, partitions=1, small_epoch=20,
            large_atom=EVENTS, epoch_time_ms=4_000,
        )  # fmt: skip
        self._running.await_tasks(1)
        self._append("create", KEYS)

    def run(self, rounds: int) -> None:
        """Measure, and compare with the bounds and the model. One round is from one host to all and back."""
        self._use(1)
        self._warm(1)
        self._measure_rest()
        for number in range(rounds):
            self._report.note(f"round {number + 1} of {rounds}")
            for tasks in HOSTS:
                self._calibrate(tasks)
            for count in HOSTS:
                self._use(count)
                self._measure(count)
                self._measure_events(count)
            self._note_ratios()
            for count in reversed(HOSTS[1:-1]):
                self._use(count)
                self._measure(count)
            self._use(HOSTS[0])
        self._running.stop()
        self._tell()

    def _measure_rest(self) -> None:
        """Measure what the processes of a host use at rest, once they have done some work."""
        time.sleep(IDLE_S)  # until the connections of the clients and the last epochs are gone
        rest = self._costed("nothing", _rest)
        self._rest.update({kind: spent / rest.seconds for kind, spent in rest.spent_s.items()})

    def _calibrate(self, tasks: int) -> None:
        """Measure what costs so many tasks on one host, as many as there will be hosts."""
        self._divide(tasks)
        self._append("add", 1_000)
        for name, count in (("small", SMALL), ("large", LARGE)):
            self._costly[name, tasks].append(self._epochs(f"{tasks} tasks", count))
        self._costly["crowd", tasks].append(self._over_http(1, CONNECTIONS))
        if tasks == 1:
            self._costly["few", tasks].append(self._over_http(1, FEW))
            self._append("add", HEAVY, self._rounds)  # the driver learns how long such calls take
            self._costly["heavy", tasks].append(self._epochs("1 task, 1 ms", HEAVY, self._rounds))

    def _measure(self, count: int) -> None:
        """Measure each kind of work on so many hosts."""
        self._figures[HTTP, count].append(self._over_http(count, CONNECTIONS))
        what = f"{count} hosts, 1 ms"
        heavy = self._epochs(what, HEAVY * count, self._rounds)
        self._figures[HANDLERS, count].append(heavy)
        self._loads.append(round(psutil.getloadavg()[0], 1))

    def _measure_events(self, count: int) -> None:
        """Measure large atoms on so many hosts, which the model does not know."""
        atoms = max(1, round(CORES * count * self._seconds * 5 / 2))
        self._append("append", max(1, atoms // 4), self._rounds // 5)
        began_us = time.time_ns() // 1_000
        with sampled([], self._probe) as samples:
            per_s = self._append("append", atoms, self._rounds // 5)
        window = Window(began_us, time.time_ns() // 1_000, 1, atoms)
        done = Done(1.0, 1, per_s, {}, speed_between(samples, window))
        self._figures[ATOMS, count].append(done)
        self._report.note(f"  {count} hosts, {ATOMS}: {per_s:.0f}/s")

    def _note_ratios(self) -> None:
        """Note how much more all hosts have just done than one, at the same speed."""
        for kind in RATIOS:
            first, last = (self._figures[kind, count][-1] for count in (HOSTS[0], HOSTS[-1]))
            self._ratios[kind].append(last.per_s / last.speed / (first.per_s / first.speed))

    def _tell(self) -> None:
        """Compare what was measured with the bounds and the model, and write it."""
        costs = self._costs()
        rows: list[dict[str, Any]] = []
        for (what, count), runs in sorted(self._figures.items(), key=lambda each: each[0][1]):
            per_s = round(_median(run.per_s for run in runs), 1)
            beside = {} if what == ATOMS else self._beside_model(runs, count, costs.of(what, count))
            rows.append({"what": what, "hosts": count, "per_s": per_s, **beside})
        ratios = {kind: _median(self._ratios[kind]) for kind in RATIOS}
        for kind, bound in RATIOS.items():
            self._report.at_least(f"{kind}: {HOSTS[-1]} hosts over one", ratios[kind], bound)
        for row in rows:
            if "ratio" in row:
                what = f"{row['hosts']} hosts, {row['what']}: {row['per_s']:.0f}/s, the model {row['model']:.0f}/s"
                self._report.near(what, row["ratio"], MODEL_SHARE)
        if self._file is not None:
            self._write(self._file, costs, rows, ratios)

    def _beside_model(self, runs: Sequence[Done], hosts: int, costs: Costs) -> dict[str, Any]:
        """Return the median of the ratios of runs to the model, and the model where the median of the runs is."""
        figures = [compared(run, hosts, costs) for run in runs]
        ratio = _median(figure.ratio for figure in figures)
        self._report.note(
            f"{hosts} hosts: of the model in each run "
            + ", ".join(f"{figure.ratio:.2f} (speed {run.speed:.2f})" for figure, run in zip(figures, runs, strict=True))
        )  # fmt: skip
        return {
            "model": round(_median(run.per_s for run in runs) / ratio, 1),
            "ratio": round(ratio, 3),
            "ratios": [round(figure.ratio, 3) for figure in figures],
            "records": round(_median(run.epoch_records for run in runs)),
            "limit": Counter(figure.limit for figure in figures).most_common(1)[0][0],
            "speed": [round(run.speed, 3) for run in runs],
        }

    def _costs(self) -> AllCosts:
        """Return the costs that follow from the medians of all runs."""
        runs = {key: typical(each) for key, each in self._costly.items()}
        idle = self._rest.total()
        calls: dict[int, Costs] = {}
        http: dict[int, Costs] = {}
        followed_s = runs["small", 1].cost("gateway", runs["large", 1])[1]
        request_s = runs["few", 1].cost("gateway", runs["crowd", 1])[1] - followed_s
        for tasks in HOSTS:
            small, large, crowd = (runs[name, tasks] for name in ("small", "large", "crowd"))
            here = self._here[tasks]
            calls[tasks] = costs_of_calls(small, large, here, CORES, idle)
            http[tasks] = costs_of_http(calls[tasks], small, large, crowd, request_s, here)
            for kind, costs in (("calls", calls), ("HTTP", http)):
                self._report.note(f"{tasks} tasks, {kind}: {_shown(costs[tasks])}")
        # A host has caches, and a core for a part of the time.
        heavy, one = runs["heavy", 1], calls[1]
        busy_s = sum(heavy.spent_s.values()) - heavy.epochs * (one.tasks_s + one.host_s)
        handler_s = busy_s / heavy.records - one.task_record_s - one.host_record_s
        self._report.note(f"a handler of 1 ms: {handler_s * 1e3:.3f} ms on a host")
        return AllCosts(calls, http, handler_s, followed_s)

    def _write(
        self,
        file: Path,
        costs: AllCosts,
        rows: list[dict[str, Any]],
        ratios: Mapping[str, float],
    ) -> None:
        """Write costs and figures; the costs of checkouts, of `benchmarks.scale`, stay."""
        kept = json.loads(file.read_text()) if file.exists() else {}
        found = {
            **kept,
            "cores": CORES,
            "calls": {str(tasks): rounded(each) for tasks, each in costs.calls.items()},
            "http": {str(tasks): rounded(each) for tasks, each in costs.http.items()},
            "handler_s": round(costs.handler_s, 8),
            "follow_record_s": round(costs.followed_s, 8),
            "rows": rows,
            "ratios": {
                kind: {
                    "measured": round(ratio, 2),
                    "rounds": [round(each, 2) for each in self._ratios[kind]],
                    "least": RATIOS[kind],
                }
                for kind, ratio in ratios.items()
            },
            "rounds": len(self._ratios[HTTP]),
            "seconds": self._seconds,
            "model_share": MODEL_SHARE,
            "loads": [min(self._loads), max(self._loads)],
            "machine": machine(self._lab.top),
        }
        publish(found, file)

    def _divide(self, partitions: int) -> None:
        """Let so many tasks run the work of large epochs."""
        self._running.order("rebalance", "--partitions", str(partitions))

    def _use(self, count: int) -> None:
        """Let so many hosts work, each of them bounded: some join, or leave."""
        for host in self._lab.hosts[count + 1 : self._used + 1]:
            host.leave()
        for host in self._lab.hosts[count + 1 : self._used + 1]:
            wait_for(lambda: not host.executors(), "the end of the executors", START_S)  # noqa: B023
        joining = range(self._used + 1, count + 1)
        since = len(self._running.output())
        for number in joining:
            self._lab.start_worker(number)
        for number in joining:
            self._serve(self._lab.hosts[number])
        self._running.await_hosts([self._lab.hosts[number] for number in joining], since)
        if count == 1:
            self._serve(self._lab.hosts[1])
        self._used = count
        self._divide(count)
        self._append("add", 200 * count)  # every task has loaded the application
        for host in self._lab.hosts[1 : count + 1]:
            host.limit(CORES)

    def _warm(self, count: int) -> None:
        """Let all processes do the work that they will do."""
        self._append("add", 1_000 * count)
        self._call(count, CONNECTIONS, self._seconds / 2)

    def _serve(self, host: Host) -> None:
        """Start a gateway on a host."""
        if (host.root / "gateway.log").exists():
            return
        settings = self._lab.settings()[2:]  # without the master
        command = [
            sys.executable,
            "-m",
            "penstock",
            "gateway",
            SPEC,
            "--port",
            str(PORT),
            *settings,
        ]
        output = host.root / "gateway.log"
        host.start(command, output)
        wait_for(lambda: _answers(host), "a gateway", START_S)

    def _epochs(self, what: str, records: int, rounds: int = 0) -> Done:
        """Let one epoch after another have so many records."""
        words = ["epochs", "add", self._run(), str(records), str(rounds), str(self._seconds)]
        return self._costed(
            f"{what}, epochs of {records}", lambda: Window(*json.loads(self._ran(*words)))
        )

    def _over_http(self, count: int, clients: int) -> Done:
        """Let clients call counters over the gateways of all hosts, so many for each host."""

        def work() -> Window:
            began_us = time.time_ns() // 1_000
            self._call(count, clients, self._seconds)
            # At first all clients send their requests at once, and at the end fewer and fewer wait.
            window_us = [
                began_us + round(share * self._seconds * 1e6) for share in (WARM_SHARE, 1.0)
            ]
            return Window(*json.loads(self._ran("between", *map(str, window_us))))

        return self._costed(f"{count} hosts, {clients} clients for each", work)

    def _costed(self, what: str, work: Callable[[], Window]) -> Done:
        """Do work, and return its epochs, with the processor time of the hosts meanwhile; print both."""
        hosts = self._lab.hosts[1 : self._used + 1]
        with sampled(hosts, self._probe) as samples:
            window = work()
        seconds = (window.end_us - window.begin_us) / 1e6
        used_s, speed = spent_between(samples, window), speed_between(samples, window)
        spent_s = {kind: used * speed - self._rest[kind] * seconds for kind, used in used_s.items()}
        done = Done(seconds, window.epochs, window.records, spent_s, speed)
        parts = ", ".join(f"{kind} {used / seconds:.3f}" for kind, used in used_s.items())
        self._report.note(
            f"  {what}: {done.epochs} epochs of {done.epoch_records:.0f} in {done.epoch_s:.3f} s each; "
            f"cores of a host: {parts}; speed {speed:.2f}   load {psutil.getloadavg()[0]:.1f}"
        )
        return done

    def _append(self, kind: str, count: int, rounds: int = 0) -> float:
        """Append requests from the driver's host, and return how many of them were committed in a second."""
        return float(self._ran("append", kind, self._run(), str(count), str(rounds)))

    def _run(self) -> str:
        """Return a name that the requests of no other run have."""
        return str(next(self._runs))

    def _ran(self, what: str, *words: str) -> str:
        """Run this module on the driver's host, and return its last line."""
        host, output = self._lab.hosts[0], self._lab.top / "appended.log"
        output.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.cluster.scaling", what, str(host.root), *words]
        assert host.start(command, output).wait(600) == 0, output.read_text()
        return output.read_text().splitlines()[-1]

    def _call(self, count: int, clients: int, seconds: float) -> None:
        """Call counters over the gateways of all hosts."""
        run = self._run()
        hosts = self._lab.hosts[1 : count + 1]

        def call(host: Host) -> None:
            part = range(hosts.index(host), KEYS, count)
            requests = (
                Request(
                    "POST",
                    f"/call/Counter/{number}/add",
                    b'{"rounds": 0}',
                    f"{run}-{turn}-{number}",
                )
                for turn in itertools.count()
                for number in part
            )
            load = Load("127.0.0.1", PORT, clients, timeout_s=60)
            answers = host.within(lambda: load.run(requests, seconds))
            assert {answer.status for answer in answers} == {200}, answers[0]

        with ThreadPoolExecutor(count) as threads:
            list(threads.map(call, hosts))


def _shown(costs: Costs) -> str:
    """Return costs as text: of an epoch in milliseconds, of a record in microseconds."""
    return ", ".join(
        f"{name[:-2]} {value * 1e6:.0f} µs" if "re" in name else f"{name[:-2]} {value * 1e3:.0f} ms"
        for name, value in asdict(costs).items()
        if name != "idle"
    )


_ROLES: Final = ("gateway", "driver", "view")


def kind_of(process: psutil.Process) -> str:
    """Return the kind of a process of a host; it is `tasks` for all that belong to no other kind."""
    words = process.cmdline()
    if "java" in "".join(words[:1]):
        return "Java"
    return next((role for role in _ROLES if role in words), "tasks")


def spent_s(host: Host) -> Counter[str]:
    """Return the processor time of the processes of a host, by their kinds."""
    spent: Counter[str] = Counter()
    for process in host.processes():
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent[kind_of(process)] += times.user + times.system
    return spent


class Probe:
    """A fixed piece of work, whose processor time says how much a processor does just now.

    Args:
        rounds: The rounds of `work` that take `PROBE_S` at the best moment.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def taken_s(self) -> float:
        """Do it, and return its processor time: the shortest of a few, because the first one finds cold caches."""
        taken = []
        for _ in range(_TRIES):
            began = time.thread_time()
            hashlib.pbkdf2_hmac("sha256", b"", b"", self._rounds)
            taken.append(time.thread_time() - began)
        return min(taken)


class Sample(NamedTuple):
    """What was seen at a time.

    Attributes:
        time_us: The time, in microseconds since the Unix epoch.
        spent_s: The processor time until then, by kinds of processes.
        probe_s: That of a `Probe`.
    """

    time_us: int
    spent_s: Counter[str]
    probe_s: float


@contextmanager
def sampled(hosts: Sequence[Host], probe: Probe) -> Iterator[list[Sample]]:
    """Give the mean processor time of the processes of limited hosts, again and again while the block runs."""
    known: dict[int, tuple[psutil.Process, str]] = {}
    samples: list[Sample] = []
    ended = threading.Event()

    def sample() -> None:
        total: Counter[str] = Counter()
        for pid in [pid for host in hosts for pid in host.limited()]:
            with suppress(psutil.Error):
                if pid not in known:
                    known[pid] = (process := psutil.Process(pid)), kind_of(process)
                process, kind = known[pid]
                times = process.cpu_times()
                total[kind] += (times.user + times.system) / len(hosts)
        samples.append(Sample(time.time_ns() // 1_000, total, probe.taken_s()))

    def run() -> None:
        while not ended.wait(SAMPLE_S):
            sample()

    sample()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
        sample()


def spent_between(samples: Sequence[Sample], window: Window) -> dict[str, float]:
    """Return the processor time in a window, by kinds of processes."""
    at = [sample.time_us for sample in samples]
    spent = {}
    for kind in dict.fromkeys(kind for sample in samples for kind in sample.spent_s):
        used = [sample.spent_s[kind] for sample in samples]
        begin, end = np.interp([window.begin_us, window.end_us], at, used)
        spent[kind] = float(end - begin)
    return spent


def speed_between(samples: Sequence[Sample], window: Window) -> float:
    """Return the work of a processor in a window, as a share of that at the best moment."""
    within = [
        sample.probe_s for sample in samples if window.begin_us <= sample.time_us <= window.end_us
    ]
    return PROBE_S / statistics.median(within)


def _rest() -> Window:
    began_us = time.time_ns() // 1_000
    time.sleep(IDLE_S)
    return Window(began_us, time.time_ns() // 1_000, 1, 0)


def _answers(host: Host) -> bool:
    answers = host.within(
        lambda: Load("127.0.0.1", PORT, 1, timeout_s=1).run(iter([Request("GET", "/healthz")]))
    )
    return [answer.status for answer in answers] == [200]


def entries_of(kind: str, run: str, rounds: int) -> Iterator[Entry]:
    """Yield what is appended, without an end."""
    for number in itertools.count():
        body: Sequence[bytes]
        if kind == "append":
            body = app.append("events", [(str(event), rounds) for event in range(EVENTS)]), b""
        else:
            arguments = () if kind == "create" else (rounds,)
            body = app.request("Counter", str(number % KEYS), kind, arguments)
        yield Entry(RequestId(f"{run}-{number}"), *body, 0)


def appended(data: Path, kind: str, run: str, count: int, rounds: int) -> float:
    """Append requests, wait until they are committed, and return how many of them, or of their events, a second had."""
    directory, config = DataDirectory(data), Config(data, kafka=ONE_MACHINE)
    with (
        closing(directory.open_journal(app)) as journal,
        closing(directory.open_log(config)) as log,
    ):
        entries = list(itertools.islice(entries_of(kind, run, rounds), count))
        began = time.monotonic()
        for first in range(0, len(entries), 1_000):
            log.append(entries[first : first + 1_000])
        end = log.end()
        while (last := journal.last()) is None or last.positions[ONLY_PARTITION] < end:
            time.sleep(0.02)
        return count * (EVENTS if kind == "append" else 1) / (time.monotonic() - began)


def alike(data: Path, kind: str, run: str, records: int, rounds: int, seconds: float) -> Window:
    """Let one epoch after another have so many records, and return those that are alike.

    As many records wait as an epoch has, so no epoch waits for this process.
    """
    directory, config = DataDirectory(data), Config(data, kafka=ONE_MACHINE)
    with (
        closing(directory.open_journal(app)) as journal,
        closing(directory.open_log(config)) as log,
    ):
        last = journal.last()
        assert last is not None, "the counters exist"
        commits: list[Commit] = [last]
        entries = entries_of(kind, run, rounds)

        def append(count: int) -> None:
            log.append(list(itertools.islice(entries, count)))

        append(records)
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(commits) <= FIRST + EPOCHS_LEAST:
            commit = journal.wait(commits[-1].epoch, 60_000)
            assert commit is not None, "an epoch takes less than a minute"
            commits.append(commit)
            append(records)
            if _end(commit) == log.end() - records:
                # The epoch has had all. The next one begins with this half, and then the other half waits.
                time.sleep(BEGIN_S)
                append(records)
        while _end(commits[-1]) < log.end():
            commit = journal.wait(commits[-1].epoch, 60_000)
            assert commit is not None
            commits.append(commit)
        return _window(commits[FIRST:-2])  # while the last two ran, fewer waited


def between(data: Path, begin_us: int, end_us: int) -> Window:
    """Return the epochs of some time."""
    with closing(DataDirectory(data).open_journal(app)) as journal:
        last = journal.last()
        assert last is not None, "the counters exist"
        recent = journal.commits(Epoch(max(-1, last.epoch - RECENT)), last.epoch)
        return _window([each for each in recent if begin_us <= each.time_us <= end_us])


def _window(commits: Sequence[Commit]) -> Window:
    assert len(commits) > 1, "a run has several epochs; give it more --seconds"
    first, last = commits[0], commits[-1]
    return Window(first.time_us, last.time_us, last.epoch - first.epoch, _end(last) - _end(first))


def _end(commit: Commit) -> int:
    return commit.positions[ONLY_PARTITION]


def main(what: str, folder: str, *words: str) -> None:
    """Do the work of the command line, and print its figures."""
    data = Path(folder)
    told: float | Window
    if what == "between":
        told = between(data, *map(int, words))
    elif what == "append":
        kind, run, count, rounds = words
        told = appended(data, kind, run, int(count), int(rounds))
    else:
        kind, run, count, rounds, seconds = words
        told = alike(data, kind, run, int(count), int(rounds), float(seconds))
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
