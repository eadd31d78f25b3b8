"""The campaign on a cluster: a hot item under load, executors killed, hosts cut off and healed, and all of them at once.

`scripts/cluster` runs it, and prints what it has measured beside the bound. It ends with 1 if a bound is exceeded, an answer is wrong, or
replies and state are not those of one thread. Bounds are those of a machine that does nothing else.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.cluster.lab import Host, Lab, lab, why_not
from tests.cluster.running import PORT, RunningShop, equals_one_thread
from tests.faults.shop_consistency import consistency

KILLED_S, CUT_S, BACK_S = 1.5, 4.0, 10.0
AWAY_S = 30.0
_SETTLE_S = 3.0


class Campaign:
    """One run of a shop.

    Attributes:
        exceeded: The lines of bounds that were exceeded.
    """

    def __init__(self, hosts: Lab) -> None:
        self.exceeded: list[str] = []
        self._lab = hosts
        self._shop = RunningShop(hosts, partitions=len(hosts.hosts) - 1)

    def run(self, rounds: int) -> None:
        """Do everything, some rounds."""
        for seed in range(rounds):
            began = time.monotonic()
            self._sell(seed)
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

    def _sell(self, seed: int) -> None:
        self._lab.hosts[0].within(lambda: consistency(PORT, seed)).check()

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

    def _say(self, what: str, seconds: float, bound_s: float | None) -> None:
        line = f"{what:45} {seconds:7.2f} s"
        if bound_s is not None:
            line += f"   bound {bound_s:g} s"
            if seconds > bound_s:
                line += "   EXCEEDED"
                self.exceeded.append(line)
        load = psutil.getloadavg()[0]
        sys.stdout.write(f"{line}   load {load:.1f}\n")
        sys.stdout.flush()


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


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2, help="hosts with tasks; default 2")
    parser.add_argument("--rounds", type=int, default=1, help="default 1")
    chosen = parser.parse_args()
    if reason := why_not():
        sys.stdout.write(f"{reason}\n")
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as top,
        lab(Path(top), 1 + chosen.hosts) as hosts,
    ):
        hosts.start_spark(range(1, 1 + chosen.hosts))
        campaign = Campaign(hosts)
        try:
            campaign.run(chosen.rounds)
        except BaseException:
            sys.stdout.write(hosts.output()[-8_000:])
            raise
    return 1 if campaign.exceeded else 0


if __name__ == "__main__":
    raise SystemExit(main())
