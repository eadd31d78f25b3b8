"""Appliers of one view on two hosts, with data in an object store: one of them wins each change of the target."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock import App
from penstock.files.roots import use_store
from penstock.process.data_directory import DataDirectory
from tests.kafka_server import Broker
from tests.object_store import StoreServer
from tests.views.appliers import appliers
from tests.views.book import Book, Rows, epoch_in_kafka, shown_in_kafka, shown_in_postgres
from tests.views.change_log import told_in
from tests.views.orders_app import app, in_kafka, in_postgres
from tests.waiting import wait_for

pytestmark = pytest.mark.long

NAME, SCHEMA = "reporting", "orders"
EPOCHS = 8


@pytest.fixture
def hosts(
    store_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """The folders of two hosts, whose data are in one place."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        use_store(folder, store_server.url(tmp_path.name))
    return one, two


@pytest.fixture
def book(hosts: tuple[Path, Path]) -> Iterator[Book]:
    with closing(DataDirectory(hosts[0]).open_journal(app)) as journal:
        journal.deploy()
        yield Book(journal)


def follow(
    shown_by: App,
    url: str,
    hosts: tuple[Path, Path],
    book: Book,
    shown: Callable[[], tuple[int, Rows]],
    epoch: Callable[[], int],
) -> None:
    """Write epochs while both hosts feed the view, and then one, and compare the rows of the target."""

    def write() -> None:
        for _ in range(EPOCHS):
            book.write(20)
        wait_for(lambda: epoch() == book.epoch, "the newest epoch", look_s=0.2)
        assert shown() == (book.epoch, book.expected[book.epoch])

    one, two = hosts
    feeding = partial(appliers, shown_by, urls={NAME: url})
    book.write()
    with feeding(two, NAME):
        with feeding(one, NAME):
            write()
        write()


def test_postgres(hosts: tuple[Path, Path], book: Book, postgres: Cluster) -> None:
    """Each change of the position is made once, though both hosts try."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        shown = partial(shown_in_postgres, postgres.address, SCHEMA)

        def epoch() -> int:
            try:
                return shown()[0]
            except (psycopg.Error, ValueError):  # there are no tables yet
                return -2

        with appliers(in_postgres, hosts[0], NAME, urls={NAME: postgres.address}):
            wait_for(lambda: epoch() == book.epoch, "the tables")
        connection.execute(
            "DROP TABLE IF EXISTS public.moves; CREATE TABLE public.moves (before bigint, after bigint);"
            "CREATE OR REPLACE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN "
            "INSERT INTO public.moves VALUES (OLD.epoch, NEW.epoch); RETURN NEW; END $$;"
            f"CREATE TRIGGER noted AFTER UPDATE ON {SCHEMA}._penstock_view FOR EACH ROW "
            "WHEN (OLD.epoch <> NEW.epoch) EXECUTE FUNCTION public.note()"
        )
        follow(in_postgres, postgres.address, hosts, book, shown, epoch)
        moves = connection.execute("SELECT before, after FROM public.moves ORDER BY 1").fetchall()
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE; DROP TABLE public.moves")
    assert [after for _, after in moves[:-1]] == [before for before, _ in moves[1:]]
    assert moves[-1][1] == book.epoch


def test_kafka(hosts: tuple[Path, Path], book: Book, kafka_server: Broker, tmp_path: Path) -> None:
    """The topics have each epoch once; each host has a copy of the rows of its own."""
    servers, prefix = kafka_server.servers, f"{tmp_path.parent.name}-{tmp_path.name}"
    url = f"kafka://{servers}/{prefix}?partitions=2"
    shown, epoch = (
        partial(shown_in_kafka, servers, prefix),
        partial(epoch_in_kafka, servers, prefix),
    )
    follow(in_kafka, url, hosts, book, shown, epoch)
    positions = told_in(servers, f"{prefix}._position")
    told = [message.value["position"]["epoch"] for message in positions]
    assert told == sorted(set(told))
    assert told[-1] == book.epoch
