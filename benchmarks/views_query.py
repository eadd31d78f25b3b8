"""Measure a table of a view that is written in SQL: the SQL view, a process of its own, answers, and SQLite gets the difference.

    python -m benchmarks.views_query [--rows 100000] [--changed 100]

The query has a row for each entity. Between two questions, some entities change. `ask_ms` is the time until the answer is a
file, `difference_ms` that of the comparison, `apply_ms` that of SQLite, all medians; `cpu_ms` is the processor time of this
process and of the SQL view, for all three. Prints one JSON object as its last line.
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa

from benchmarks.views import SEED, position_of
from penstock import App, Entity, key, sql, sqlite, view
from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.journal.api import CHANGES, Commit, Journal, PartKind
from penstock.process import presence
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.views.query_tables import Answers, QueryTables
from penstock.views.sqlite_target import SqliteTarget
from penstock.views.tables import FAILED_SHAPE
from penstock.views.target import Target


class Item(Entity):
    """The entities of the benchmark."""

    name: str = key()
    stock: int = 0
    price: int = 0
    text: str = ""


QUERY: Final = sql("SELECT name, stock, price, text FROM Item WHERE stock >= 0", key="name")
app: Final = App("bench", Item, view("shown", sqlite(), QUERY))


def committed(journal: Journal, epoch: Epoch, numbers: Iterable[int], stock: int) -> None:
    """Commit an epoch that gives items a stock."""
    entity_type = app.entities["Item"]
    rows = [
        {
            "epoch": epoch,
            "entity": "Item",
            "key": f"item-{number:08}",
            "state": entity_type.encode(
                {
                    "name": f"item-{number:08}",
                    "stock": stock,
                    "price": 1 + number % 100,
                    "text": f"the item with number {number}",
                }
            ),
        }
        for number in numbers
    ]
    part = journal.write(PartKind.CHANGES, pa.Table.from_pylist(rows, CHANGES), "changes-0")
    journal.commit(Commit(epoch, {LogPartition(0): Lsn(epoch + 1)}, (part,), epoch + 1))


@contextmanager
def sql_view(data: Path) -> Iterator[psutil.Process]:
    """Run the SQL view in a process of its own."""
    words = ["penstock", "view", "serve", "benchmarks.views_query:app", "--data", str(data)]
    with subprocess.Popen([sys.executable, "-m", *words]) as process:
        try:
            while not presence.find(data, "view"):
                time.sleep(0.05)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def measured_query(directory: Path, rows: int, changed: int, turns: int = 20) -> dict[str, Any]:
    """Ask a query again and again, with some changes between; return the figures."""
    data = Path(tempfile.mkdtemp(dir=directory, prefix="penstock-views-"))
    draw = random.Random(SEED)
    took: dict[str, list[float]] = {"ask_ms": [], "difference_ms": [], "apply_ms": []}
    with closing(DataDirectory(data).open_journal(app)) as journal:
        journal.deploy()
        for epoch in range(10):
            committed(journal, Epoch(epoch), range(epoch * rows // 10, (epoch + 1) * rows // 10), 0)
        with sql_view(data) as process, closing(SqliteTarget(data / "view.sqlite", "x")) as target:
            queries = QueryTables(app, app.views["shown"], data, data / "shown", ViewConfig())
            former = queries.name(queries.ask(Epoch(9)), position_of(9))
            shapes = [*former.shapes, FAILED_SHAPE]
            target.load(None, position_of(9), shapes, queries.rows(former))
            queries.settle(former, position_of(9))
            spent_s = -cpu_s(process)
            for epoch in range(10, 10 + turns):
                committed(journal, Epoch(epoch), draw.sample(range(rows), changed), epoch)
                former, times = refreshed(queries, target, former, Epoch(epoch), changed)
                for name, (began, ended) in zip(took, pairwise(times), strict=True):
                    took[name].append(1_000 * (ended - began))
            spent_s += cpu_s(process)
    shutil.rmtree(data)
    figures: dict[str, Any] = {name: round(sorted(ms)[turns // 2], 1) for name, ms in took.items()}
    figures["cpu_ms"] = round(1_000 * spent_s / turns, 1)
    figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return figures


def refreshed(
    queries: QueryTables, target: Target, former: Answers, epoch: Epoch, changed: int
) -> tuple[Answers, list[float]]:
    """Bring a target to an epoch; return the answers, and the times before, between and after the three steps."""
    times = [time.perf_counter()]
    present = queries.ask(epoch)
    times.append(time.perf_counter())
    present = queries.name(present, position_of(epoch))
    changes = queries.changes(former, present)
    assert changes is not None
    assert sum(len(change.rows) for change in changes) == changed
    times.append(time.perf_counter())
    target.apply(position_of(epoch - 1), position_of(epoch), changes)
    times.append(time.perf_counter())
    queries.settle(present, position_of(epoch))
    return present, times


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time of this process, and of another one with its ended children, in seconds."""
    times = process.cpu_times()
    other = times.user + times.system + times.children_user + times.children_system
    return time.process_time() + float(other)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--changed", type=int, default=100)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    print(json.dumps(measured_query(chosen.directory, chosen.rows, chosen.changed)))


if __name__ == "__main__":
    main()
