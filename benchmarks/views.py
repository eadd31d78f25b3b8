"""Measure the targets of views by themselves: rows are given as tuples, no journal is read.

    python -m benchmarks.views [--rows 1000000] [--changes 200000] [--batch 5000] [--target sqlite,postgres]

fill
    `load` of a table of five columns into an empty target.
drain
    `apply` of batches, each one epoch and one transaction; each change gives one entity, drawn at random, a new value.
refill
    `load` into the full target; one row in a hundred is different.

PostgreSQL is a throw-away server with its default durability (see `cluster.py`). `peak_mb` is the most memory of this
process, which is that of an applier without the reading of the journal. Prints one JSON object as its last line.
"""

import argparse
import json
import random
import resource
import shutil
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
    UNSHOWN,
    ColumnShape,
    Kind,
    Position,
    Row,
    TableChange,
    TableShape,
    Target,
)

SHAPE: Final = TableShape(
    "Item",
    1,
    (
        ColumnShape("_key", Kind.TEXT),
        ColumnShape("item_id", Kind.TEXT),
        ColumnShape("price", Kind.INTEGER),
        ColumnShape("stock", Kind.INTEGER),
        ColumnShape("weight", Kind.FLOAT),
        ColumnShape("name", Kind.TEXT),
        ColumnShape(UNSHOWN, Kind.JSON),
    ),
)
CHUNK: Final = 5_000
SEED: Final = 7


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=5_000, help="changes of an epoch")
    parser.add_argument("--target", default="sqlite,postgres", metavar="NAME,…")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    results: dict[str, Any] = {}
    for name in chosen.target.split(","):
        with opened(name, chosen.directory) as target:
            results[name] = measured(target, chosen.rows, chosen.changes, chosen.batch)
        print(name, results[name], file=sys.stderr, flush=True)
    print(json.dumps({"rows": chosen.rows, "changes": chosen.changes, "targets": results}))


if __name__ == "__main__":
    main()
