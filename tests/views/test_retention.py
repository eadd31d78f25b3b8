"""Retention and views: a view of streams keeps the epochs that it has not shown, up to a bound; then the gap is visible."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.process.config import Config, HistoryConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import change_orders, folder_of, read_report
from penstock.process.view_standing import ViewStanding, view_standings
from penstock.retention.maintenance import maintain
from penstock.retention.maintenance_report import MaintenanceReport
from tests.views.appliers import appliers
from tests.views.book import Book, shown_in
from tests.views.orders_app import app
from tests.waiting import wait_for

NAME = "reporting"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeltaJournal]:
    """An empty journal, whose deployment declares the view; maintenance merges and forgets all but a few epochs."""
    monkeypatch.setattr(
        "penstock.retention.maintenance.DEFAULT_COMPACTION", CompactionPolicy(newest=2)
    )
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.deploy()
        code = DeployedCode("a" * 64, "orders", "app", "3", {})
        Deployments(tmp_path / "journal").record(Epoch(0), 1, code, {}, views=[NAME])
        yield journal


def write(data: Path, book: Book, epochs: int, times: int) -> None:
    """Commit epochs, and take a snapshot behind each part, so that retention can begin there."""
    for _ in range(times):
        for _ in range(epochs):
            book.write()
        maintain(app, Config(data), snapshot=True)


def tend(data: Path, views_mb: int) -> MaintenanceReport:
    """Let retention keep 3 epochs beside those that views need."""
    # The epochs of the book are years old, so time is no bound here.
    history = HistoryConfig(keep_epochs=3, views_s=0, views_mb=views_mb, grace_s=0, merge_epochs=5)
    return maintain(app, Config(data, retention_s=0, history=history), snapshot=True)


def shows(data: Path, epoch: Epoch) -> bool:
    report = read_report(data, NAME)
    return report is not None and report.epoch == epoch


def standing(data: Path, epoch: Epoch) -> ViewStanding:
    (view,) = view_standings(data, epoch)
    return view


def lagging(data: Path, journal: DeltaJournal) -> tuple[Book, Epoch]:
    """Return a book that is far ahead of its view, and the epoch that the view shows."""
    book = Book(journal)
    write(data, book, 10, 2)
    with appliers(app, data):
        wait_for(lambda: shows(data, book.epoch), "the first epochs")
    shown = book.epoch
    write(data, book, 10, 4)
    return book, shown


def test_view_of_streams_holds_the_journal(tmp_path: Path, journal: DeltaJournal) -> None:
    """The epochs that it has not shown stay, and the report names it; no event is lost; then they go."""
    book, shown = lagging(tmp_path, journal)
    done = tend(tmp_path, views_mb=0)
    assert done.holders[0].who == f"view {NAME}"
    assert done.first <= shown + 1
    with appliers(app, tmp_path):
        wait_for(lambda: shows(tmp_path, book.epoch), "the newest epoch")
    assert shown_in(folder_of(tmp_path, NAME) / "view.sqlite") == (book.epoch, book.rows())
    assert not standing(tmp_path, book.epoch).gaps
    assert tend(tmp_path, views_mb=0).first > shown + 1


def test_gap_is_recorded_and_visible(
    tmp_path: Path, journal: DeltaJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead view fills no disk: beyond the bound epochs go, and the view lists the events that it lacks."""
    monkeypatch.setattr("penstock.retention.retention.MEGABYTE", 12_000)
    book, shown = lagging(tmp_path, journal)
    first = tend(tmp_path, views_mb=1).first
    assert shown + 1 < first <= book.epoch
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    with appliers(app, tmp_path):
        wait_for(lambda: shows(tmp_path, book.epoch), "the newest epoch")
        view = standing(tmp_path, book.epoch)
        (gap,) = view.gaps
        atom = next(row[0] for row in book.shipped if row[2] >= first)
        assert gap == (
            f"events of shipments before atom {atom} are absent: the journal forgot epochs {shown + 1} to {first - 1} "
            "before the view had shown them"
        )
        assert view.incomplete
        assert gap in view.reason
        assert view.failed == 0
        check(path, book, atom, gap)
        book.write()
        wait_for(lambda: shows(tmp_path, book.epoch), "the next epoch")
        change_orders(tmp_path, NAME, lambda orders: type(orders)(rebuild=orders.rebuild + 1))
        wait_for(lambda: not standing(tmp_path, book.epoch).rebuilding, "the rebuild")
        check(path, book, atom, gap)


def check(path: Path, book: Book, atom: int, gap: str) -> None:
    """Compare the tables: that of the stream begins with an atom, and the table of failed rows has the gap."""
    epoch, rows = shown_in(path)
    expected = book.expected[epoch]
    assert rows["shipments"] == [row for row in expected["shipments"] if row[0] >= atom]
    assert rows["_failed"] == [*expected["_failed"], ("shipments/", "shipments", None)]
    for name in ("Customer", "Order", "open_lines"):
        assert rows[name] == expected[name]
    with closing(sqlite3.connect(path)) as connection:
        reasons = connection.execute("SELECT reason FROM _failed").fetchall()
    assert (gap,) in reasons
