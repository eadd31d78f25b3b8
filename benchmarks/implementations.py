"""Compare the compiled implementation with Python: the processor time of a checkout in a task, without Spark and disk.

    python -m benchmarks.implementations

Each turn is a process of its own. The turns alternate, so that a change of the machine's speed meets both. A task runs
checkouts in order over a state in memory, with limits and access sets, as a task of a large epoch does. The last line is JSON.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Final

import numpy as np

from benchmarks.harness import shop
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Limits
from penstock.engine.task import Task
from penstock.native.choice import DISABLE, REQUIRE, VARIABLE
from penstock.process.guard import Guard

ENTITIES: Final = 20_000
CHECKOUTS: Final = 10_000
AT_ONCE: Final = 500
REPEATS: Final = 5
NAMES: Final = {DISABLE: "Python", REQUIRE: "compiled"}


def state_of_shop(generator: np.random.Generator) -> dict[EntityKey, bytes]:
    """Return the state of a shop with items, users and orders."""
    state: dict[EntityKey, bytes] = {}
    executor = Executor(shop.app, state.get, Limits())
    calls: list[tuple[str, tuple[Any, ...]]] = []
    for first in range(0, ENTITIES, AT_ONCE):
        calls += [("load_items", (first, AT_ONCE)), ("load_users", (first, AT_ONCE))]
    for first in range(0, ENTITIES, AT_ONCE):
        sizes = generator.integers(1, 4, AT_ONCE).tolist()
        orders = [
            (int(generator.integers(ENTITIES)), generator.integers(0, ENTITIES, size).tolist())
            for size in sizes
        ]
        calls.append(("load_orders", (first, orders)))
    for number, (name, arguments) in enumerate(calls):
        body, _ = shop.app.request("", None, name, arguments)
        outcome = executor.run(RequestId(f"load{number}"), body, 0)
        assert outcome.error is None, outcome
        for key, data in outcome.writes.items():
            assert data is not None, "nothing is deleted"
            state[key] = data
    return state


def checkout_us() -> float:
    """Return the processor time of a checkout in microseconds: the median of some runs over the same state."""
    generator = np.random.default_rng(1)
    state = state_of_shop(generator)
    bodies = [shop.app.request("Order", str(number), "reorder")[0] for number in range(ENTITIES)]
    order = generator.permutation(ENTITIES)[:CHECKOUTS].tolist()
    gc.collect()
    gc.freeze()
    spent = []
    for _ in range(REPEATS):
        task = Task(shop.app, state.get, Limits(), keys=lambda _: [])
        began = time.process_time()
        with Guard(task.executor, Limits(), batched=True) as guard:
            for position, number in enumerate(guard.each(order)):
                task.run(position, RequestId(f"r{number}"), bodies[number], 0)
        task.access()
        spent.append((time.process_time() - began) / CHECKOUTS * 1e6)
    return statistics.median(spent)


def measured(wish: str) -> float:
    """Measure an implementation in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.implementations", "--turn"]
    environment = {**os.environ, VARIABLE: wish}
    return float(
        subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    )


def main() -> None:
    """Measure both in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="processes of each implementation")
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(checkout_us())
        return
    figures: dict[str, list[float]] = {name: [] for name in NAMES.values()}
    for turn in range(options.turns):
        for wish, name in NAMES.items():
            figures[name].append(measured(wish))
        print(f"turn {turn + 1} of {options.turns}", file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    ratios = [python / compiled for python, compiled in zip(*figures.values(), strict=True)]
    for name, values in figures.items():
        print(
            f"{name:10} {medians[name]:6.1f} µs a checkout ({min(values):.1f} to {max(values):.1f})"
        )
    print(
        f"Python takes {statistics.median(ratios):.2f} times as long ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    print(json.dumps({"us_per_checkout": medians, "ratio": statistics.median(ratios)}))


if __name__ == "__main__":
    main()
