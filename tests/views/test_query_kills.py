"""Kills of an applier with SQL tables, beside a real SQL view: the tables are the answer at the position's epoch.

The rows are those of a program without Penstock. A few kills run here; `PENSTOCK_KILLS` sets another number.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import ViewState, folder_of
from tests.views.book import Book
from tests.views.processes import feeding
from tests.views.sql_tables import await_state
from tests.views.test_query_tables import NAME, compare, shown_or_none
from tests.views.totals_app import app
from tests.waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.long]

SPEC = "tests.views.totals_app:app"


@contextmanager
def serving(data: Path) -> Iterator[None]:
    """Run the SQL view in a process of its own."""
    words = ["penstock", "view", "serve", SPEC, "--data", str(data)]
    with subprocess.Popen([sys.executable, "-m", *words], stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: presence.find(data, "view"), "the SQL view")
            yield
        finally:
            process.kill()


@pytest.mark.turns(1, "views", "sql_view", of="readers beside a writer")
def test_kills_leave_the_answer_of_one_epoch(tmp_path: Path, seed: int) -> None:
    """After each kill, all tables are those of one epoch; the SQL view is killed, too, and the view waits for it."""
    draw = random.Random(seed)
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    epochs = set()
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.deploy()
        book = Book(journal, seed)
        for _ in range(20):
            book.write(20)
        with serving(tmp_path):
            for _ in range(int(os.environ.get("PENSTOCK_KILLS", "6"))):
                before = shown_or_none(path) or -1
                with feeding(SPEC, tmp_path, NAME, ""):
                    wait_for(lambda: (shown_or_none(path) or -1) > before, "progress", look_s=0.002)  # noqa: B023
                    for _ in range(draw.randrange(8)):
                        book.write(20)
                        time.sleep(draw.random() / 20)
                epochs.add(compare(path, book))
                book.write(20)
        with feeding(SPEC, tmp_path, NAME, ""):
            assert "no SQL view" in await_state(tmp_path, NAME, ViewState.WAITING).reason
            with serving(tmp_path):
                wait_for(lambda: shown_or_none(path) == book.epoch, "the last epoch")
    compare(path, book)
    assert len(epochs) > 3
