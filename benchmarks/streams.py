"""Measure streams: portal round trips, countdowns, running counts; and the same counts by other means.

    python -m benchmarks.streams [--case local-count --case count] [--seconds 5] [--json]

| case | work |
|---|---|
| local-portal, portal | atoms of 1,000 events; each event asks a portal and takes the reply |
| local-countdown, countdown | 131,072 questions, each asked by the handler of the question before it |
| local-count, count | a running count of 10,000 words in atoms of 1,000 |
| local-count-large, count-large | the same in atoms of 100,000 |
| checkout, checkout-emit | checkouts of the shop; without, and with an event to a workflow with one global task |
| follow | 500 appends a second over HTTP: the time until a follower of a workflow's stream has the event |
| transform-with-state | the large atoms by Spark's own operator: `benchmarks.transform_with_state` |

The cases `local-…` run in `LocalRuntime`: one thread, in memory. The other cases of Penstock run on Spark
and are durable: from the append to the log until the journal has the results. Each case checks its results
before it prints a figure. The columns `of …` divide the figure by that of
another case.

Prints a table; with `--json` also one JSON object as its last line. The exit code is 1 when a check fails.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import stream_apps, stream_shop
from benchmarks.machine import figures_of, machine, module
from benchmarks.stream_apps import (
    countdown,
    countdowns,
    counting,
    counts,
    depths,
    numbers,
    portals,
    replies,
    words,
    words_of,
)
from benchmarks.stream_engine import Engine, engine
from benchmarks.stream_latency import follow
from penstock import LocalRuntime
from penstock.model.streams.stream import Stream

QUESTIONS: Final = 131_072
EVENTS: Final = 1_000
LARGE: Final = 100_000
KEYS: Final = 10_000
SEED: Final = 7
APPS: Final = stream_apps.__file__
CHECKOUTS_PER_S: Final = 4_000
APPENDS_PER_S: Final = 500
EVENT: Final = "events"
REPLY: Final = "replies"
WARM_UP: Final = 3
"""Atoms that come first and do not count."""
EXPECTED_PER_S: Final = 20_000
"""So many events for each second of a case on Spark are appended at once."""
PEERS: Final = ("checkout", "transform-with-state")


@dataclass(frozen=True, slots=True)
class Row:
    """The figure of a case.

    Attributes:
        case: The name of the case.
        per_s: Round trips or events in a second.
        unit: The noun of `per_s`.
        seconds: The measured time.
        checked: Whether the results were right.
        latency_ms: The median and the 99th percentile of an event; empty for the other cases.
        accepted_ms: The same until the append of the event is durable.
        ratios: The figure over the figure of each peer that ran.
        figures: All figures of a peer's own program.
    """

    case: str
    per_s: float
    unit: str
    seconds: float
    checked: bool
    latency_ms: dict[str, float] = field(default_factory=dict)
    accepted_ms: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a run.

    Attributes:
        seconds: The time of each case; a case always finishes its atom.
        questions: The depth of the countdown.
        keys: The number of different words.
        cores: The cores, and partitions, of Spark.
        directory: The place of all data.
    """

    seconds: float
    questions: int
    keys: int
    cores: int
    directory: Path


def local_portal(plan: Plan) -> Row:
    """Ask a portal from each event, in one thread."""
    runtime = LocalRuntime(portals)
    asked, took_s = 0, 0.0
    while took_s < plan.seconds:
        asking = list(range(asked, asked + EVENTS))
        took_s += timed(partial(runtime.append, "numbers", asking))
        asked += EVENTS
    is_right = local_events(runtime, replies) == [2 * number for number in range(asked)]
    return Row("local-portal", asked / took_s, REPLY, took_s, is_right)


def portal(plan: Plan) -> Row:
    """Ask a portal from each event, on Spark."""
    with running(f"{APPS}:portals", plan) as engine:
        engine.take(numbers, [list(range(EVENTS))] * WARM_UP)
        atoms = [list(range(EVENTS))] * max(1, int(plan.seconds * EXPECTED_PER_S / EVENTS))
        took_s = engine.take(numbers, atoms)
        replied = engine.events(replies)
    is_right = replied == [2 * number for number in range(EVENTS)] * (WARM_UP + len(atoms))
    return Row("portal", len(atoms) * EVENTS / took_s, REPLY, took_s, is_right)


def local_countdown(plan: Plan) -> Row:
    """Ask questions that wait for each other, in one thread."""
    runtime = LocalRuntime(countdown)

    def run() -> None:
        runtime.append("depths", [plan.questions])
        while not runtime.settle():
            pass

    took_s = timed(run)
    is_right = local_events(runtime, countdowns) == [plan.questions]
    return Row("local-countdown", plan.questions / took_s, REPLY, took_s, is_right)


def durable_countdown(plan: Plan) -> Row:
    """Ask questions that wait for each other, on Spark."""
    with running(f"{APPS}:countdown", plan) as engine:
        took_s = engine.take(depths, [[plan.questions]]) + engine.wait_for_result(countdowns)
        is_right = engine.events(countdowns) == [plan.questions]
    return Row("countdown", plan.questions / took_s, REPLY, took_s, is_right)


def local_count(plan: Plan) -> Row:
    """Count words in atoms of 1,000, in one thread."""
    return _local_count("local-count", plan, EVENTS)


def local_count_large(plan: Plan) -> Row:
    """Count words in atoms of 100,000, in one thread."""
    return _local_count("local-count-large", plan, LARGE)


def _local_count(case: str, plan: Plan, events: int) -> Row:
    runtime = LocalRuntime(counting)
    drawn = random.Random(SEED)
    every: list[str] = []
    took_s = 0.0
    while took_s < plan.seconds:
        batch = words_of(drawn, events, plan.keys)
        took_s += timed(partial(runtime.append, "words", batch))
        every += batch
    is_right = local_events(runtime, counts) == numbered(every)
    return Row(case, len(every) / took_s, EVENT, took_s, is_right)


def count(plan: Plan) -> Row:
    """Count words in atoms of 1,000, on Spark."""
    return _durable_count("count", plan, EVENTS)


def count_large(plan: Plan) -> Row:
    """Count words in atoms of 100,000, on Spark."""
    return _durable_count("count-large", plan, LARGE)


def _durable_count(case: str, plan: Plan, events: int) -> Row:
    drawn = random.Random(SEED)
    measured = max(2, int(plan.seconds * EXPECTED_PER_S / events))
    atoms = [words_of(drawn, events, plan.keys) for _ in range(WARM_UP + measured)]
    with running(f"{APPS}:counting", plan) as engine:
        engine.take(words, atoms[:WARM_UP])
        took_s = engine.take(words, atoms[WARM_UP:])
        counted = engine.events(counts)
    is_right = counted == numbered([word for atom in atoms for word in atom])
    return Row(case, measured * events / took_s, EVENT, took_s, is_right)


def checkout(plan: Plan) -> Row:
    """Check orders out."""
    return _checked_out("checkout", plan, "check_out")


def checkout_emit(plan: Plan) -> Row:
    """Check orders out, and publish an event each time."""
    return _checked_out("checkout-emit", plan, "check_out_and_tell")


def _checked_out(case: str, plan: Plan, function: str) -> Row:
    measured = int(plan.seconds * CHECKOUTS_PER_S)
    with running(f"{stream_shop.__file__}:shop", plan) as engine:
        engine.run(stream_shop.loading())
        engine.run(stream_shop.checkouts(function, measured // 4))
        took_s = engine.run(stream_shop.checkouts(function, measured))
        costs = engine.replies(measured + measured // 4)
        sums = engine.events(stream_shop.revenues)
    is_right = all(isinstance(cost, int) for cost in costs)
    if function == "check_out_and_tell":
        is_right = is_right and sums == list(accumulate(costs))
    return Row(case, measured / took_s, "checkouts", took_s, is_right)


def follow_events(plan: Plan) -> Row:
    """Append over HTTP, and follow the results."""
    accepted, came, is_right = follow(plan.directory, APPENDS_PER_S, plan.seconds)
    return Row(
        "follow",
        len(came) / plan.seconds,
        "appends",
        plan.seconds,
        is_right,
        latency_ms=_percentiles(came),
        accepted_ms=_percentiles(accepted),
    )


def _percentiles(times_ms: list[float]) -> dict[str, float]:
    low, high = np.percentile(times_ms, [50, 99])
    return {"p50": round(float(low), 1), "p99": round(float(high), 1)}


def transform_with_state(plan: Plan) -> Row:
    """Count numbers by Spark's own stateful operator."""
    chosen = {"seconds": plan.seconds, "records": LARGE, "keys": plan.keys, "cores": plan.cores}
    options = [text for name, value in chosen.items() for text in (f"--{name}", str(value))]
    with tempfile.NamedTemporaryFile(suffix=".log") as messages:
        command = module("transform_with_state", *options, "--directory", plan.directory)
        figures = figures_of(command, Path(messages.name))
    measured_s = figures["batches"] * figures["batch_ms"] / 1_000
    return Row(
        "transform-with-state",
        figures["records_per_s"],
        EVENT,
        measured_s,
        figures["checked"],
        figures=figures,
    )


CASES: Final[dict[str, Callable[[Plan], Row]]] = {
    "local-portal": local_portal,
    "portal": portal,
    "local-countdown": local_countdown,
    "countdown": durable_countdown,
    "local-count": local_count,
    "count": count,
    "local-count-large": local_count_large,
    "count-large": count_large,
    "checkout": checkout,
    "checkout-emit": checkout_emit,
    "follow": follow_events,
    "transform-with-state": transform_with_state,
}


@contextmanager
def running(spec: str, plan: Plan) -> Iterator[Engine]:
    """Run an application on Spark, in a directory of its own."""
    with (
        tempfile.TemporaryDirectory(dir=plan.directory, prefix="penstock-streams-") as folder,
        engine(spec, Path(folder), plan.cores) as started,
    ):
        yield started


def numbered(every: list[str]) -> list[tuple[str, int]]:
    """Return each word with its number so far, by a plain loop."""
    seen: Counter[str] = Counter()
    results = []
    for word in every:
        seen[word] += 1
        results.append((word, seen[word]))
    return results


def timed(action: Callable[[], object]) -> float:
    """Return the seconds of an action."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def local_events(runtime: LocalRuntime, stream: Stream[Any]) -> list[Any]:
    """Return the events of all atoms of a stream."""
    return [stream.events.decode(data) for atom in runtime.streams[stream.name] for data in atom]


def with_ratios(rows: list[Row]) -> list[Row]:
    """Return the rows with the ratios to the peers that ran."""
    peers = [row for row in rows if row.case in PEERS]
    return [
        replace(
            row,
            ratios={
                peer.case: row.per_s / peer.per_s
                for peer in peers
                if peer.case != row.case and peer.unit == row.unit
            },
        )
        for row in rows
    ]


def table_of(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    heads = [
        "case",
        "per second",
        "seconds",
        "accepted p50 ms",
        "accepted p99 ms",
        "p50 ms",
        "p99 ms",
        *(f"of {peer}" for peer in PEERS),
        "checked",
    ]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        ratios = [f"{row.ratios[peer]:.2f}" if peer in row.ratios else "" for peer in PEERS]
        checked = "yes" if row.checked else "NO"
        times = [
            f"{latency[name]:.0f}" if latency else ""
            for latency in (row.accepted_ms, row.latency_ms)
            for name in ("p50", "p99")
        ]
        rate = f"{row.per_s:,.0f} {row.unit}"
        lines.append([row.case, rate, f"{row.seconds:.1f}", *times, *ratios, checked])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", choices=CASES, help="a case; default: all cases")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each case")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="of the countdown")
    parser.add_argument("--keys", type=int, default=KEYS, help="the number of different words")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    plan = Plan(chosen.seconds, chosen.questions, chosen.keys, chosen.cores, chosen.directory)
    rows: list[Row] = []
    try:
        for case in chosen.case or CASES:
            print(f"{case} …", file=sys.stderr, flush=True)
            rows.append(CASES[case](plan))
    finally:  # the figures so far, also when a case fails
        rows = with_ratios(rows)
        print(table_of(rows), flush=True)
    if chosen.json:
        described = {"machine": machine(chosen.directory), "rows": [asdict(row) for row in rows]}
        print(json.dumps(described))
    sys.exit(not all(row.checked for row in rows))


if __name__ == "__main__":
    main()
