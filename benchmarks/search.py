"""Measure a search index as the target of a view: rows are given as tuples, no journal is read.

    python -m benchmarks.search [--rows 1000000] [--seconds 10]

fill
    `load` of a table with five words, a brand that is counted, a price, a number and a time in each row.
drain
    `apply` of batches of 10, 1,000 and 5,000 rows, each one commit.
search
    Two words, and two words with a count, a condition and highlights, while 500 rows change in each 0.2 s.

`peak_mb` is the most memory of this process, with the pages of the index that it has read. Prints one JSON object as its
last line.
"""

import argparse
import json
import random
import resource
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from penstock.base.ids import Epoch
from penstock.model.target_choice import search
from penstock.views.search_index import SearchIndex, SearchQuery
from penstock.views.search_target import SearchTarget
from penstock.views.target import (
    Kind,
    Position,
    Row,
    TableChange,
    TableShape,
)

SHAPE: Final = TableShape.of(
    "Item",
    1,
    {
        "_key": Kind.TEXT,
        "item_id": Kind.TEXT,
        "name": Kind.TEXT,
        "brand": Kind.TEXT,
        "price": Kind.DECIMAL,
        "stock": Kind.INTEGER,
        "made": Kind.TIMESTAMP,
    },
)
WORDS: Final = [f"{first}{last}" for first in "bcdfghklmnprstvwz" for last in "aeiou" * 3] + [
    f"{first}{middle}{last}" for first in "bdgkmnprst" for middle in "aeiou" for last in "lnrst"
]
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
CHUNK: Final = 2_000
SEARCHES: Final = 200


def position_of(epoch: int) -> Position:
    """Return the position of an epoch."""
    return Position("lineage", "journal", Epoch(epoch), f"{epoch:032}", "definition")


class Load:
    """Rows that are drawn at random, and a target that takes them."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self.draw = random.Random(7)
        self.target = SearchTarget(folder, search(text=["name"], facets=["brand"]))
        self.epoch = 0

    def row(self, number: int) -> Row:
        """Return a new row of an item."""
        draw = self.draw
        return (
            f"i{number}",
            f"i{number}",
            " ".join(draw.choices(WORDS, k=5)),
            f"Brand {draw.randrange(50)}",
            Decimal(draw.randrange(100_000)) / 100,
            draw.randrange(1_000),
            BEGIN + timedelta(microseconds=draw.randrange(10**13)),
            None,
        )

    def parts(self) -> Iterator[TableChange]:
        """Yield all rows in parts."""
        for first in range(0, self.rows, CHUNK):
            numbers = range(first, min(self.rows, first + CHUNK))
            yield TableChange(SHAPE, (), [self.row(number) for number in numbers])

    def fill(self) -> None:
        """Fill the index."""
        self.target.load(None, position_of(0), [SHAPE], self.parts())

    def change(self, count: int) -> float:
        """Change some rows, and return the seconds that it took."""
        numbers = self.draw.sample(range(self.rows), count)
        rows = [self.row(number) for number in numbers]
        change = TableChange(SHAPE, [f"i{number}" for number in numbers], rows)
        began = time.perf_counter()
        self.target.apply(position_of(self.epoch), position_of(self.epoch + 1), [change])
        self.epoch += 1
        return time.perf_counter() - began


def peak_mb() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def quantiles_ms(times_s: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th percentile and the maximum."""
    cuts = statistics.quantiles(times_s, n=20)
    return {
        "p50_ms": round(cuts[9] * 1_000, 1),
        "p95_ms": round(cuts[18] * 1_000, 1),
        "max_ms": round(max(times_s) * 1_000, 1),
    }


def drained(load: Load, count: int, seconds: float) -> dict[str, float]:
    """Change rows for some seconds."""
    times_s = [load.change(count)]
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(times_s) < 2:
        times_s.append(load.change(count))
    return {"rows_per_s": round(count * len(times_s) / sum(times_s)), **quantiles_ms(times_s)}


def searched(ask: Callable[[str], object], draw: random.Random) -> dict[str, float]:
    """Ask for two words each time."""
    times_s = []
    for _ in range(SEARCHES):
        text = " ".join(draw.choices(WORDS, k=2))
        began = time.perf_counter()
        ask(text)
        times_s.append(time.perf_counter() - began)
        time.sleep(0.01)
    return quantiles_ms(times_s)


def measured(folder: Path, rows: int, seconds: float) -> dict[str, Any]:
    """Fill, drain and search; return the figures."""
    load = Load(folder, rows)
    began, began_cpu = time.perf_counter(), time.process_time()
    load.fill()
    figures: dict[str, Any] = {
        "rows": rows,
        "fill_s": round(time.perf_counter() - began, 1),
        "fill_cpu_s": round(time.process_time() - began_cpu, 1),
        "index_mb": sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) >> 20,
        "fill_peak_mb": peak_mb(),
    }
    for count in (10, 1_000, 5_000):
        figures[f"drain_{count}"] = drained(load, count, seconds)
    stop = threading.Event()

    def feed() -> None:
        while not stop.wait(0.2):
            load.change(500)

    feeding = threading.Thread(target=feed)
    feeding.start()
    index, draw = SearchIndex(folder), random.Random(3)
    full = {"facets": ("brand",), "highlight": True, "filters": {"price": {"<": 500}}}
    figures["search"] = searched(lambda text: index.search(SearchQuery(query=text)), draw)
    figures["search_full"] = searched(
        lambda text: index.search(SearchQuery(query=text, **full)),  # type: ignore[arg-type]
        draw,
    )
    stop.set()
    feeding.join()
    load.target.close()
    return {**figures, "peak_mb": peak_mb()}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-search-"))
    try:
        print(json.dumps(measured(folder, options.rows, options.seconds)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
