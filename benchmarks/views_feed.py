"""Measure the feed of a view from a journal on disk; `benchmarks.views` runs this as its part `feed`.

    python -m benchmarks.views_feed sqlite|search [--rows 1000000] [--changes 100000]

fill
    An empty target from a journal without a snapshot: what an applier holds in memory at most.
drain
    Changes that wait in epochs of 25, each of which changes items that are drawn at random.

Prints one JSON object.
"""

import argparse
import gc
import json
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.views_app import VIEWS, Item
from penstock import App
from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.files.layout import SNAPSHOTS
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.process.data_directory import DataDirectory
from penstock.process.isolated_calls import IsolatedCalls
from penstock.snapshots.snapshot import Snapshots
from penstock.views.feed import Feed, changes_in
from penstock.views.tables import ViewTables
from penstock.views.targets import open_target

OF_A_FILL: Final = 5_000
OF_AN_EPOCH: Final = 25
TARGETS: Final = {each.target.kind: each for each in VIEWS}


def commit(app: App, journal: DeltaJournal, epoch: int, numbers: list[int]) -> None:
    """Commit an epoch that gives some items new states."""
    encode = app.entities["Item"].encode
    states = [
        encode({"item_id": None, "name": f"green tea {number}", "price": epoch, "stock": number})
        for number in numbers
    ]
    keys = [f"item-{number:08}" for number in numbers]
    columns = [[epoch] * len(keys), ["Item"] * len(keys), keys, states]
    parts = (journal.write(PartKind.CHANGES, pa.table(columns, schema=CHANGES), "0-0"),)
    journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, parts, epoch))


@contextmanager
def written(app: App, data: Path, rows: int, changes: int) -> Iterator[tuple[DeltaJournal, Epoch]]:
    """Write a journal; give it, and the last epoch of the creations."""
    directory = DataDirectory(data)
    directory.create()
    draw = random.Random(7)
    with closing(directory.open_journal(app)) as journal:
        created = range(0, rows, OF_A_FILL)
        for epoch, first in enumerate(created):
            commit(app, journal, epoch, list(range(first, min(rows, first + OF_A_FILL))))
        filled = Epoch(len(created) - 1)
        for epoch in range(1, changes // OF_AN_EPOCH + 1):
            commit(app, journal, filled + epoch, draw.sample(range(rows), OF_AN_EPOCH))
        yield journal, filled


def measured(kind: str, rows: int, changes: int, data: Path) -> dict[str, Any]:
    """Fill and drain; return the figures."""
    app = App("views", Item, TARGETS[kind])
    plan = app.views[TARGETS[kind].name]
    with written(app, data / "data", rows, changes) as (journal, filled):
        feed = Feed(journal, Snapshots(data / "data" / SNAPSHOTS, journal.identity))
        tables = ViewTables(plan, "", IsolatedCalls(), 0)
        folder = data / "view"
        folder.mkdir()
        target = open_target(plan, "", folder)
        gc.freeze()
        began, began_cpu = time.perf_counter(), time.process_time()
        position = feed.position(filled, tables.definition)
        target.load(None, position, tables.shapes, feed.filling(tables, filled))
        figures: dict[str, Any] = {
            "fill_s": round(time.perf_counter() - began, 1),
            "fill_cpu_s": round(time.process_time() - began_cpu, 1),
            "fill_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        began, began_cpu = time.perf_counter(), time.process_time()
        last = journal.last()
        newest = BEFORE_FIRST if last is None else last.epoch
        for batch in feed.batches(filled, newest):
            after = feed.position(batch.epoch, tables.definition)
            target.apply(position, after, changes_in(batch, tables))
            position = after
        figures["drained_per_s"] = round(changes / (time.perf_counter() - began))
        figures["drained_per_cpu_s"] = round(changes / (time.process_time() - began_cpu))
        target.close()
    return {**figures, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    chosen = parser.parse_args()
    data = Path(tempfile.mkdtemp(dir=chosen.directory, prefix="penstock-views-"))
    try:
        print(json.dumps(measured(chosen.target, chosen.rows, chosen.changes, data)))
    finally:
        shutil.rmtree(data)


if __name__ == "__main__":
    main()
