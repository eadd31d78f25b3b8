"""Kills of an applier, and an applier that was stopped: the tables are always those of the position's epoch.

The small number of kills runs here; `PENSTOCK_KILLS=300` runs more.
"""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import folder_of
from penstock.views.applier import Applier
from penstock.views.targets import open_target
from tests.views.book import Book, shown_in
from tests.views.orders_app import app
from tests.waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.long]

NAME = "reporting"
KILLS = int(os.environ.get("PENSTOCK_KILLS", "25"))
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["penstock.views.applier", "tests.views.orders_app"])


def feed(data: Path) -> None:
    """Run an applier until the process is killed."""
    folder = folder_of(data, NAME)
    folder.mkdir(parents=True, exist_ok=True)
    with closing(DataDirectory(data).open_journal(app)) as journal:
        applier = Applier(app, data, NAME, journal, lambda plan: open_target(plan, "", folder))
        applier.run(threading.Event())


@contextmanager
def feeding(data: Path) -> Iterator[int]:
    """Run an applier in a process of its own, and kill it at the end."""
    process = _PROCESSES.Process(target=feed, args=(data,))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def position(path: Path) -> int:
    try:
        return shown_in(path)[0]
    except Exception:  # noqa: BLE001 -- there are no tables yet
        return -2


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.deploy()
        yield Book(journal)


def test_kills_leave_whole_epochs(tmp_path: Path, book: Book) -> None:
    """After each kill, the tables are those of one epoch, and no epoch is lost at the end."""
    draw = random.Random(3)
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    for _ in range(20):
        book.write(20)
    epochs = set()
    for _ in range(KILLS):
        before = position(path)
        with feeding(tmp_path):
            wait_for(lambda: position(path) > before, "progress", look_s=0.002)  # noqa: B023
            for _ in range(draw.randrange(8)):
                book.write(20)
                time.sleep(draw.random() / 50)
        shown, rows = shown_in(path)
        assert rows == book.expected[shown]
        epochs.add(shown)
        book.write(20)
    assert len(epochs) > KILLS // 2
    with feeding(tmp_path):
        wait_for(lambda: position(path) == book.epoch, "the last epoch")
    assert shown_in(path)[1] == book.expected[book.epoch]


def test_stopped_applier_wakes_up_late(tmp_path: Path, book: Book) -> None:
    """An applier that was stopped in the middle, while another one went on, changes no row when it wakes up."""
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    for _ in range(20):
        book.write(20)
    with feeding(tmp_path) as first:
        for _ in range(10):
            wait_for(lambda: position(path) == book.epoch, "the newest epoch")
            book.write(20)
            os.kill(first, signal.SIGSTOP)
            book.write(20)
            try:
                with feeding(tmp_path):
                    # SQLite's writer may have been stopped inside of its transaction; then the other one waits for it.
                    time.sleep(0.3)
                    os.kill(first, signal.SIGCONT)
                    wait_for(lambda: position(path) == book.epoch, "the newest epoch")
            finally:
                os.kill(first, signal.SIGCONT)
            assert shown_in(path)[1] == book.expected[book.epoch]
