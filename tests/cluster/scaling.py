"""Hosts of a fifth of a core: how much 1, 2 and 4 of them do, beside the model of `benchmarks.scale`.

A cgroup bounds all processes of a host, from when they have started. The driver, the object store, the broker and the clients have the rest
of the machine. `scripts/cluster --parts scaling` runs it. Run as a program on a host, it appends requests and waits until they are committed:

    python -m tests.cluster.scaling DIRECTORY KIND RUN COUNT ROUNDS

prints the requests, or events, of each second between the first and the last commit.
"""

import hashlib
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from benchmarks.harness.load import Load, Request
from benchmarks.scale import Call, Costs, Work, calibrated, rate
from penstock.base.ids import ONLY_PARTITION, RequestId
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
"""Counters, of which each run calls every one at most once: no call waits for another one."""
EVENTS: Final = 1_000
"""The events of an atom."""
SECONDS: Final = 6.0
"""How long a run takes about."""
HTTP_S: Final = 8.0
IDLE_S: Final = 5.0
CONNECTIONS: Final = 500
"""For each host."""
GATEWAY_US: Final = 83.0
"""The processor time of a request in a gateway, by `penstock bench http`."""

RATIOS: Final = {"HTTP": 2.8, "handlers of 1 ms": 3.4, "events of 0.2 ms in large atoms": 2.5}
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


def costs_of(rounds: int) -> Costs:
    """Return the costs of a call for the model, measured in this process."""
    creations: list[Call] = [("Counter", str(number), "create", ()) for number in range(2_000)]
    calls: list[Call] = [("Counter", str(number), "add", (rounds,)) for number in range(2_000)]
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        return calibrated(Path(folder), Work(SPEC, app, creations, calls))


class Scaling:
    """Measures the same work on more and more hosts."""

    def __init__(self, hosts: Lab, report: "Report") -> None:
        self._lab = hosts
        self._report = report
        self._rounds = rounds_of(1.0)
        self._light, self._heavy = costs_of(0), costs_of(self._rounds)
        self._light["g"] = GATEWAY_US
        self._runs = itertools.count()
        self._running = RunningApplication(
            hosts, apps=(SPEC,), hosts=1, cores=len(hosts.hosts) - 1, partitions=1, small_epoch=20,
            large_atom=EVENTS, epoch_time_ms=4_000,
        )  # fmt: skip
        self._running.await_tasks(1)
        self._append("create", KEYS)

    def run(self, _rounds: int) -> None:
        """Measure once, because hosts only join, and compare with the bounds and the model."""
        found: dict[str, dict[int, float]] = {kind: {} for kind in RATIOS}
        for count in HOSTS:
            self._use(count)
            for kind, per_s in self._measured(count).items():
                found[kind][count] = per_s
                self._report.note(
                    f"{count} hosts, {kind}: {per_s:.0f}/s   load {psutil.getloadavg()[0]:.1f}"
                )
        first, last = HOSTS[0], HOSTS[-1]
        for kind, bound in RATIOS.items():
            ratio = found[kind][last] / found[kind][first]
            self._report.at_least(f"{kind}: {last} hosts over one", ratio, bound)
        for kind, costs in (("HTTP", self._light), ("handlers of 1 ms", self._heavy)):
            for count, per_s in found[kind].items():
                model, limit = rate(costs, count, CORES, keys=KEYS, more_us=costs.get("g", 0.0))
                self._report.note(
                    f"{count} hosts, {kind}: the model says {model:.0f}/s ({limit}); {per_s / model - 1:+.0%}"
                )
        self._running.stop()

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
        self._append("add", 200 * count, 0)  # every task has loaded the application
        for host in self._lab.hosts[1 : count + 1]:
            host.limit(CORES)

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

    def _measured(self, count: int) -> dict[str, float]:
        """Return how much is done in a second, for each kind of work."""
        self._costed("nothing", _rest)
        self._over_http(count)  # the first run warms all processes
        http = self._costed("HTTP", lambda: self._over_http(count))
        heavy = CORES * 1e3 * count * SECONDS
        self._append("add", round(heavy / 4), self._rounds)
        by_handlers = self._costed(
            "handlers", lambda: self._append("add", round(heavy), self._rounds)
        )
        atoms = round(5 * heavy / EVENTS / 2)
        self._append("append", max(1, atoms // 4), self._rounds // 5)
        by_atoms = self._append("append", atoms, self._rounds // 5)
        return dict(zip(RATIOS, (http, by_handlers, by_atoms), strict=True))

    def _costed(self, what: str, work: Callable[[], float]) -> float:
        """Do work, print the processor time of the hosts for a second of it, and return its rate."""
        hosts = [host for host in self._lab.hosts[1:] if host.is_limited]
        before, began = [spent_s(host) for host in hosts], time.monotonic()
        rate_per_s = work()
        lasted_s = time.monotonic() - began
        total: Counter[str] = Counter()
        for host, former in zip(hosts, before, strict=True):
            total.update(spent_s(host))
            total.subtract(former)
        parts = ", ".join(
            f"{role} {used / lasted_s / len(hosts):.3f}" for role, used in total.items()
        )
        self._report.note(f"  {what}: cores of a host: {parts}")
        return rate_per_s

    def _append(self, kind: str, count: int, rounds: int = 0) -> float:
        """Append requests from the driver's host, and return how many of them were committed in a second."""
        host, output = self._lab.hosts[0], self._lab.top / "appended.log"
        output.unlink(missing_ok=True)
        words = [str(host.root), kind, str(next(self._runs)), str(count), str(rounds)]
        command = [sys.executable, "-m", "tests.cluster.scaling", *words]
        assert host.start(command, output).wait(600) == 0, output.read_text()
        return float(output.read_text().split()[-1])

    def _over_http(self, count: int) -> float:
        """Call counters over the gateways of all hosts, and return the answers of a second."""
        run = next(self._runs)
        hosts = self._lab.hosts[1 : count + 1]

        def call(host: Host) -> int:
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
            load = Load("127.0.0.1", PORT, CONNECTIONS, timeout_s=60)
            answers = host.within(lambda: load.run(requests, HTTP_S))
            assert {answer.status for answer in answers} == {200}, answers[0]
            return len(answers)

        began = time.monotonic()
        with ThreadPoolExecutor(count) as threads:
            done = sum(threads.map(call, hosts))
        return done / (time.monotonic() - began)


_ROLES: Final = ("gateway", "driver", "view")


def spent_s(host: Host) -> Counter[str]:
    """Return the processor time of the processes of a host, by their kinds."""
    spent: Counter[str] = Counter()
    for process in host.processes():
        with suppress(psutil.Error):
            words = process.cmdline()
            kind = next((role for role in _ROLES if role in words), "tasks")
            if "java" in "".join(words[:1]):
                kind = "Java"
            times = process.cpu_times()
            spent[kind] += times.user + times.system
    return spent


def _rest() -> float:
    time.sleep(IDLE_S)
    return 0.0


def _answers(host: Host) -> bool:
    answers = host.within(
        lambda: Load("127.0.0.1", PORT, 1, timeout_s=1).run(iter([Request("GET", "/healthz")]))
    )
    return [answer.status for answer in answers] == [200]


def entries_of(kind: str, run: str, count: int, rounds: int) -> Iterator[Entry]:
    """Yield what is appended."""
    for number in range(count):
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
        entries = list(entries_of(kind, run, count, rounds))
        began = time.monotonic()
        for first in range(0, len(entries), 1_000):
            log.append(entries[first : first + 1_000])
        end = log.end()
        while (last := journal.last()) is None or last.positions[ONLY_PARTITION] < end:
            time.sleep(0.02)
        return count * (EVENTS if kind == "append" else 1) / (time.monotonic() - began)


if __name__ == "__main__":
    folder, kind, run, count, rounds = sys.argv[1:]
    sys.stdout.write(f"{appended(Path(folder), kind, run, int(count), int(rounds)):.1f}\n")
