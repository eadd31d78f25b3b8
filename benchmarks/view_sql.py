"""The SQL view: how fast it applies epochs, and how long a join of three classes takes meanwhile.

    python -m benchmarks.view_sql [--entities 100000] [--seconds 20] [--rate 2500]

The journal is in memory: only the view is measured. It holds the shop's three classes; an epoch of
`--rate` checkouts a second comes five times a second, each checkout changing an order, a user and
two items. The join reads every line of every order.
"""

import argparse
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.deployment.loading import load_app
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, PartKind
from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal

APP = load_app(str(Path(__file__).parent.parent / "examples" / "shop"))
EPOCHS_PER_S = 5
JOIN = """
    SELECT count(*), sum(line._2 * Item.price)
    FROM (SELECT user_id, unnest(items) AS line FROM "Order")
    JOIN Item ON item_id = line._1
    JOIN "User" USING (user_id)
    WHERE credit > 0
"""
LOOKUP = """
    SELECT * FROM "Order" JOIN "User" USING (user_id) JOIN Item ON item_id = items[1]._1
    WHERE order_id = ?
"""


class Shop:
    """Writes epochs of checkouts."""

    def __init__(self, entities: int) -> None:
        self.journal = MemoryJournal()
        self.entities = entities
        self.random = np.random.default_rng(1)
        self.epoch = Epoch(-1)
        self.lsn = 0
        call, _ = APP.request("Order", "1", "checkout", (), {})
        self.call = call

    def state(self, entity: str, **values: object) -> bytes:
        """Encode a state; an order has two lines, drawn at random."""
        kind = APP.entities[entity]
        item, user = APP.entities["Item"].cls, APP.entities["User"].cls
        if entity == "Order":
            number = int(self.random.integers(self.entities))
            values["user_id"] = user(str(number))
            values["items"] = [(item(str(number)), 1), (item(str(number // 2)), 1)]
        return kind.encode({kind.key_name: None, **kind.defaults, **values})

    def load(self) -> None:
        """Commit an epoch of creations for each class."""
        for entity, values in (
            ("Item", {"price": 1, "stock": 1_000_000}),
            ("User", {"credit": 1_000_000}),
            ("Order", {}),
        ):
            rows = [(entity, str(i), self.state(entity, **values)) for i in range(self.entities)]
            self.commit(rows, 0)

    def checkouts(self, count: int) -> None:
        """Commit an epoch of so many checkouts."""
        rows = []
        for entity, drawn, values in (
            ("Item", 2 * count, {"price": 1}),
            ("User", count, {}),
            ("Order", count, {"paid": True, "total_cost": 2}),
        ):
            for i in self.random.choice(self.entities, drawn, replace=False):
                if entity == "Item":
                    values["stock"] = int(i)
                if entity == "User":
                    values["credit"] = int(i) + 1
                rows.append((entity, str(i), self.state(entity, **values)))
        self.commit(rows, count)

    def commit(self, rows: list[tuple[str, str, bytes]], requests: int) -> None:
        """Commit an epoch of changes, and of so many requests."""
        self.epoch = Epoch(self.epoch + 1)
        entities, keys, states = zip(*rows, strict=True)
        numbers = pa.array(np.full(len(rows), self.epoch))
        columns = [numbers, pa.array(entities), pa.array(keys), pa.array(states, pa.binary())]
        changes = pa.Table.from_arrays(columns, schema=CHANGES)
        parts = [self.journal.write(PartKind.CHANGES, changes, "changes")]
        if requests:
            transaction = {
                "epoch": self.epoch,
                "partition": 0,
                "time_us": 1,
                "request": self.call,
                "reply": b"\xb3Checkout successful",
            }
            rows_of = [
                {**transaction, "lsn": self.lsn + i, "request_id": f"{self.lsn + i:032}"}
                for i in range(requests)
            ]
            table = pa.Table.from_pylist(rows_of, TRANSACTIONS)
            parts.append(self.journal.write(PartKind.TRANSACTIONS, table, "transactions"))
            self.lsn += requests
        positions = {LogPartition(0): Lsn(self.lsn)}
        self.journal.commit(Commit(self.epoch, positions, tuple(parts), time.time_ns() // 1_000))


def quantiles(view: View, query: str, seconds: float, *parameters: object) -> str:
    """Ask a query 20 times a second at most, and say how long it took."""
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        view.ask(Query(query, list(parameters)))
        took.append((time.perf_counter() - began) * 1_000)
        time.sleep(0.05)
    p50, p99 = np.quantile(took, [0.5, 0.99])
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms ({len(took)} queries)"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=int, default=2_500)
    options = parser.parse_args()
    shop = Shop(options.entities)
    shop.load()
    with tempfile.TemporaryDirectory() as folder:
        view = View(Path(folder), APP, shop.journal, ViewConfig())
        with closing(view):
            measure(view, shop, options)


def measure(view: View, shop: Shop, options: argparse.Namespace) -> None:
    """Measure the rebuild, then queries without and with epochs beside them."""
    began = time.perf_counter()
    view.start(spare=True)
    view.await_epoch(shop.epoch, 600)
    took = time.perf_counter() - began
    print(f"rebuild: {3 * options.entities / took:,.0f} rows/s")
    for name, query, *parameters in (
        ("SELECT 1", "SELECT 1"),
        ("join", JOIN),
        ("look-up", LOOKUP, "17"),
    ):
        print(f"{name}, idle:", quantiles(view, query, options.seconds / 4, *parameters))
    batches = int(options.seconds * EPOCHS_PER_S)
    prepared = Shop(options.entities)
    prepared.journal, prepared.epoch = shop.journal, shop.epoch
    stop = threading.Event()
    spent: list[float] = []

    def commit() -> None:
        for _ in range(batches):
            due = time.monotonic() + 1 / EPOCHS_PER_S
            before = time.thread_time()
            prepared.checkouts(options.rate // EPOCHS_PER_S)
            spent.append(time.thread_time() - before)
            stop.wait(max(0.0, due - time.monotonic()))

    writer = threading.Thread(target=commit)
    cpu, wall = time.process_time(), time.monotonic()
    writer.start()
    time.sleep(options.seconds / 4)
    alone = time.process_time() - cpu - sum(spent)
    print(f"applying alone: {100 * alone / (time.monotonic() - wall):.0f} % of a core")
    print("join, busy:    ", quantiles(view, JOIN, options.seconds / 3))
    print("look-up, busy: ", quantiles(view, LOOKUP, options.seconds / 3, "17"))
    writer.join()
    view.await_epoch(prepared.epoch, 60)
    print("file:", f"{view.status().size_bytes / 1e6:.1f} MB after {batches} epochs")


if __name__ == "__main__":
    main()
