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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import psutil

from benchmarks.harness.load import Load, Request
from benchmarks.machine import machine
from benchmarks.scale import CONNECTIONS, Call, Costs, Work, calibrated, line, rounded
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
SECONDS: Final = 8.0
"""The time of a run."""
IDLE_S: Final = 4.0
_TRIES: Final = 3
PROBE_S: Final = 1e-3
"""The processor time of a `Probe` at the best moment."""
SAMPLE_S: Final = 0.25
FIRST: Final = 2
"""The first epochs of a run have other sizes, and do not count."""
EPOCHS_LEAST: Final = 4
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
    records: int
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


class Scaling:
    """Measures the same work on more and more hosts.

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
        self._calls: dict[int, Costs] = {}
        self._http: dict[int, Costs] = {}
        self._handler_s = self._followed_s = self._request_s = 0.0
        self._runs = itertools.count()
        self._running = RunningApplication(
            hosts, apps=(SPEC,), hosts=1, cores=len(hosts.hosts) - 1, partitions=1, small_epoch=20,
            large_atom=EVENTS, epoch_time_ms=4_000,
        )  # fmt: skip
        self._running.await_tasks(1)
        self._append("create", KEYS)

    def run(self, _rounds: int) -> None:
        """Measure once, because hosts only join, and compare with the bounds and the model."""
        self._use(1)
        self._measure_rest()
        one, *others = HOSTS
        # Costs of one host and its figures are measured one after the other, because the machine changes.
        self._calibrate(one)
        rows = list(self._measured(one))
        for tasks in others:
            self._calibrate(tasks)
        rows += [row for count in others for row in self._measured(count)]
        first, last = HOSTS[0], HOSTS[-1]
        per_s = {(row["what"], row["hosts"]): row["per_s"] for row in rows}
        ratios = {kind: per_s[kind, last] / per_s[kind, first] for kind in RATIOS}
        for kind, bound in RATIOS.items():
            ratio = ratios[kind]
            self._report.at_least(f"{kind}: {last} hosts over one", ratio, bound)
        for row in rows:
            if "model" in row:
                what = f"{row['hosts']} hosts, {row['what']}: {row['per_s']:.0f}/s, the model {row['model']:.0f}/s"
                self._report.near(what, row["per_s"] / row["model"], MODEL_SHARE)
        self._running.stop()
        if self._file is not None:
            self._write(self._file, rows, ratios)

    def _write(self, file: Path, rows: list[dict[str, Any]], ratios: Mapping[str, float]) -> None:
        """Write costs and figures; the costs of checkouts, of `benchmarks.scale`, stay."""
        kept = json.loads(file.read_text()) if file.exists() else {}
        found = {
            **kept,
            "cores": CORES,
            "calls": {tasks: rounded(costs) for tasks, costs in self._calls.items()},
            "http": {tasks: rounded(costs) for tasks, costs in self._http.items()},
            "handler_s": round(self._handler_s, 8),
            "follow_record_s": round(self._followed_s, 8),
            "rows": rows,
            "ratios": {
                kind: {"measured": round(ratio, 2), "least": RATIOS[kind]}
                for kind, ratio in ratios.items()
            },
            "model_share": MODEL_SHARE,
            "machine": {**machine(self._lab.top), "load": round(psutil.getloadavg()[0], 1)},
        }
        file.write_text(json.dumps(found, indent=2) + "\n")

    def _measure_rest(self) -> None:
        """Measure what the processes of a host use at rest, once they have done some work."""
        self._warm(1)
        time.sleep(IDLE_S)  # until the connections of the clients and the last epochs are gone
        rest = self._costed("nothing", _rest)
        self._rest.update({kind: spent / rest.seconds for kind, spent in rest.spent_s.items()})

    def _calibrate(self, tasks: int) -> None:
        """Measure the costs of the model on one host, for as many tasks as there will be hosts."""
        if tasks > 1:
            self._running.order("rebalance", "--partitions", str(tasks))
        self._warm(1)
        small, large = (self._epochs(f"{tasks} tasks", count) for count in (SMALL, LARGE))
        here, idle = self._here[tasks], self._rest.total()
        calls = self._calls[tasks] = costs_of_calls(small, large, here, CORES, idle)
        self._report.note(f"{tasks} tasks, calls: {_shown(calls)}")
        crowd = self._over_http(1, CONNECTIONS)
        if tasks == 1:
            followed_s = self._followed_s = small.cost("gateway", large)[1]
            self._request_s = self._over_http(1, FEW).cost("gateway", crowd)[1] - followed_s
            self._handler_s = self._cost_of_handler(calls)
        self._http[tasks] = costs_of_http(calls, small, large, crowd, self._request_s, here)
        self._report.note(f"{tasks} tasks, HTTP: {_shown(self._http[tasks])}")

    def _cost_of_handler(self, calls: Costs) -> float:
        """Measure the processor time of a handler of 1 ms on a host, which has caches and a core for a part of the time."""
        self._append("add", HEAVY, self._rounds)  # the driver learns how long such calls take
        heavy = self._epochs("1 task, 1 ms", HEAVY, self._rounds)
        busy_s = sum(heavy.spent_s.values()) - heavy.epochs * (calls.tasks_s + calls.host_s)
        handler_s = busy_s / heavy.records - calls.task_record_s - calls.host_record_s
        self._report.note(f"a handler of 1 ms: {handler_s * 1e3:.3f} ms on a host")
        return handler_s

    def _measured(self, count: int) -> Iterator[dict[str, Any]]:
        """Measure each kind of work on so many hosts, and yield its figures and those of the model."""
        self._use(count)
        self._warm(count)
        yield self._row(HTTP, count, self._over_http(count, CONNECTIONS), self._http[count])
        calls = self._calls[count]
        costs = replace(calls, task_record_s=calls.task_record_s + self._handler_s)
        heavy = self._epochs(f"{count} hosts, 1 ms", HEAVY * count, self._rounds)
        yield self._row(HANDLERS, count, heavy, costs)
        atoms = max(1, round(CORES * count * self._seconds * 5 / 2))
        self._append("append", max(1, atoms // 4), self._rounds // 5)
        per_s = self._append("append", atoms, self._rounds // 5)
        self._report.note(f"{count} hosts, {ATOMS}: {per_s:.0f}/s")
        yield {"what": ATOMS, "hosts": count, "per_s": round(per_s, 1)}

    def _row(self, what: str, hosts: int, done: Done, costs: Costs) -> dict[str, Any]:
        """Return the figures of a kind of work, and that of the model for epochs of the same size."""
        load = round(psutil.getloadavg()[0], 1)
        model, limit = costs.rate(hosts, CORES * done.speed, done.epoch_records)
        self._report.note(
            f"{hosts} hosts, {what}: {done.per_s:.0f}/s; the model {model:.0f}/s, most time: {limit}; "
            f"speed {done.speed:.2f}   load {load}"
        )
        return {
            "what": what, "hosts": hosts, "per_s": round(done.per_s, 1), "model": round(model, 1),
            "records": round(done.epoch_records), "limit": limit, "speed": round(done.speed, 3),
            "load": load,
        }  # fmt: skip

    def _use(self, count: int) -> None:
        """Let so many hosts work, each of them bounded."""
        joined = self._running.tasks
        for number in range(joined + 1, count + 1):
            self._lab.start_worker(number)
            self._running.await_tasks(1)
        for number in range(joined, count + 1):
            if number:
                self._serve(self._lab.hosts[number])
        if count > 1:
            self._running.order("rebalance", "--partitions", str(count))
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
        hosts = [host for host in self._lab.hosts[1:] if host.is_limited]
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
