"""Measure the cost of snapshots and compaction for the requests that run at the same time.

    python -m benchmarks.maintenance [--seconds N] [--every N] [--rate N]

Runs `penstock bench checkout` twice, once as fast as possible and once at a rate, each with a
snapshot of 300,000 entities every so many seconds, after which small files are merged. From the
journal alone it takes the requests that were committed while maintenance ran and those that were
committed while it did not, in the same run. Prints one JSON object: requests a second and
milliseconds from append to commit, with and without, and their ratios.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.harness.shop import app
from penstock.base.ids import BEFORE_FIRST
from penstock.journal.api import PartKind
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance import last_report

LOOK_S = 0.2
WARM_S = 20.0
"""Of the measured requests the first are left out: the JVM is still compiling."""


class Spell(NamedTuple):
    """When maintenance ran, microseconds since the Unix epoch."""

    begin: int
    end: int


class Committed(NamedTuple):
    """For each request when it was appended and committed, microseconds."""

    appended: npt.NDArray[np.int64]
    committed: npt.NDArray[np.int64]


def main() -> None:
    """Measure both ways and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--every", type=int, default=15)
    parser.add_argument("--rate", type=int, default=3_000)
    chosen = parser.parse_args()
    print(json.dumps(measured(chosen)))


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of both runs."""
    return {
        "offered_per_s": chosen.rate,
        "max": run(chosen, ["--max"]),
        "rate": run(chosen, ["--rate", str(chosen.rate)]),
    }


def run(chosen: argparse.Namespace, load: list[str]) -> dict[str, Any]:
    """Run checkouts with maintenance in between, and return both halves."""
    settings = [
        f"history.snapshot_s={chosen.every}", "history.merge_epochs=50", "history.grace_s=0",
    ]  # fmt: skip
    command = [sys.executable, "-m", "penstock", "bench", "checkout", "--json", *load]
    command += ["--seconds", str(chosen.seconds)]
    command += [word for one in settings for word in ("--set", one)]
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-maintenance-") as folder:
        data = Path(folder) / "data"
        spells: list[Spell] = []
        stop = threading.Event()
        watcher = threading.Thread(target=watch, args=(data, spells, stop))
        watcher.start()
        done = subprocess.run(
            [*command, "--data", str(data)], stdout=subprocess.PIPE, text=True, check=True
        )
        stop.set()
        watcher.join()
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["conserved"], found["complaints"]
        return figures(read(data, found["checkouts"]), spells)


def watch(data: Path, spells: list[Spell], stop: threading.Event) -> None:
    """Note when maintenance ran, from its reports."""
    while not stop.wait(LOOK_S):
        report = last_report(data)
        if report is not None and (not spells or spells[-1].end != report.time_us):
            spells.append(Spell(report.time_us - int(report.spent_s * 1e6), report.time_us))


def read(data: Path, checkouts: int) -> Committed:
    """Return the measured requests: the journal's last ones."""
    columns = ("epoch", "time_us")
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        last = journal.last()
        assert last is not None
        times = {one.epoch: one.time_us for one in journal.commits(BEFORE_FIRST)}
        appended, committed = [], []
        for _, rows in journal.rows(PartKind.TRANSACTIONS, BEFORE_FIRST, last.epoch, columns):
            appended.append(rows["time_us"].to_numpy())
            committed += [times[epoch] for epoch in rows["epoch"].to_pylist()]
    return Committed(
        np.concatenate(appended)[-checkouts:], np.array(committed, np.int64)[-checkouts:]
    )


def figures(found: Committed, spells: list[Spell]) -> dict[str, Any]:
    """Compare what was committed during maintenance with the rest."""
    start = int(found.committed.min() + WARM_S * 1e6)
    end = int(found.committed.max())
    kept = found.committed >= start
    times, waits = found.committed[kept], (found.committed - found.appended)[kept] / 1_000
    inside = np.zeros(len(times), np.bool_)
    spent_us = 0
    for one in spells:
        begin, until = max(one.begin, start), min(one.end, end)
        if begin < until:
            inside |= (times >= begin) & (times < until)
            spent_us += until - begin
    with_it = half(waits[inside], spent_us)
    without = half(waits[~inside], end - start - spent_us)
    return {
        "with": with_it,
        "without": without,
        "throughput_ratio": round(with_it["requests_per_s"] / without["requests_per_s"], 3),
        "p99_ratio": round(with_it["p99_ms"] / without["p99_ms"], 2),
    }


def half(waits: npt.NDArray[np.float64], spent_us: int) -> dict[str, float]:
    """Return the figures of one half."""
    return {
        "seconds": round(spent_us / 1e6, 1),
        "requests_per_s": round(len(waits) / (spent_us / 1e6)),
        "p50_ms": round(float(np.percentile(waits, 50)), 1),
        "p99_ms": round(float(np.percentile(waits, 99)), 1),
    }


if __name__ == "__main__":
    main()
