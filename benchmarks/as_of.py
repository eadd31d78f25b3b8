"""Time travel: how long SQL takes over 100,000 entities of each class, 10,000 epochs back.

    python -m benchmarks.as_of [--entities N] [--epochs N] [--back N] [--changes N] [--every N]

Writes a journal of the shop into a temporary directory: one epoch creates the entities of three
classes, each later one changes a few of each. It is compacted, and has a snapshot every so many
epochs, as a running application has; the epoch that is asked for is as far from one as can be. Prints
one JSON object: milliseconds of a join of the three classes, cold (nothing of the past in memory) and
warm (the same question again, and another one at the same epoch), of their counts, of the feed of
changes of 100 epochs, and what of the cold time is the rewinding of each class.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.deployment.loading import load_app
from penstock.files.layout import SNAPSHOTS
from penstock.journal.api import CHANGES, Commit, CompactionPolicy, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.model.application import App
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.snapshots.state_as_of import state_as_of
from penstock.sql_view.as_of_query import as_of_queries
from penstock.sql_view.query import Query

SHOP = str(Path(__file__).parent.parent / "examples" / "shop")
CLASSES = ("Item", "User", "Order")
JOIN = """
SELECT count(*), sum(i.price * line.line._2), sum(u.credit)
FROM (SELECT user_id, unnest(items) AS line FROM "Order") AS line
JOIN Item AS i ON i.item_id = line.line._1 JOIN "User" AS u ON u.user_id = line.user_id
"""


def main() -> None:
    """Write the journal, ask, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=14_000)
    parser.add_argument("--back", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--every", type=int, default=2_000)
    chosen = parser.parse_args()
    print(json.dumps(measured(chosen)))


def measured(chosen: argparse.Namespace) -> dict[str, float]:
    """Return the figures, in milliseconds."""
    app = load_app(SHOP)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        data = Path(directory)
        with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
            began = time.perf_counter()
            write(app, journal, data, chosen)
            written_s = time.perf_counter() - began
            epoch = Epoch(chosen.epochs - chosen.back)
            figures = rewinding(app, journal, data, epoch) | asking(app, journal, data, epoch)
    shape = {"entities": chosen.entities, "epochs": chosen.epochs, "back": chosen.back}
    return {**shape, "written_s": round(written_s, 1), **figures}


def write(app: App, journal: DeltaJournal, data: Path, chosen: argparse.Namespace) -> None:
    """Write epochs, snapshots and segments.

    Snapshots lie so that the epoch which is asked for comes just before one.
    """
    snapshots = Snapshots(data / SNAPSHOTS, journal.identity)
    rng = np.random.default_rng(7)
    states = {name: state_maker(app, name, chosen.entities) for name in CLASSES}
    due = (chosen.epochs - chosen.back) % chosen.every
    for epoch in range(chosen.epochs + 1):
        names, keys, values = [], [], []
        count = chosen.changes // len(CLASSES)
        for name in CLASSES:
            drawn = rng.integers(0, chosen.entities, count).tolist() if epoch else None
            touched = range(chosen.entities) if drawn is None else sorted(set(drawn))
            for number in touched:
                names.append(name)
                keys.append(str(number))
                values.append(states[name](number, epoch))
        columns = [pa.repeat(pa.scalar(epoch, pa.int64()), len(keys)), names, keys, values]
        rows = pa.table(columns, schema=CHANGES)
        parts = (journal.write(PartKind.CHANGES, rows, "as-of"),)
        journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, parts, 1_000 * epoch))
        if epoch % chosen.every == due + 1:
            journal.compact(CompactionPolicy())
            write_next_snapshot(app, journal, snapshots, Epoch(epoch))


def state_maker(app: App, name: str, entities: int) -> Callable[[int, int], bytes]:
    """Return what makes the state of an entity after an epoch."""
    kind, user, item = app.entities[name], app.entities["User"], app.entities["Item"]

    def make(number: int, epoch: int) -> bytes:
        match name:
            case "Item":
                values = {"price": number % 97, "stock": epoch}
            case "User":
                values = {"credit": number + epoch}
            case _:
                basket = [(item.of_text(str((number + at) % entities)), 1 + at) for at in range(2)]
                values = {
                    "user_id": user.of_text(str(number)),
                    "items": basket,
                    "total_cost": epoch,
                    "paid": bool(epoch % 2),
                }
        return bytes(kind.encode({kind.key_name: None, **values}))

    return make


def rewinding(app: App, journal: DeltaJournal, data: Path, epoch: Epoch) -> dict[str, float]:
    """Measure what the rewinding of each class takes by itself."""
    snapshots = Snapshots(data / SNAPSHOTS, journal.identity)
    return {
        f"rewind_{name}_ms": timed(
            lambda name=name: state_as_of(app, journal, name, epoch, snapshots)
        )
        for name in CLASSES
    }


def asking(app: App, journal: DeltaJournal, data: Path, epoch: Epoch) -> dict[str, float]:
    """Measure questions."""
    history = as_of_queries(data, app, journal, ViewConfig())

    def ask(query: str) -> None:
        question = Query(query)
        past = question.as_of_statement()
        assert past is not None
        assert history.ask(past, question, time.monotonic() + 600).table.num_rows

    clause = f"AS OF EPOCH {epoch}"
    return {
        "join_cold_ms": timed(lambda: ask(f"{JOIN} {clause}")),
        "join_warm_ms": timed(lambda: ask(f"{JOIN} {clause}")),
        "count_warm_ms": timed(lambda: ask(f"SELECT count(*), sum(stock) FROM Item {clause}")),
        "changes_ms": timed(lambda: ask(f"FROM changes('Item', {epoch - 99}, {epoch})")),
    }


def timed(run: Callable[[], object]) -> float:
    """Return how many milliseconds something takes."""
    began = time.perf_counter()
    run()
    return round((time.perf_counter() - began) * 1_000, 1)


if __name__ == "__main__":
    main()
