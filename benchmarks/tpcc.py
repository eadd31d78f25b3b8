"""TPC-C: the five transactions of `examples/tpcc` over HTTP, with both latencies and the consistency conditions.

    python -m benchmarks.tpcc [--warehouses 1] [--seconds 30] [--plot tpcc.svg]

Starts all processes of `penstock run`, creates the database, and lets terminals work, ten for each warehouse. While
they work and afterwards, one SQL query checks the conditions 1 to 12 of the specification, with AS OF one epoch.

A transaction that writes has two latencies: accepted (the terminal knows that the request is durable in the log) and
committed (the terminal has the reply of a committed epoch). Order-Status and Stock-Level read the state at the newest
epoch without a request in the log, and have the second latency only.

`new_orders_per_minute` counts committed New-Orders. It is not a tpmC: no audit took place, terminals neither type nor
think unless `--wait` is given, and no figure of a run with `--items` or `--customers` may be compared with others.

Prints a table, and with `--json` one JSON object. The exit code is 1 if a condition was violated or a transaction failed
that should not.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.harness.http import running
from benchmarks.harness.latencies import latencies_of
from benchmarks.machine import machine
from benchmarks.page import table
from benchmarks.tpcc_company import Checked, Company, Done, rates_of
from examples.tpcc.nurand import FULL, Scale
from examples.tpcc.terminal import WEIGHTS

APP: Final = str(Path(__file__).parents[1] / "examples" / "tpcc")
TERMINALS: Final = 10
WARM_UP_S: Final = 3.0


def main() -> None:
    """Measure, print, and draw."""
    chosen = options(sys.argv[1:])
    plot = import_module("benchmarks.tpcc_plot") if chosen.plot else None
    scale = Scale(chosen.items, chosen.customers)
    with tempfile.TemporaryDirectory(dir=chosen.directory, prefix="penstock-tpcc-") as folder:
        about = machine(Path(folder))
        with running(Path(folder) / "data", chosen.gateways, *chosen.set, app=APP) as port:
            company = Company(port, chosen.warehouses, scale, chosen.seed, chosen.place)
            print("creating the database …", file=sys.stderr, flush=True)
            company.populate()
            print("warming up …", file=sys.stderr, flush=True)
            terminals = chosen.terminals or TERMINALS * chosen.warehouses
            company.run(terminals, WARM_UP_S, waits=False)
            company.done.clear()
            print("the terminals work …", file=sys.stderr, flush=True)
            before = cpu_s_by_process()
            company.run(terminals, chosen.seconds, waits=chosen.wait, check_s=chosen.check)
            after = cpu_s_by_process()
            company.check()
    found = figures_of(company.done, company.checked, chosen.seconds)
    settings = {
        "warehouses": chosen.warehouses,
        "terminals": terminals,
        "keying_and_think_times": chosen.wait,
        "full_scale": scale == FULL,
        "items": scale.items,
        "customers_per_district": scale.customers,
        "gateways": chosen.gateways,
        "seed": chosen.seed,
    }
    costs = costs_ms(before, after, len(company.done))
    found = {"machine": about, **settings, **found, "cpu_ms": costs}
    print(report(found))
    if plot:
        plot.draw(found, chosen.plot)
    if chosen.json:
        print(json.dumps(found))
    sys.exit(bool(found["violations"] or found["failures"]))


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tpcc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--warehouses", type=int, default=1)
    parser.add_argument("--terminals", type=int, default=0, help="default: ten for each warehouse")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--wait", action="store_true", help="keying and think times")
    one = "one HTTP request for each transaction, without its accepted latency"
    parser.add_argument(
        "--call", action="store_const", const="call", default="send", dest="place", help=one
    )
    parser.add_argument("--check", type=float, default=10.0, help="seconds between checks; 0: none")
    parser.add_argument("--items", type=int, default=FULL.items, help="fewer: not TPC-C's scale")
    parser.add_argument("--customers", type=int, default=FULL.customers, help="of a district")
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting: NAME=VALUE")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument(
        "--plot", type=Path, help="draw rate and latencies, as SVG or PNG; needs matplotlib"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args(arguments)


ROLES: Final = {
    "pyspark.worker": "workers",
    "runtime.reads": "readers",
    "java": "Java",
    "penstock gateway": "gateway",
    "penstock driver": "driver",
    "penstock view": "SQL view",
    "penstock run": "supervisor",
}
"""The processes of an application, by what their command lines contain."""


def cpu_s_by_process() -> dict[str, float]:
    """Return the processor time so far of the processes that this one has started, and of itself, the terminals."""
    own = psutil.Process()
    times = own.cpu_times()
    found = {"terminals": times.user + times.system}
    for process in own.children(recursive=True):
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            role = next((role for mark, role in ROLES.items() if mark in words), "others")
            times = process.cpu_times()
            found[role] = found.get(role, 0.0) + times.user + times.system
    return found


def costs_ms(
    before: Mapping[str, float], after: Mapping[str, float], count: int
) -> dict[str, float]:
    """Return the milliseconds of processor time of each process for one of `count` transactions."""
    spent = {role: after[role] - before.get(role, 0.0) for role in after}
    return {role: round(1e3 * seconds / max(1, count), 3) for role, seconds in spent.items()}


def figures_of(done: Sequence[Done], checked: Sequence[Checked], seconds: float) -> dict[str, Any]:
    """Return the figures of a run.

    Args:
        done: The transactions of the measured time.
        checked: The checks of the conditions.
        seconds: The measured time; transactions that ended later do not count in rates.
    """
    began = min((one.timed.sent_s for one in done), default=0.0)
    inside = [one for one in done if one.timed.sent_s + one.timed.committed_s <= began + seconds]
    right = [one for one in inside if one.is_right]
    orders = [one for one in right if one.kind == "new-order" and not one.rolls_back]
    per_second = Counter(int(one.timed.sent_s + one.timed.committed_s - began) for one in orders)
    return {
        **rates_of(done, seconds),
        "seconds": seconds,
        "transactions": {
            kind: {
                "count": len(some),
                "percent": round(100 * len(some) / max(1, len(inside)), 2),
                "rolled_back": sum(one.rolls_back for one in some),
                **latencies_of([one.timed for one in some]),
            }
            for kind in WEIGHTS
            for some in [[one for one in right if one.kind == kind]]
        },
        "violations": sum(len(one.violations) for one in checked),
        "checks": [asdict(one) for one in checked],
        "new_orders_by_second": [per_second[second] for second in range(int(seconds))],
    }


def report(found: Mapping[str, Any]) -> str:
    """Return the figures as text for people."""
    scale = (
        "the full scale"
        if found["full_scale"]
        else (
            f"NOT the full scale: {found['items']:,} items, {found['customers_per_district']:,} "
            "customers in a district"
        )
    )
    waits = "with" if found["keying_and_think_times"] else "without"
    head = (
        "transaction",
        "count:",
        "%:",
        *(
            f"{which} {one} ms:"
            for which in ("accepted", "committed")
            for one in ("p50", "p90", "p99")
        ),
    )
    rows = [
        (
            kind,
            f"{one['count']:,}",
            f"{one['percent']:.1f}",
            *(
                "-" if value is None else f"{value:,.1f}"
                for which in ("accepted_ms", "committed_ms")
                for value in one[which].values()
            ),
        )
        for kind, one in found["transactions"].items()
    ]
    checks = found["checks"]
    during = sum(one["during"] for one in checks)
    verdict = f"{found['violations']} violated" if found["violations"] else "all hold"
    costs = ", ".join(f"{role} {cost:.2f}" for role, cost in found.get("cpu_ms", {}).items())
    return "\n".join(
        (
            f"TPC-C transactions, not audited. Warehouses: {found['warehouses']}, {scale}. "
            f"Terminals: {found['terminals']}, {waits} keying and think times.",
            f"{found['new_orders_per_minute']:,.0f} New-Orders a minute, "
            f"{found['transactions_per_s']:,.1f} transactions a second, {found['failures']} failures "
            f"{found['failure_examples'] or ''}",
            f"Conditions 1 to 12 in {len(checks)} epochs, {during} of them while terminals worked: "
            f"{verdict}.",
            f"Processor time of a transaction in ms: {costs}.",
            "",
            table(head, rows),
        )
    )


if __name__ == "__main__":
    main()
