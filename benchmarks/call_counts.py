"""Measure what counting who calls whom costs: checkouts in an executor, with and without.

Prints one JSON object: medians and best of `--repeat` pairs of runs, interleaved, in microseconds
of processor time for each checkout.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

from penstock.base.ids import EntityKey, RequestId
from penstock.deployment.loading import load_app
from penstock.engine.calls import CallSampler, members_of
from penstock.engine.execute import Executor, Limits

SHOP = Path(__file__).parent.parent / "examples" / "shop"
COUNT = 5_000
PLENTY = 10**9


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    app = load_app(str(SHOP))
    members = members_of(app)
    state: dict[EntityKey, bytes | None] = {}
    executor = Executor(app, state.get, Limits())
    for name, arguments in [
        ("init_items", (1_000, PLENTY, 1)),
        ("init_users", (1_000, PLENTY)),
        ("init_orders", (COUNT, 1_000, 1_000, 1)),
    ]:
        body, _ = app.request("", None, name, arguments)
        state.update(executor.run(RequestId(name), body, 0).writes)
    bodies = [app.request("Order", str(number), "checkout")[0] for number in range(COUNT)]

    def run(*, counted: bool) -> float:
        mine = dict(state)
        executor = Executor(app, mine.get, Limits())
        began = time.process_time()
        if counted:
            executor.sampler = CallSampler(members)
        for number, body in enumerate(bodies):
            mine.update(executor.run(RequestId(str(number)), body, 0).writes)
        if executor.sampler is not None:
            executor.sampler.samples()
        return (time.process_time() - began) / COUNT * 1e6

    without, counted = [], []
    for _ in range(options.repeat):
        without.append(run(counted=False))
        counted.append(run(counted=True))
    figures = {"without_us": median(without), "counted_us": median(counted)}
    figures |= {"without_best_us": min(without), "counted_best_us": min(counted)}
    figures["added_us"] = median(
        after - before for before, after in zip(without, counted, strict=True)
    )
    json.dump({name: round(value, 3) for name, value in figures.items()}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
