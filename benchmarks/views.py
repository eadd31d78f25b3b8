"""Measure views: their targets by themselves, the feed from a journal, and a running application.

    python -m benchmarks.views [--parts targets,search,feed,query,service] [--rows 1000000] [--changes 200000] [--batch 5000]
                               [--target sqlite,postgres]

Each part is a process of its own. `search`, `feed`, `query` and `service` are described in `benchmarks.search`,
`benchmarks.views_feed`, `benchmarks.views_query` and `benchmarks.views_service`. In the part `targets` rows are given as tuples, and no journal is read:

fill
    `load` of a table of five columns into an empty target.
drain
    `apply` of batches, each one epoch and one transaction; each change gives one entity, drawn at random, a new value.
refill
    `load` into the full target; one row in a hundred is different.

PostgreSQL is a throw-away server with its default durability (see `cluster.py`). `peak_mb` is the most memory of this
process, which is that of an applier without the reading of the journal. Prints each figure that has a reach with the ratio
of the two, and one JSON object as its last line.
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster import running_cluster
from penstock.base.ids import Epoch
from penstock.views.postgres_target import PostgresTarget
from penstock.views.sqlite_target import SqliteTarget
from penstock.views.target import (
    Kind,
    Position,
    Row,
    TableChange,
    TableShape,
    Target,
)

SHAPE: Final = TableShape.of(
    "Item",
    1,
    {
        "_key": Kind.TEXT,
        "item_id": Kind.TEXT,
        "price": Kind.INTEGER,
        "stock": Kind.INTEGER,
        "weight": Kind.FLOAT,
        "name": Kind.TEXT,
    },
)
CHUNK: Final = 5_000
SEED: Final = 7

REACHES: Final = {
    "targets.sqlite.fill_s": ("≤", 15),
    "targets.postgres.fill_s": ("≤", 20),
    "search.fill_s": ("≤", 60),
    "targets.sqlite.drained_per_s": ("≥", 20_000),
    "targets.postgres.drained_per_s": ("≥", 20_000),
    "search.drain_5000.rows_per_s": ("≥", 5_000),
    "search.search.p50_ms": ("≤", 20),
    "feed.sqlite.fill_s": ("≤", 15),
    "feed.sqlite.peak_mb": ("≤", 300),
    "feed.sqlite.drained_per_s": ("≥", 20_000),
    "feed.search.fill_s": ("≤", 60),
    "feed.search.peak_mb": ("≤", 300),
    "feed.search.drained_per_s": ("≥", 5_000),
    "service.turns.0.visible.reporting.p50_ms": ("≤", 150),
    "service.turns.0.visible.catalogue.p50_ms": ("≤", 150),
    "service.turns.0.at.1.p50_ms": ("≤", 200),
}
"""The figures that have a reach, by their place in the result."""


def position_of(epoch: int) -> Position:
    """Return the position of an epoch."""
    return Position("lineage", "journal", Epoch(epoch), f"{epoch:032}", "definition")


def row_of(number: int, stock: int) -> Row:
    """Return the row of an item."""
    key = f"item-{number:08}"
    return (key, key, 1 + number % 100, stock, number / 8, f"the item with number {number}", None)


def parts_of(rows: int, *, every: int = 0) -> Iterator[TableChange]:
    """Yield all rows in parts; each `every`-th one is different."""
    for first in range(0, rows, CHUNK):
        numbers = range(first, min(rows, first + CHUNK))
        yield TableChange(
            SHAPE,
            (),
            [row_of(number, -1 if every and number % every == 0 else 100) for number in numbers],
        )


def batches_of(rows: int, changes: int, batch: int) -> Iterator[TableChange]:
    """Yield batches of changes."""
    draw = random.Random(SEED)
    for at in range(0, changes, batch):
        numbers = draw.sample(range(rows), min(batch, rows))
        changed = [row_of(number, at) for number in numbers]
        yield TableChange(SHAPE, [row[0] for row in changed], changed)


@contextmanager
def opened(name: str, directory: Path) -> Iterator[Target]:
    """Give an empty target."""
    if name == "postgres":
        with running_cluster(directory) as cluster:
            target: Target = PostgresTarget(cluster.address, "reporting", "reporting")
            yield target
            target.close()
        return
    folder = Path(tempfile.mkdtemp(dir=directory, prefix="penstock-views-"))
    target = SqliteTarget(folder / "view.sqlite", "reporting")
    yield target
    target.close()
    shutil.rmtree(folder)


def measured(target: Target, rows: int, changes: int, batch: int) -> dict[str, Any]:
    """Fill, drain, and fill again; return the figures."""
    figures: dict[str, Any] = {}
    began, began_cpu = time.perf_counter(), time.process_time()
    target.load(None, position_of(1), [SHAPE], parts_of(rows))
    figures["fill_s"] = round(time.perf_counter() - began, 2)
    figures["fill_cpu_s"] = round(time.process_time() - began_cpu, 2)
    epoch, spent_s, took_ms = 1, 0.0, []
    for change in batches_of(rows, changes, batch):
        began = time.perf_counter()
        target.apply(position_of(epoch), position_of(epoch + 1), [change])
        took_ms.append(1_000 * (time.perf_counter() - began))
        spent_s += took_ms[-1] / 1_000
        epoch += 1
    figures["drained_per_s"] = round(len(took_ms) * min(batch, rows) / spent_s)
    figures["apply_p50_ms"] = round(sorted(took_ms)[len(took_ms) // 2], 1)
    began = time.perf_counter()
    target.load(position_of(epoch), position_of(epoch + 1), [SHAPE], parts_of(rows, every=100))
    figures["refill_s"] = round(time.perf_counter() - began, 2)
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return figures


def of_targets(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure the targets of databases."""
    figures: dict[str, Any] = {}
    for name in chosen.target.split(","):
        with opened(name, chosen.directory) as target:
            figures[name] = measured(target, chosen.rows, chosen.changes, chosen.batch)
    return figures


def of_child(*words: object) -> Any:
    """Return the JSON object in the last line of a module's output; it begins with a memory of its own."""
    command = [sys.executable, "-m", *map(str, words)]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(told.splitlines()[-1])


def of_part(part: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure one part."""
    rows = ("--rows", chosen.rows)
    match part:
        case "targets":
            return {
                name: of_child("benchmarks.views", "--parts", "", "--target", name, *rows)[name]
                for name in chosen.target.split(",")
            }
        case "search":
            figures: dict[str, Any] = of_child("benchmarks.search", *rows)
            return figures
        case "feed":
            return {
                kind: of_child("benchmarks.views_feed", kind, *rows)
                for kind in ("sqlite", "search")
            }
        case "query":
            queried: dict[str, Any] = of_child("benchmarks.views_query")
            return queried
        case "service":
            return {"turns": of_child("benchmarks.views_service")}
        case _:
            raise SystemExit(f"there is no part {part}")


def found_in(figures: Any, path: str) -> Any:
    """Return the figure at a path of names and numbers; None if its part was not measured."""
    for name in path.split("."):
        try:
            figures = figures[int(name) if isinstance(figures, list) else name]
        except (KeyError, IndexError):
            return None
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="targets,search,feed,query,service", metavar="NAME,…")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=5_000, help="changes of an epoch")
    parser.add_argument("--target", default="sqlite,postgres", metavar="NAME,…")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    if not chosen.parts:  # a child of this program
        print(json.dumps(of_targets(chosen)))
        return
    results = {part: of_part(part, chosen) for part in chosen.parts.split(",")}
    for path, (sign, reach) in REACHES.items():
        if (figure := found_in(results, path)) is not None:
            print(f"{path:45}{figure:>12,} {sign} {reach:>7,} {figure / reach:9.2f}")
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"rows": chosen.rows, "load": load, **results}))


if __name__ == "__main__":
    main()
