"""The applier of a view: what it shows is the state at the position's epoch, whatever happens meanwhile."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import Epoch
from penstock.files.layout import SNAPSHOTS
from penstock.journal.delta import DeltaJournal
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import (
    Held,
    ViewOrders,
    ViewReport,
    ViewState,
    change_orders,
    end_hold,
    folder_of,
    hold,
    read_report,
)
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from tests.views.appliers import appliers
from tests.views.book import Book, shown_in
from tests.views.orders_app import app
from tests.waiting import wait_for

NAME = "reporting"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[DeltaJournal]:
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.deploy()
        yield journal


@pytest.fixture
def book(journal: DeltaJournal) -> Book:
    return Book(journal)


def applier(data: Path) -> AbstractContextManager[None]:
    return appliers(app, data, NAME)


def reported(data: Path) -> ViewReport:
    report = read_report(data, NAME)
    assert report is not None
    return report


def await_state(data: Path, state: ViewState) -> ViewReport:
    def reached() -> ViewReport | None:
        report = read_report(data, NAME)
        return report if report and report.state is state else None

    report: ViewReport = wait_for(reached, f"the state {state}")
    return report


def check(data: Path, book: Book, epoch: Epoch | None = None) -> None:
    """Wait until the view shows an epoch, and compare all of its tables."""
    wanted = book.epoch if epoch is None else epoch
    path = folder_of(data, NAME) / "view.sqlite"
    wait_for(lambda: path.exists() and shown_or_none(path) == wanted, f"epoch {wanted}")
    shown, rows = shown_in(path)
    assert rows == book.expected[shown]


def shown_or_none(path: Path) -> int | None:
    try:
        return shown_in(path)[0]
    except Exception:  # noqa: BLE001 -- the tables do not exist yet
        return None


def test_view_shows_each_epoch(tmp_path: Path, book: Book) -> None:
    """A view that is filled in the middle of the log, and then follows it, has the rows of each epoch that it shows."""
    for _ in range(40):
        book.write()
    with applier(tmp_path):
        check(tmp_path, book)
        for _ in range(20):
            book.write()
            check(tmp_path, book)
    assert reported(tmp_path).epoch == book.epoch


def test_filling_from_a_snapshot_gives_the_same(
    tmp_path: Path, book: Book, journal: DeltaJournal
) -> None:
    """The rows do not depend on the way: from the first epoch, or from a snapshot and the epochs behind it."""
    for _ in range(30):
        book.write(20)
    snapshots = Snapshots(tmp_path / SNAPSHOTS, journal.identity)
    write_next_snapshot(app, journal, snapshots, Epoch(20))
    with applier(tmp_path):
        check(tmp_path, book)


def test_later_start_goes_on(tmp_path: Path, book: Book) -> None:
    """An applier that starts again takes the epochs behind its position, and fills nothing."""
    book.write()
    with applier(tmp_path):
        check(tmp_path, book)
    for _ in range(10):
        book.write()
    with applier(tmp_path):
        check(tmp_path, book)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("raises", "ValueError: an item that no one sells"),
        ("stops", "SystemExit"),
        ("ends", "ended its process with exit code 7"),
        ("hangs", "did not return within 3 s"),
        ("endless", "more than 10000 rows"),
        ("reads", "it reads another entity"),
        ("wrong", "Expected `int`, got `str`"),
    ],
)
def test_failing_row_function_costs_its_row_alone(
    tmp_path: Path, book: Book, item: str, reason: str
) -> None:
    """The row is absent, `_failed` says why, the view says how many; a later change mends it."""
    book.order(1, "tea")
    book.order(2, item)
    book.order(3, "milk")
    with applier(tmp_path):
        check(tmp_path, book)
        wait_for(lambda: reported(tmp_path).failed == 1, "the report of the failed row")
        assert reason in failure(tmp_path)
        book.order(2, "rice")
        check(tmp_path, book)
        wait_for(lambda: reported(tmp_path).failed == 0, "the report of the mended row")


def failure(data: Path) -> str:
    with closing(sqlite3.connect(folder_of(data, NAME) / "view.sqlite")) as connection:
        return str(connection.execute("SELECT reason FROM _failed").fetchone()[0])


def test_two_appliers_show_the_same(tmp_path: Path, book: Book) -> None:
    """Of two appliers of one view, one wins each change, and no row differs."""
    book.write()
    with applier(tmp_path), applier(tmp_path):
        for _ in range(60):
            book.write()
        check(tmp_path, book)


def test_paused_view_keeps_its_epoch(
    tmp_path: Path, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused view keeps the epoch that it shows, until it is resumed; its report has this epoch, and no earlier one."""
    monkeypatch.setattr("penstock.views.applier._REPORT_S", 3_600)
    book.write()
    with applier(tmp_path):
        check(tmp_path, book)
        epoch = book.write()
        check(tmp_path, book)
        change_orders(tmp_path, NAME, lambda orders: replaced(orders, paused=True, reason="lunch"))
        report = await_state(tmp_path, ViewState.PAUSED)
        assert (report.reason, report.epoch) == ("lunch", epoch)
        book.write()
        check(tmp_path, book, epoch)
        change_orders(tmp_path, NAME, lambda orders: replaced(orders, paused=False))
        check(tmp_path, book)


def replaced(orders: ViewOrders, **values: Any) -> ViewOrders:
    return msgspec.structs.replace(orders, **values)


def test_held_directory_writes_no_row(tmp_path: Path, book: Book) -> None:
    """The view of a restored or forked directory is not written until the hold ends."""
    book.write()
    hold(tmp_path, Held("forked from a test", 0))
    with applier(tmp_path):
        assert await_state(tmp_path, ViewState.HELD).reason == "forked from a test"
        assert not (folder_of(tmp_path, NAME) / "view.sqlite").exists()
        end_hold(tmp_path)
        check(tmp_path, book)


def test_position_of_another_journal_is_refused(tmp_path: Path, book: Book) -> None:
    """Tables that another journal has filled stay as they are until the order to rebuild."""
    book.write()
    with applier(tmp_path):
        check(tmp_path, book)
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    other = tmp_path / "other"
    folder_of(other, NAME).mkdir(parents=True)
    with closing(DataDirectory(other).open_journal(app)) as journal:
        journal.deploy()
        second = Book(journal, seed=2)
        second.write(50)
        second.write()
        path.rename(folder_of(other, NAME) / "view.sqlite")
        with applier(other):
            report = await_state(other, ViewState.REFUSED)
            assert report.reason == "its tables were filled from another journal"
            assert report.remedy == "run penstock view rebuild reporting"
            assert shown_in(folder_of(other, NAME) / "view.sqlite")[1] == book.expected[0]
            change_orders(other, NAME, lambda orders: replaced(orders, rebuild=orders.rebuild + 1))
            check(other, second)


def test_rebuild_replaces_what_was_altered(tmp_path: Path, book: Book) -> None:
    """An order to rebuild fills the tables again, once, also rows that were altered by hand."""
    for _ in range(10):
        book.write()
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    with applier(tmp_path):
        check(tmp_path, book)
        with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
            connection.execute("DELETE FROM Customer")
        change_orders(tmp_path, NAME, lambda orders: replaced(orders, rebuild=orders.rebuild + 1))
        wait_for(lambda: reported(tmp_path).rebuilt == 1, "the rebuild")
        check(tmp_path, book)
        wait_for(lambda: shown_in(path)[1] == book.expected[book.epoch], "the rows")
