"""Measure a hand-written PySpark job: a running count of keys, in order, without durability.

    python -m benchmarks.rdd_count [--seconds 20] [--records 100000] [--keys 10000]

Each batch of words becomes an RDD. Spark moves each word to the partition of its key; there, a function sorts the
words by their place in the batch, adds one to the counter of each word, and keeps the word with its number. The
counters are a cached RDD with a dictionary for each partition. Nothing is written to a disk on purpose, so a failure
loses everything: this is the work of a Penstock workflow without its guarantees.

Some batches come first and do not count. Afterwards the counters must equal those of a plain loop, and each batch must
have as many results as words. Prints one JSON object as its last line; the exit code is 1 when they differ.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from penstock.runtime.spark.java import java_home

SETTINGS: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
SEED: Final = 7
WARM_UP_BATCHES: Final = 3
MEASURED_BATCHES_MIN: Final = 3

Counts = dict[str, int]
Numbered = tuple[str, int]
"""A word, and its place in the batch or its number so far."""


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a run.

    Attributes:
        records_per_s: Words of the measured batches in a second.
        batch_ms: Median time of a batch.
        batches: The number of measured batches.
        records: The words of each batch.
        keys: The number of different words.
        cores: The cores, and partitions.
        checked: Whether counters and results are right.
    """

    records_per_s: float
    batch_ms: float
    batches: int
    records: int
    keys: int
    cores: int
    checked: bool


def count(both: tuple[Counts, list[Numbered]]) -> tuple[Counts, list[Numbered]]:
    """Count the words of one partition in their order; return the counters, and each word with its number."""
    counts, words = both
    results = []
    for word, _ in sorted(words, key=itemgetter(1)):
        counts[word] = total = counts.get(word, 0) + 1
        results.append((word, total))
    return counts, results


class RunningCount:
    """The job: the counters after the batches so far, as an RDD."""

    def __init__(self, context: SparkContext, partitions: int) -> None:
        self._context = context
        self._partitions = partitions
        empty: list[tuple[Counts, list[Numbered]]] = [({}, []) for _ in range(partitions)]
        self._last: RDD[tuple[Counts, list[Numbered]]] = context.parallelize(empty, partitions)

    def take(self, words: list[str]) -> int:
        """Count a batch; return the number of its results."""
        placed = [(word, place) for place, word in enumerate(words)]
        events = self._context.parallelize(placed, self._partitions)
        moved = events.partitionBy(self._partitions).glom()
        counted = self._last.map(itemgetter(0)).zip(moved).map(count)
        counted.localCheckpoint()  # or the plan would grow with each batch
        results = counted.map(lambda both: len(both[1])).sum()
        self._last.unpersist()
        self._last = counted
        return int(results)

    def counts(self) -> Counts:
        """Return all counters."""
        found: Counts = {}
        for counts, _ in self._last.collect():
            found.update(counts)
        return found


def batch_of(drawn: random.Random, records: int, keys: int) -> list[str]:
    """Return words, drawn uniformly."""
    return [f"w{number}" for number in drawn.choices(range(keys), k=records)]


def measure(chosen: argparse.Namespace, scratch: Path) -> Result:
    """Run batches for the seconds, and check the counters."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("JAVA_HOME", str(java_home(scratch)))
    builder: Any = SparkSession.builder.appName("rdd-count").master(f"local[{chosen.cores}]")
    for setting, value in {**SETTINGS, "spark.local.dir": str(scratch)}.items():
        builder = builder.config(setting, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    drawn, expected = random.Random(SEED), Counter[str]()
    took_s: list[float] = []
    is_right = True
    try:
        job = RunningCount(session.sparkContext, chosen.cores)
        while (
            enough(took_s) < chosen.seconds or len(took_s) < WARM_UP_BATCHES + MEASURED_BATCHES_MIN
        ):
            words = batch_of(drawn, chosen.records, chosen.keys)
            expected.update(words)
            began = time.perf_counter()
            is_right = job.take(words) == len(words) and is_right
            took_s.append(time.perf_counter() - began)
        is_right = is_right and job.counts() == dict(expected)
    finally:
        session.stop()
    measured = took_s[WARM_UP_BATCHES:]
    return Result(
        records_per_s=round(len(measured) * chosen.records / sum(measured), 1),
        batch_ms=round(median(measured) * 1_000, 1),
        batches=len(measured),
        records=chosen.records,
        keys=chosen.keys,
        cores=chosen.cores,
        checked=is_right,
    )


def enough(took_s: Iterable[float]) -> float:
    """Return the measured seconds so far."""
    return sum(list(took_s)[WARM_UP_BATCHES:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--records", type=int, default=100_000, help="in each batch")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory, prefix="penstock-rdd-") as name:
        result = measure(chosen, Path(name))
    print(json.dumps(asdict(result)))
    sys.exit(not result.checked)


if __name__ == "__main__":
    main()
