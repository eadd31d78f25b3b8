"""Kills of an applier, and an applier that was stopped: the tables of each target are always those of the position's epoch.

The rows that an epoch must show are those of a program without Penstock (`tests.views.book`). A few kills run here;
`scripts/nightly` runs 300 for each target, with fresh seeds. Kills at each step of `apply` are in the suite of all targets.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import folder_of
from tests.views.book import (
    Book,
    Rows,
    epoch_in_kafka,
    shown_in,
    shown_in_index,
    shown_in_kafka,
    shown_in_postgres,
)
from tests.views.orders_app import app
from tests.views.processes import feeding
from tests.waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.long]

NAME = "reporting"
SCHEMA = "orders"


class Store(NamedTuple):
    """A target under test.

    Attributes:
        spec: The application that names it.
        url: Its address.
        shown: Reads its epoch and rows in one transaction.
        kills: The number of kills, unless the environment sets another.
        told: Reads its epoch alone, where that takes less.
        look_s: Seconds between two looks at its epoch; one at Kafka takes a new consumer, and 0.1 s of a processor.
    """

    spec: str
    url: str
    shown: Callable[[], tuple[int, Rows]]
    kills: int
    told: Callable[[], int] | None = None
    look_s: float = 0.002

    def await_epoch(self, condition: Callable[[int], bool], what: str) -> None:
        """Wait until the view shows such an epoch."""
        wait_for(lambda: condition(self.epoch()), what, look_s=self.look_s)

    def epoch(self) -> int:
        """Return the epoch that the view shows; -2 before it has tables."""
        try:
            epoch: int | None = self.shown()[0] if self.told is None else self.told()
        except Exception:  # noqa: BLE001 -- whatever the store says when there is nothing
            return -2
        # The table of positions is made before the first of them.
        return -2 if epoch is None else epoch


@pytest.fixture(params=["sqlite", "postgres", "index", "kafka"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    spec = "tests.views.orders_app:"
    folder = folder_of(tmp_path, NAME)
    if request.param == "sqlite":
        return Store(f"{spec}app", "", partial(shown_in, folder / "view.sqlite"), 6)
    if request.param == "index":
        return Store(f"{spec}in_index", "", partial(shown_in_index, folder), 4)
    if request.param == "kafka":
        servers, prefix = request.getfixturevalue("kafka_server").servers, tmp_path.name
        url = f"kafka://{servers}/{prefix}?partitions=2"
        shown = partial(shown_in_kafka, servers, prefix)
        told = partial(epoch_in_kafka, servers, prefix)
        return Store(f"{spec}in_kafka", url, shown, 3, told, look_s=0.2)
    cluster: Cluster = request.getfixturevalue("postgres")
    with psycopg.connect(cluster.address) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    shown = partial(shown_in_postgres, cluster.address, SCHEMA)
    return Store(f"{spec}in_postgres", cluster.address, shown, 4)


@pytest.fixture
def book(tmp_path: Path, seed: int) -> Iterator[Book]:
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.deploy()
        yield Book(journal, seed)


@pytest.mark.turns(1, "views", "sql_view", of="an applier killed or stopped")
def test_kills_leave_whole_epochs(tmp_path: Path, book: Book, store: Store, seed: int) -> None:
    """After each kill, the tables are those of one epoch, and no epoch is lost at the end."""
    draw = random.Random(seed)
    kills = int(os.environ.get("PENSTOCK_KILLS", store.kills))
    for _ in range(20):
        book.write(20)
    epochs = set()
    for _ in range(kills):
        before = store.epoch()
        with feeding(store.spec, tmp_path, NAME, store.url):
            store.await_epoch(before.__lt__, "progress")
            for _ in range(draw.randrange(8)):
                book.write(20)
                time.sleep(draw.random() / 50)
        shown, rows = store.shown()
        assert rows == book.expected[shown]
        epochs.add(shown)
        book.write(20)
    assert len(epochs) > kills // 2
    with feeding(store.spec, tmp_path, NAME, store.url):
        store.await_epoch(book.epoch.__eq__, "the last epoch")
    assert store.shown()[1] == book.expected[book.epoch]


@pytest.mark.turns(1, "views", "sql_view", of="an applier killed or stopped")
def test_stopped_applier_wakes_up_late(tmp_path: Path, book: Book, store: Store) -> None:
    """An applier that was stopped in the middle, while another one went on, changes no row when it wakes up."""
    for _ in range(20):
        book.write(20)
    with feeding(store.spec, tmp_path, NAME, store.url) as first:
        for _ in range(store.kills // 2):
            store.await_epoch(book.epoch.__eq__, "the newest epoch")
            book.write(20)
            os.kill(first, signal.SIGSTOP)
            book.write(20)
            try:
                with feeding(store.spec, tmp_path, NAME, store.url):
                    # The first one may have been stopped inside of its transaction; then the other one waits for it.
                    time.sleep(0.3)
                    os.kill(first, signal.SIGCONT)
                    store.await_epoch(book.epoch.__eq__, "the newest epoch")
            finally:
                os.kill(first, signal.SIGCONT)
            assert store.shown()[1] == book.expected[book.epoch]
