"""The campaign on a cluster: load and faults on hosts that are network namespaces, and figures beside their bounds.

`scripts/cluster` runs it. The parts, of which `--parts` chooses some:

- `link`: the conformance suites of log, journal and shared root, whose broker and store are behind a link of 50 ms that loses one of a
  hundred frames.
- `hosts`: a hot item under load, executors and workers killed, hosts cut off and healed, and all of them at once.
- `drivers`: two drivers on two hosts; the one that drives is killed, cut off, and stopped for a minute.
- `page`: the operator's page, from one machine to three hosts, to four, and to one.
- `elastic`: hosts join and leave, and the number of partitions changes, under load; each partition is on two hosts (`copies`).
- `servers`: 500 checkouts a second, in turns with the same load on one host with the embedded log and files, whose processor time is
  compared; then the object store and the broker are killed for 20 seconds each. It prints the requests to the store by kinds, for an
  epoch and for a day, and their price, under load and at rest, and the bytes of a checkout.
- `outside`: indexes, effects and the changes of a database, while hosts hold parts of the state.
- `scaling`: 1, 2 and 4 hosts of a fifth of a core, beside the model of `benchmarks.scale`, whose costs are measured on one of them; all that in
  turns, in each of a few rounds.

With `--store`, and always for `drivers`, `page`, `servers` and `scaling`, data are in an object store and the log is in Kafka. It ends with 1 if a bound is
exceeded, an answer is wrong, or replies and state are not those of one thread. Bounds are those of a machine that does
nothing else.
"""

import argparse
import asyncio
import itertools
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import psutil
import uvloop

from benchmarks.harness.load import Answer, Connection, Load, Request
from penstock.files.layout import HELD_STATE
from penstock.process.config import PriceConfig
from penstock.process.host_reporter import READS, WRITES
from penstock.process.metrics import STORE_REQUESTS, sums_of
from tests.checkout import SHOP
from tests.cluster.far_servers import Places
from tests.cluster.lab import ALONE, Host, Lab, Slow, lab, why_not
from tests.cluster.operator_page import OperatorPage
from tests.cluster.outside import Outside
from tests.cluster.running import PORT, RunningApplication, equals_one_thread
from tests.cluster.scaling import HOSTS, ROUNDS, SECONDS, Scaling, spent_s
from tests.faults.shop_consistency import HOST, consistency
from tests.kafka_server import KafkaServer
from tests.object_store import StoreServer
from tests.waiting import wait_for

KILLED_S, CUT_S, BACK_S = 1.5, 4.0, 10.0
DRIVER_KILLED_S, DRIVER_CUT_S, DRIVER_STOPPED_S = 2.0, 9.0, 9.0
REFUSED_S, ON_AGAIN_S = 5.0, 15.0
MEDIAN_S, LATE_S = 0.1, 0.4
RATE: Final = 500
TURNS: Final = 2
LOAD_S: Final = 15.0
"""The time of a turn."""
WAITS: Final = {
    "request": ("penstock_request_seconds", ""),
    "append": ("penstock_log_append_seconds", ""),
    "epoch": ("penstock_epoch_seconds", ""),
    "phase": ("penstock_epoch_phase_seconds", "phase"),
    "store": ("penstock_store_request_seconds", "kind"),
}
"""The metrics that say for what a request waits, and their labels."""
CPU_RATIO: Final = 2.0
"""The processor time of a checkout on two hosts, at most, in times of one host with the embedded log and files."""
AWAY_S = 30.0
STOPPED_S: Final = 60.0
SERVER_AWAY_S: Final = 20.0
_SETTLE_S = 3.0
_FOLLOW_S: Final = 0.5
"""After so long, all processes have followed the last epoch of a load."""
_REST_S: Final = 40.0
"""After so long without a request, each follower has its longest pause."""
_DAY_S: Final = 86_400
_CONNECTIONS: Final = 400
_ENTITIES: Final = 1_000
"""Items, and users, of the shop whose orders are checked out."""
_PLENTY: Final = 1_000_000
SLOW: Final = Slow(25.0, 1.0)
"""In each direction: an answer comes after 50 ms."""
SUITES: Final = [
    f"tests/conformance/test_{name}.py"
    for name in (
        "log", "log_schedule", "journal", "journal_compaction", "journal_kinds", "shared_root",
    )
]  # fmt: skip


class Report:
    """Prints figures beside their bounds.

    Attributes:
        exceeded: The lines of bounds that were exceeded.
    """

    def __init__(self) -> None:
        self.exceeded: list[str] = []

    def say(self, what: str, seconds: float, bound_s: float | None = None) -> None:
        """Print one figure."""
        line = f"{what:45} {seconds:7.2f} s"
        if bound_s is not None:
            line += f"   bound {bound_s:g} s"
            if seconds > bound_s:
                line += "   EXCEEDED"
                self.exceeded.append(line)
        self.note(f"{line}   load {psutil.getloadavg()[0]:.1f}")

    def at_least(self, what: str, ratio: float, bound: float) -> None:
        """Print one ratio."""
        line = f"{what:45} {ratio:7.2f} times   at least {bound:g}"
        if ratio < bound:
            line += "   MISSED"
            self.exceeded.append(line)
        self.note(f"{line}   load {psutil.getloadavg()[0]:.1f}")

    def at_most(self, what: str, ratio: float, bound: float) -> None:
        """Print one ratio that should be small."""
        line = f"{what:45} {ratio:7.2f} times   at most {bound:g}"
        if ratio > bound:
            line += "   EXCEEDED"
            self.exceeded.append(line)
        self.note(f"{line}   load {psutil.getloadavg()[0]:.1f}")

    def near(self, what: str, ratio: float, share: float) -> None:
        """Print how far a figure is from the one that was expected: `ratio` is the one over the other."""
        line = f"{what:75} {ratio:6.2f} times   within {share:.0%}: "
        line += "held" if abs(ratio - 1) <= share else "MISSED"
        if abs(ratio - 1) > share:
            self.exceeded.append(line)
        self.note(f"{line}   load {psutil.getloadavg()[0]:.1f}")

    def note(self, line: str) -> None:
        """Print a line."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def sell(host: Host, seed: int) -> None:
    """Sell a hot item to many buyers over the gateway of a host."""
    host.within(lambda: consistency(PORT, seed)).check()


class Hosts:
    """One shop whose hosts fail."""

    def __init__(self, hosts: Lab, report: Report) -> None:
        self._lab = hosts
        self._say = report.say
        self._shop = RunningApplication(hosts, partitions=len(hosts.hosts) - 1)
        self._shop.await_tasks(len(hosts.hosts) - 1)

    def run(self, rounds: int) -> None:
        """Do everything, some rounds."""
        for seed in range(rounds):
            began = time.monotonic()
            sell(self._lab.hosts[0], seed)
            self._say("hot item, 1,000 buyers", time.monotonic() - began, None)
            for host in self._lab.hosts[1:]:
                self._disturb(f"executor of {host.root.name} killed", _kill_executors, host)
            for host in self._lab.hosts[1:]:
                self._disturb(f"worker of {host.root.name} killed", _kill_worker, host)
            for host in self._lab.hosts[1:]:
                self._cut(host)
            self._cut_all()
        self._shop.stop()
        began = time.monotonic()
        requests = equals_one_thread(self._lab)
        self._say(f"{requests} requests equal one thread", time.monotonic() - began, None)

    def _disturb(self, what: str, act: Callable[[Host], None], host: Host) -> None:
        with self._shop.under_calls() as calls:
            time.sleep(_SETTLE_S)
            calls.longest_s()
            act(host)
            time.sleep(_SETTLE_S)
            self._say(f"{what}: longest stall", calls.longest_s(), KILLED_S)
            self._say(f"{what}: back after", self._shop.await_tasks(1) + _SETTLE_S, None)
            time.sleep(_SETTLE_S)
        assert calls.statuses == {200}, calls.statuses

    def _cut(self, host: Host) -> None:
        name = host.root.name
        with self._shop.under_calls() as calls:
            time.sleep(_SETTLE_S)
            calls.longest_s()
            host.cut()
            time.sleep(AWAY_S)
            self._say(f"link of {name} cut: longest stall", calls.longest_s(), CUT_S)
            host.heal()
            self._say(f"link of {name} healed: back after", self._shop.await_tasks(1), BACK_S)
            time.sleep(_SETTLE_S)
            self._say(f"link of {name} healed: longest stall", calls.longest_s(), CUT_S)
        assert calls.statuses == {200}, calls.statuses

    def _cut_all(self) -> None:
        hosts = self._lab.hosts[1:]
        with self._shop.under_calls() as calls:
            for host in hosts:
                host.cut()
            time.sleep(AWAY_S)
            for host in hosts:
                host.heal()
            back_s = self._shop.await_tasks(len(hosts))
            self._say("all links healed: back after", back_s, None)
            calls.longest_s()
            time.sleep(_SETTLE_S)
        assert calls.statuses == {200}, calls.statuses


class Drivers:
    """Two drivers of a shop, on two hosts; the one that drives fails, and the other one takes over."""

    def __init__(self, hosts: Lab, report: Report) -> None:
        self._lab = hosts
        self._say = report.say
        self._shops = [RunningApplication(hosts, at=at, partitions=2) for at in (1, 2)]
        self._shops[1].await_standby()

    def run(self, rounds: int) -> None:
        """Do everything, some rounds."""
        for seed in range(rounds):
            with self._fault("driver killed", DRIVER_KILLED_S, 10.0) as (driver, _):
                _only(driver).kill()
            with self._fault("host of the driver cut", DRIVER_CUT_S, 20.0) as (driver, host):
                host.cut()
            host.heal()
            self._await_roles()
            with self._fault("driver stopped", DRIVER_STOPPED_S, STOPPED_S) as (driver, _):
                stopped = _only(driver)
                stopped.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            stopped.send_signal(signal.SIGCONT)
            stopped.wait(_SETTLE_S * 10)
            self._say("driver woken: it has ended after", time.monotonic() - began)
            self._await_roles()
            for shop in self._shops:
                sell(self._lab.hosts[shop.at], 10 * seed + shop.at)
        roles = [shop.at for shop in self._shops if shop.drivers()]
        for shop in sorted(self._shops, key=lambda shop: shop.at in roles):
            shop.stop()
        requests = equals_one_thread(self._lab, *roles)
        self._say(f"{requests} requests equal one thread", 0.0)

    @contextmanager
    def _fault(
        self, what: str, bound_s: float, lasts_s: float
    ) -> Iterator[tuple[RunningApplication, Host]]:
        """Let the driver fail in the block, under calls to the other host, and wait for the time of the fault."""
        driver, other = self._await_roles()
        with other.under_calls() as calls:
            time.sleep(_SETTLE_S)
            calls.longest_s()
            yield driver, self._lab.hosts[driver.at]
            time.sleep(lasts_s)
            self._say(f"{what}: longest call", calls.longest_s(), bound_s)
        assert calls.statuses == {200}, calls.statuses
        assert other.drivers(), "the other one drives"

    def _await_roles(self) -> tuple[RunningApplication, RunningApplication]:
        """Wait until one drives and the other one can take over, and return them."""

        def roles() -> tuple[RunningApplication, RunningApplication] | None:
            for one, another in itertools.permutations(self._shops):
                if one.drivers() and another.is_standby():
                    return one, another
            return None

        found: tuple[RunningApplication, RunningApplication] = wait_for(
            roles, "a driver and a standby", 180
        )
        return found


def _only(shop: RunningApplication) -> psutil.Process:
    (driver,) = shop.drivers()
    return driver


class Elastic:
    """One shop whose hosts join and leave, and whose partitions move, while each partition is on two of them."""

    def __init__(self, hosts: Lab, report: Report) -> None:
        self._lab = hosts
        self._report = report
        joined = len(hosts.hosts) - 1
        self._shop = RunningApplication(hosts, hosts=1, cores=joined, partitions=6, copies=2)
        self._shop.await_tasks(1)

    def run(self, rounds: int) -> None:
        """Do everything, some rounds."""
        first, *others = range(1, len(self._lab.hosts))
        for number in others:
            self._under_calls(f"host{number + 1} joins", lambda: self._join(number), KILLED_S)  # noqa: B023
        for seed in range(rounds):
            self._under_calls("6 partitions become 12", lambda: self._move(12), CUT_S)
            self._under_calls(f"host{first + 1} leaves", self._lab.hosts[first].leave, KILLED_S)
            sell(self._lab.hosts[0], seed)
            self._under_calls("12 partitions become 6", lambda: self._move(6), CUT_S)
            self._under_calls(f"host{first + 1} joins", lambda: self._join(first), KILLED_S)
            sell(self._lab.hosts[0], 10 + seed)
        self._shop.stop()
        requests = equals_one_thread(self._lab)
        self._report.say(f"{requests} requests equal one thread", 0.0)
        for host in self._lab.hosts[1:]:
            held = sorted(each.name for each in (host.root / HELD_STATE).glob("partition-*-of-6"))
            self._report.note(f"{host.root.name} holds {', '.join(held)}")

    def _join(self, number: int) -> None:
        self._lab.start_worker(number)
        self._shop.await_tasks(1)

    def _move(self, partitions: int) -> None:
        self._shop.order("rebalance", "--partitions", str(partitions), "--set", "copies=2")

    def _under_calls(self, what: str, act: Callable[[], object], bound_s: float) -> None:
        with self._shop.under_calls() as calls:
            time.sleep(_SETTLE_S)
            calls.longest_s()
            began = time.monotonic()
            act()
            self._report.say(f"{what}: done after", time.monotonic() - began)
            time.sleep(_SETTLE_S)
            self._report.say(f"{what}: longest stall", calls.longest_s(), bound_s)
        assert calls.statuses == {200}, calls.statuses


class Servers:
    """A shop under load, whose object store and broker are killed; and the same shop on one host, which needs neither."""

    def __init__(self, hosts: Lab, report: Report) -> None:
        self._lab = hosts
        self._report = report
        self._cluster = hosts.hosts[:-1]
        count, last = len(self._cluster) - 1, len(self._cluster)
        # The usual time, after which a request is refused; others allow more, because brokers start slowly here.
        settings: dict[str, Any] = {"kafka.append_ms": 2_000}
        self._shop = RunningApplication(
            hosts, at=1, apps=(SHOP,), hosts=count, cores=count, partitions=count, **settings
        )
        self._shop.await_tasks(count)
        self._alone = RunningApplication(
            hosts, at=last, apps=(SHOP,), alone=True, cores=count, partitions=count
        )

    def run(self, rounds: int) -> None:
        """Do everything, some rounds."""
        items = [self._made() for _ in range(100)]
        for shop in (self._alone, self._shop):
            shop.call(_fill)
        for round_ in range(rounds):
            self._compare(str(round_))
            store, broker = self._lab.store, self._lab.broker
            assert store is not None
            assert broker is not None
            for name, server in (("store", store), ("broker", broker)):
                self._away(items, f"{name}{round_}", name, server)
        time.sleep(_REST_S)
        with self._priced("idle"):
            time.sleep(LOAD_S)
        for shop in (self._alone, self._shop):
            shop.stop()
        requests = equals_one_thread(self._lab, 1)
        self._report.say(f"{requests} requests equal one thread", 0.0)

    def _compare(self, run: str) -> None:
        """Let the hosts and the single host check out in turns, and compare the processor time of a checkout."""
        spent: dict[RunningApplication, Counter[str]] = {}
        took: dict[RunningApplication, list[float]] = {}
        every = [(self._alone, "one host"), (self._shop, f"{len(self._cluster) - 1} hosts")]
        for shop, _ in every:
            shop.call(_make_unpaid)
            self._check_out(shop, f"warm{run}", _SETTLE_S)
            spent[shop], took[shop] = Counter(), []
        for turn in range(TURNS):
            for shop, _ in every:
                shop.call(_make_unpaid)
                time.sleep(_FOLLOW_S)
                before, waited = self._spent(shop), self._waits(shop)
                with self._priced(f"{RATE} checkouts/s") if shop is self._shop else nullcontext():
                    answers = self._check_out(shop, f"{run}-{turn}", LOAD_S)
                    time.sleep(_FOLLOW_S)
                spent[shop].update(self._spent(shop))
                spent[shop].subtract(before)
                self._tell_waits(shop, waited)
                took[shop] += [answer.took_s for answer in answers]
        each_us = {}
        for shop, name in every:
            count = len(took[shop])
            costs = {kind: used / count * 1e6 for kind, used in spent[shop].items()}
            each_us[shop] = sum(costs.values())
            parts = ", ".join(f"{kind} {cost:.0f}" for kind, cost in costs.items())
            self._report.note(f"{name}: {each_us[shop]:.0f} µs of processors for a checkout: {parts}")  # fmt: skip
            bounds = (MEDIAN_S, LATE_S) if shop is self._shop else (None, None)
            times = sorted(took[shop])
            of = f"{name}, {RATE} checkouts/s"
            self._report.say(f"{of}: p50", statistics.median(times), bounds[0])
            self._report.say(f"{of}: p99", times[len(times) * 99 // 100], bounds[1])
        ratio = each_us[self._shop] / each_us[self._alone]
        self._report.at_most("processor time of a checkout: hosts over one", ratio, CPU_RATIO)

    def _waits(self, shop: RunningApplication) -> dict[str, tuple[float, float]]:
        """Return how often a shop has waited so far, and the seconds, by the reasons."""
        found: dict[str, tuple[float, float]] = {}
        for what, (name, label) in WAITS.items():
            seconds, counts = Counter[str](), Counter[str]()
            for data in self._data_of(shop):
                seconds.update(Counter(sums_of(data, f"{name}_sum", label)))
                counts.update(Counter(sums_of(data, f"{name}_count", label)))
            found |= {
                f"{what} {value}".strip(): (counts[value], seconds[value]) for value in counts
            }
        return found

    def _tell_waits(self, shop: RunningApplication, before: dict[str, tuple[float, float]]) -> None:
        """Print for how long a shop has waited on average since then."""
        told = []
        for what, (count, seconds) in self._waits(shop).items():
            former_count, former_s = before.get(what, (0.0, 0.0))
            if count > former_count:
                each_ms = (seconds - former_s) / (count - former_count) * 1e3
                told.append(f"{what} {each_ms:.1f} ms")
        where = "hosts" if shop is self._shop else "one host"
        self._report.note(f"  waits on {where}: {', '.join(told)}")

    def _hosts_of(self, shop: RunningApplication) -> list[Host]:
        return self._cluster if shop is self._shop else [self._lab.hosts[shop.at]]

    def _data_of(self, shop: RunningApplication) -> list[Path]:
        """Return the folders with the metrics of a shop."""
        folder = "" if shop is self._shop else ALONE
        return [host.root / folder for host in self._hosts_of(shop)]

    def _check_out(self, shop: RunningApplication, run: str, seconds: float) -> list[Answer]:
        """Check out at a rate, each time another order."""
        requests = [
            Request("POST", f"/orders/checkout/{order}", request_id=f"{run}-{order}")
            for order in range(int(RATE * seconds))
        ]
        answers = self._at(shop.at, requests, RATE)
        assert {answer.status for answer in answers} == {200}
        return answers

    @contextmanager
    def _priced(self, what: str) -> Iterator[None]:
        """Print what the hosts ask of the store in the block, by kinds, and what a day like this costs at the default prices."""
        before, epochs, began = self._asked(), self._epochs(), time.monotonic()
        requests, sent = self._requests(), self._bytes()
        yield
        lasted_s = time.monotonic() - began
        asked, epochs = self._asked() - before, self._epochs() - epochs
        requests, sent = self._requests() - requests, self._bytes() - sent
        kinds = ", ".join(
            f"{kind} {count / lasted_s:.2f}/s"
            + (f" = {count / epochs:.1f} an epoch" if epochs else "")
            for kind, count in sorted(asked.items())
        )
        prices = PriceConfig()
        writes = sum(asked[kind] for kind in WRITES) * prices.million_puts_cents
        reads = sum(asked[kind] for kind in READS) * prices.million_gets_cents
        cents = (writes + reads) / 1e6 * _DAY_S / lasted_s
        self._report.note(
            f"{what}: {epochs / lasted_s:.2f} epochs/s; {kinds}; {cents / 100:.2f} dollars a day"
            f"   load {psutil.getloadavg()[0]:.1f}"
        )
        if requests:
            self._report.note(
                f"{what}: {sent / requests:,.0f} bytes to and from the store for each"
            )

    def _requests(self) -> int:
        """Return the number of requests that the driver has committed."""
        return round(sum(sums_of(self._lab.hosts[1].root, "penstock_epoch_records_sum").values()))

    def _bytes(self) -> float:
        """Return the bytes to and from the store so far, of the processes of all hosts."""
        return sum(
            sum(sums_of(host.root, "penstock_store_bytes_total", "kind").values())
            for host in self._cluster
        )

    def _spent(self, shop: RunningApplication) -> Counter[str]:
        """Return the processor time of the processes of a shop, by their kinds; store, broker and clients are left out."""
        total: Counter[str] = Counter()
        for host in self._hosts_of(shop):
            total.update(spent_s(host))
        return total

    def _asked(self) -> Counter[str]:
        """Return the requests to the store so far, of the processes of all hosts, by their kinds."""
        asked: Counter[str] = Counter()
        for host in self._cluster:
            asked.update(Counter(sums_of(host.root, STORE_REQUESTS, "kind")))
        return asked

    def _epochs(self) -> int:
        """Return the number of epochs that the driver has committed."""
        return round(sum(sums_of(self._lab.hosts[1].root, "penstock_epoch_records_count").values()))

    def _made(self) -> str:
        (key,) = self._shop.call(lambda client: client.post("/stock/item/create/1").json()).values()
        return str(key)

    def _away(
        self, items: list[str], run: str, name: str, server: StoreServer | KafkaServer
    ) -> None:
        """Kill a server for some seconds under load, and look at the answers, at what is stored, and when it goes on."""
        before = self._stocks(items)
        times = {}

        def fail() -> None:
            time.sleep(_SETTLE_S)
            times["killed"] = time.perf_counter()
            server.kill()
            time.sleep(SERVER_AWAY_S)
            self._lab.start_server(server)
            times["back"] = time.perf_counter()

        answers = self._paced(items, run, _SETTLE_S + SERVER_AWAY_S + ON_AGAIN_S + 15, 50, fail)
        self._report.note(f"{name} killed: {Counter(answer.status for answer in answers)}")
        refused = [answer for answer in answers if answer.status != 200]
        slowest = max(answer.took_s for answer in refused or answers)
        self._report.say(f"{name} killed: longest until a refusal", slowest, REFUSED_S)
        last = max((answer.sent_s for answer in refused), default=times["back"])
        self._report.say(f"{name} back: on by itself after", last - times["back"], ON_AGAIN_S)
        for answer in refused[:1]:
            self._report.note(f"  {answer.body.decode()}")
        # Sent again, each request takes effect once, whether it was acknowledged before or not.
        again = [answer.request for answer in answers]
        repeated = self._sent(iter(again))
        assert {answer.status for answer in repeated} == {200}
        wanted = {
            item: count + sum(item in each.path for each in again) for item, count in before.items()
        }
        assert self._stocks(items) == wanted, "nothing is lost, and nothing is twice"

    def _stocks(self, items: list[str]) -> dict[str, int]:
        found: dict[str, int] = self._shop.call(
            lambda client: {
                item: client.get(f"/stock/find/{item}").json()["stock"] for item in items
            }
        )
        return found

    def _sent(self, requests: Iterator[Request]) -> list[Answer]:
        return self._lab.hosts[1].within(lambda: Load(HOST, PORT, 20).run(requests))

    def _paced(
        self,
        items: list[str],
        run: str,
        seconds: float,
        rate: int,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """Send requests at a rate, whether answers come or not; a time counts from when a request was due."""
        requests = [
            Request(
                "POST", f"/stock/add/{items[number % len(items)]}/1", request_id=f"{run}-{number}"
            )
            for number in range(int(seconds * rate))
        ]
        return self._at(1, requests, rate, meanwhile)

    def _at(
        self,
        at: int,
        requests: list[Request],
        rate: int,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        host = self._lab.hosts[at]
        return host.within(lambda: uvloop.run(_paced(requests, rate, meanwhile)))


def _fill(client: httpx.Client) -> None:
    """Give the shop so many items and so much credit that no checkout is refused."""
    _done(client, f"/stock/batch_init/{_ENTITIES}/{_PLENTY}/1")
    _done(client, f"/payment/batch_init/{_ENTITIES}/{_PLENTY}")


def _make_unpaid(client: httpx.Client) -> None:
    _done(client, f"/orders/batch_init/{int(RATE * LOAD_S)}/{_ENTITIES}/{_ENTITIES}/1")


def _done(client: httpx.Client, path: str) -> None:
    answer = client.post(path)
    assert answer.status_code == 200, answer.text


async def _paced(requests: list[Request], rate: int, meanwhile: Callable[[], None]) -> list[Answer]:
    crowd = Load(HOST, PORT, 0, timeout_s=60)
    free: asyncio.Queue[Any] = asyncio.Queue()
    answers: list[Answer] = []
    began = time.perf_counter()

    async def ask(number: int, request: Request, connection: Connection) -> None:
        answer = await crowd.ask(connection, request)
        due = began + number / rate
        answers.append(replace(answer, sent_s=due, took_s=time.perf_counter() - due))
        free.put_nowait(connection)

    for _ in range(_CONNECTIONS):
        free.put_nowait(Connection(HOST, PORT))
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(meanwhile))
        for number, request in enumerate(requests):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            group.create_task(ask(number, request, await free.get()))
    while not free.empty():
        free.get_nowait().close()
    return answers


PARTS: Final[
    dict[str, Callable[[Lab, Report], Hosts | Drivers | Elastic | Servers | Outside | Scaling]]
] = {
    "hosts": Hosts,
    "drivers": Drivers,
    "elastic": Elastic,
    "servers": Servers,
    "outside": Outside,
    "scaling": Scaling,
}


def _kill_executors(host: Host) -> None:
    executors = host.executors()
    assert executors, f"{host.root.name} has no executor"
    for executor in executors:
        executor.kill()


def _kill_worker(host: Host) -> None:
    """Kill one process that runs commands; its warden stays."""
    workers = [each for each in host.processes() if _is_worker(each)]
    assert workers, f"{host.root.name} has no worker"
    workers[0].kill()


def _is_worker(process: psutil.Process) -> bool:
    """Say whether a process was forked by a warden, which Spark's daemon has forked."""
    try:
        lines = [each.cmdline() for each in (process, *process.parents()[:2])]
    except psutil.Error:
        return False
    return all("penstock.runtime.spark.daemon" in line for line in lines)


def conform(report: Report) -> None:
    """Run the conformance suites over a slow link."""
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as top,
        lab(Path(top), 1, SLOW) as hosts,
    ):
        hosts.serve()
        assert hosts.store is not None
        assert hosts.broker is not None
        store, broker = hosts.store, hosts.broker
        places = Places(
            (store.address, store.port, store.key, store.secret), (broker.port, broker.address)
        )
        file, output = Path(top) / "servers.json", Path(top) / "suites.log"
        file.write_bytes(msgspec.json.encode(places))
        words = ["-p", "tests.cluster.far_servers", "--servers", str(file), "-q", "-rfE"]
        words += ["-n", "4", "-k", "kafka or store", "--basetemp", f"{top}/suites", *SUITES]
        began = time.monotonic()
        status = hosts.hosts[0].start([sys.executable, "-m", "pytest", *words], output).wait()
        told = output.read_text()
        what = f"suites over {2 * SLOW.delay_ms:g} ms and {SLOW.loss_percent:g} % loss"
        report.say(f"{what}: {told.splitlines()[-1].strip('= ')}", time.monotonic() - began)
        if status:
            report.note(told)
            report.exceeded.append(what)


def follow_page(report: Report) -> None:
    """Follow the operator's page."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as top, lab(Path(top), 4) as hosts:
        hosts.serve()
        try:
            OperatorPage(hosts).follow()
        except BaseException:
            for log in sorted(Path(top).glob("run-of-*.log")):
                report.note(f"{log.name}:\n{log.read_text()[-6_000:]}")
            raise


ALONE_PARTS: Final = {"link": conform, "page": follow_page}
"""The parts that make their own hosts."""
EVERY: Final = ("link", *PARTS, "page")


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=EVERY, default=EVERY)
    parser.add_argument("--store", action="store_true", help="data in a store and a log in Kafka")
    parser.add_argument("--hosts", type=int, default=2, help="hosts with tasks; default 2")
    parser.add_argument("--rounds", type=int, help=f"default 1; scaling: {ROUNDS}")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"scaling: the time of each run; default {SECONDS:g}",
    )
    parser.add_argument(
        "--json",
        type=Path,
        help="scaling: file for costs, figures and the model; docs/scale.json changes the page, too",
    )
    chosen = parser.parse_args()
    if reason := why_not():
        sys.stdout.write(f"{reason}\n")
        return 1
    report = Report()
    for part in chosen.parts:
        if part in ALONE_PARTS:
            ALONE_PARTS[part](report)
            continue
        # The last host of `servers` is no host of the cluster.
        count = {"scaling": max(HOSTS), "servers": chosen.hosts + 1}.get(part, chosen.hosts)
        with (
            tempfile.TemporaryDirectory(prefix="cluster-") as top,
            lab(Path(top), 1 + count) as hosts,
        ):
            if chosen.store or part in ("drivers", "servers", "scaling"):
                hosts.serve()
            workers = range(1, 2 if part in ("elastic", "scaling") else 1 + chosen.hosts)
            # Two for each host: of the driver and of the standby.
            hosts.start_spark(workers, cores=2 if part == "drivers" else 1)
            make = PARTS[part]
            if part == "scaling":
                make = partial(Scaling, seconds=chosen.seconds, found=chosen.json)
            try:
                make(hosts, report).run(chosen.rounds or (ROUNDS if part == "scaling" else 1))
            except BaseException:
                for log in Path(top).glob("run*.log"):
                    report.note(f"{log.name}:\n{log.read_text()[-8_000:]}")
                raise
    return 1 if report.exceeded else 0


if __name__ == "__main__":
    raise SystemExit(main())
