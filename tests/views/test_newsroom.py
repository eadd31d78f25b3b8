"""The views of `examples/newsroom`: no state of any of them names what it does not show.

An article refers to its section, its authors, its image and other articles. In a store that takes one change after the
other, there are moments at which an article is there and its image is not. A view has whole epochs, so there are none.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from examples.newsroom import app
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.files.layout import SNAPSHOTS
from penstock.journal.api import newest_epoch
from penstock.process.isolated_calls import IsolatedCalls
from penstock.process.view_files import folder_of
from penstock.snapshots.snapshot import Snapshots
from penstock.views.feed import Feed, changes_in
from penstock.views.tables import ViewTables
from penstock.views.target import Owner, Row, TargetProblem
from penstock.views.targets import open_target
from tests.views.editors import SPEC, VIEWS, Editors, Shown, named_in
from tests.views.processes import feeding
from tests.waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture
def editors(tmp_path: Path, seed: int) -> Iterator[Editors]:
    editors = Editors(tmp_path, seed)
    yield editors
    editors.newsroom.close()


@pytest.mark.turns(1, "views", "sql_view", of="readers beside a writer")
def test_no_epoch_of_any_view_names_what_it_does_not_show(editors: Editors, tmp_path: Path) -> None:
    """Epoch after epoch, each view is checked; a store that takes class after class does name what is not there."""
    for _ in range(16):
        editors.work(16)
    journal = editors.newsroom.journal
    feed = Feed(journal, Snapshots(tmp_path / SNAPSHOTS, journal.identity))
    last = newest_epoch(journal)
    for name, shown in VIEWS.items():
        tables = ViewTables(app.views[name], "", IsolatedCalls())
        before = feed.position(BEFORE_FIRST, tables.definition)
        named = 0
        with closing(open_target(app.views[name], "", folder_of(tmp_path, name))) as target:
            target.load(None, before, tables.shapes, [])
            for epoch in range(last + 1):
                (batch,) = feed.batches(Epoch(epoch - 1), Epoch(epoch))
                after = feed.position(Epoch(epoch), tables.definition)
                target.apply(before, after, changes_in(batch, tables))
                before = after
                state = shown(folder_of(tmp_path, name))
                assert (state.epoch, state.dangling) == (epoch, set())
                named += len(state.names)
        assert named > 40, "the articles name something"
    assert dangling_by_class(feed, last) > 0


def dangling_by_class(feed: Feed, last: Epoch) -> int:
    """Return how many states name what they do not have, in a store that takes class after class of each epoch."""
    tables = ViewTables(app.views["pages"], "", IsolatedCalls())
    rows: dict[tuple[str, Owner], list[Row]] = {}
    found = 0
    for epoch in range(last + 1):
        (batch,) = feed.batches(Epoch(epoch - 1), Epoch(epoch))
        for name in sorted(tables.classes & batch.changes.keys()):
            for change in tables.of_states(name, batch.changes[name]):
                rows.update({(change.shape.name, owner): [] for owner in change.touched})
                for row in change.rows:
                    rows[change.shape.name, row[0]].append(row)
            parts = [(row[2], row[3]) for each in rows.values() for row in each]
            has = {path for path, _ in parts}
            found += bool({name for _, html in parts for name in named_in(html)} - has)
    return found


@contextmanager
def readers(data: Path) -> Iterator[dict[str, list[Shown]]]:
    """Look at each view again and again, and yield all the states that are seen."""
    seen: dict[str, list[Shown]] = {name: [] for name in VIEWS}
    stop = threading.Event()

    def look(name: str) -> None:
        while not stop.wait(0.005):
            with suppress(sqlite3.OperationalError, TargetProblem):  # there are no tables at first
                seen[name].append(VIEWS[name](folder_of(data, name)))

    threads = [threading.Thread(target=look, args=(name,)) for name in VIEWS]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.turns(1, "views", "sql_view", of="readers beside a writer")
def test_readers_never_see_what_is_not_there(editors: Editors, tmp_path: Path) -> None:
    """While editors publish and withdraw, a reader of each view looks again and again."""
    with ExitStack() as stack:
        for name in VIEWS:
            stack.enter_context(feeding(SPEC, tmp_path, name))
        seen = stack.enter_context(readers(tmp_path))
        for _ in range(5):  # a slow applier takes all epochs at once, so it is awaited in between
            for _ in range(8):
                editors.work(8)
            last = newest_epoch(editors.newsroom.journal)
            for name, states in seen.items():
                wait_for(lambda: states and states[-1].epoch == last, f"epoch {last} of {name}")  # noqa: B023
    for name, states in seen.items():
        assert [each for each in states if each.dangling] == [], name
        epochs = [each.epoch for each in states]
        assert epochs == sorted(epochs)
        assert len(set(epochs)) > 3
