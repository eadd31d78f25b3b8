"""The SQL view when its file, its process or its journal fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import duckdb
import psutil
import pytest

from penstock import App, entity, key
from penstock.base.ids import Epoch
from penstock.errors import ConfigError, ViewUnavailable
from penstock.journal.delta import DeltaJournal
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.sql_view import change_batch, view_store
from penstock.sql_view import view as sql_view
from penstock.sql_view.change_batch import ChangeBatch, journal_batches
from penstock.sql_view.query import Query
from penstock.sql_view.view import ErasureWatch, View
from penstock.sql_view.view_store import ViewStore
from tests.checkout import TOP
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.gallery_app import Painter, Written, app
from tests.waiting import wait_for

SETTINGS = ViewConfig(memory_mb=256)
DEADLINE_S = 60.0


@contextmanager
def following(data: Path, journal: DeltaJournal | MemoryJournal, app: App = app) -> Iterator[View]:
    with closing(View(data, app, journal, SETTINGS)) as view:
        view.start()
        yield view


def painters(view: View) -> list[tuple[object, ...]]:
    table = view.ask(Query("SELECT number, name FROM Painter ORDER BY number")).table
    return [tuple(row.values()) for row in table.to_pylist()]


def view_file(data: Path) -> Path:
    return data / "view" / "view.duckdb"


def test_view_goes_on_where_it_was(tmp_path: Path) -> None:
    """A view that is opened again applies the missing epochs, and none twice."""
    journal = MemoryJournal()
    written = Written(journal)
    written.painters({1: "Ada"})
    written.requests(1)
    with following(tmp_path, journal) as view:
        assert painters(view) == [(1, "Ada")]
    written.painters({2: "Bob"})
    with closing(View(tmp_path, app, journal, SETTINGS)) as view:
        assert (view.epoch, view.rebuilding) == (1, False)
        view.start()
        assert painters(view) == [(1, "Ada"), (2, "Bob")]
        assert view.ask(Query("FROM requests")).table.num_rows == 1


@pytest.mark.parametrize("damage", ["lost", "cut", "noise", "empty", "log"])
def test_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    """With any damage to the file, the next view has everything again, and says so meanwhile."""
    journal = MemoryJournal()
    Written(journal).painters(dict.fromkeys(range(2000), "Ada"))
    with following(tmp_path, journal) as view:
        assert len(painters(view)) == 2_000
    path = view_file(tmp_path)
    size = path.stat().st_size
    match damage:
        case "lost":
            path.unlink()
        case "cut":
            os.truncate(path, size // 2)
        case "noise":
            path.write_bytes(bytes(range(256)) * (size // 256))
        case "empty":
            path.write_bytes(b"")
        case _:
            path.with_name("view.duckdb.wal").write_bytes(bytes(range(256)) * 100)
    with closing(View(tmp_path, app, journal, SETTINGS)) as view:
        assert view.rebuilding or damage == "log"
        view.start()
        assert len(painters(view)) == 2_000
        assert not view.rebuilding


def test_damage_under_a_running_view_is_noticed(tmp_path: Path) -> None:
    """A query that finds damage is told to come again, and then finds everything."""
    journal = MemoryJournal()
    written = Written(journal)
    written.painters({number: f"{number:0200}" for number in range(50_000)})
    with following(tmp_path, journal) as view:
        view.await_epoch(Epoch(0), DEADLINE_S)
    with following(tmp_path, journal) as view:
        size = view_file(tmp_path).stat().st_size
        with view_file(tmp_path).open("r+b") as file:
            file.seek(12_288)
            file.write(b"\xaa" * (size - 12_288))
        with pytest.raises(ViewUnavailable, match="is rebuilt"):
            painters(view)
        written.painters({1: "Ada"})
        assert painters(view)[1] == (1, "Ada")
        assert len(painters(view)) == 50_000


def test_other_journal_makes_it_anew(tmp_path: Path) -> None:
    """A view that was filled from one journal shows nothing of it with another journal."""
    for name in ("Ada", "Bob"):
        journal = MemoryJournal()
        Written(journal).painters({1: name})
        with following(tmp_path, journal) as view:
            assert painters(view) == [(1, name)]


def test_other_classes_make_it_anew(tmp_path: Path) -> None:
    """Where classes are declared otherwise, tables follow."""

    @entity
    class Stranger:
        ident: str = key()

    journal = MemoryJournal()
    Written(journal).painters({1: "Ada"})
    with following(tmp_path, journal, App("gallery", Painter)) as view:
        assert painters(view) == [(1, "Ada")]
    with following(tmp_path, journal, App("gallery", Painter, Stranger)) as view:
        assert view.rebuilding or view.epoch == 0
        assert painters(view) == [(1, "Ada")]
        assert view.ask(Query("FROM Stranger")).table.num_rows == 0


def test_second_view_is_refused(tmp_path: Path) -> None:
    """One process has the view open; a second process gets its id."""
    journal = MemoryJournal()
    with (
        following(tmp_path, journal),
        pytest.raises(ConfigError, match=f"process {os.getpid()} has the SQL view"),
    ):
        View(tmp_path, app, journal, SETTINGS)


def test_lagging_view_folds_in_bounded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long journal is applied in many transactions, each ending with an epoch."""
    in_steps = partial(journal_batches, rows_max=lambda: 10)
    monkeypatch.setattr(ViewStore, "batch_rows", lambda _: 10)
    journal = MemoryJournal()
    written = Written(journal)
    for number in range(35):
        written.painters({number: "Ada", 0: str(number)})
    steps = [one.epoch for one in in_steps(journal, Epoch(-1), Epoch(34))]
    assert steps == [5, 10, 15, 20, 25, 30, 34]
    with following(tmp_path, journal) as view:
        assert len(painters(view)) == 35
        assert painters(view)[0] == (0, "34")


def test_large_epoch_is_applied_in_bounded_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes of one epoch are read a few at a time, and come behind those of the epochs before it in the same batch."""
    in_steps = partial(journal_batches, rows_max=lambda: 10)
    monkeypatch.setattr(ViewStore, "batch_rows", lambda _: 10)
    journal = MemoryJournal()
    written = Written(journal)
    for painters_of_epoch in (
        {0: "first", 30: "Ida"},
        {number: f"painter {number}" for number in range(25)},
        {0: "last"},
    ):
        written.painters(painters_of_epoch)
    batches = list(in_steps(journal, Epoch(-1), Epoch(2), in_steps=True))
    assert [one.epoch for one in batches] == [1, 2]
    sizes = [sum(map(len, step.values())) for step in batches[0].steps()]
    assert sizes == [2, 10, 10, 5]
    with following(tmp_path, journal) as view:
        shown = painters(view)
        assert [name for _, name in shown] == [
            "last",
            *(f"painter {number}" for number in range(1, 25)),
            "Ida",
        ]


def test_batch_grows_with_the_largest_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has an eighth of the rows of the largest table, also after a restart, and no step has more bytes than a batch."""
    for module in (change_batch, view_store):
        monkeypatch.setattr(module, "ROWS_MAX", 10)
    journal = MemoryJournal()
    written = Written(journal)
    store = ViewStore(tmp_path, app, journal.identity, SETTINGS)
    with closing(store):
        assert store.batch_rows() == 10
        written.painters(dict.fromkeys(range(400), "Ada"))
        for batch in journal_batches(journal, store.epoch, Epoch(0), rows_max=store.batch_rows):
            store.apply(batch)
        assert store.batch_rows() == 50
    with closing(ViewStore(tmp_path, app, journal.identity, SETTINGS)) as store:
        assert store.batch_rows() == 50
        for number in range(60):
            written.painters({number: "Bob", 399: str(number)})
        batches = partial(journal_batches, journal, rows_max=store.batch_rows, in_steps=True)
        last = written.epoch
        assert [one.rows for one in batches(store.epoch, last)] == [50, 50, 20]
        written.painters(dict.fromkeys(range(100), "Ida"))
        monkeypatch.setattr(change_batch, "BYTES_MAX", 1_000)
        [large] = batches(last, written.epoch)
        sizes = [sum(map(len, step.values())) for step in large.steps()]
        assert max(sizes) < 30, "fewer rows than by their number"
        assert sum(sizes) == 100


def test_short_memory_makes_batches_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a batch for a large table needs too much memory, the view goes on with batches as for a small one."""
    for module in (change_batch, view_store):
        monkeypatch.setattr(module, "ROWS_MAX", 10)
    monkeypatch.setattr(sql_view, "_PAUSE_S", 0.0)
    apply, sizes = ViewStore.apply, []

    def limited(store: ViewStore, batch: ChangeBatch) -> None:
        sizes.append(batch.rows)
        if 20 < batch.rows < 400:
            raise duckdb.OutOfMemoryException("could not allocate block")
        apply(store, batch)

    monkeypatch.setattr(ViewStore, "apply", limited)
    journal = MemoryJournal()
    written = Written(journal)
    written.painters(dict.fromkeys(range(400), "Ada"))
    for number in range(60):
        written.painters({number: "Bob"})
    with following(tmp_path, journal) as view:
        assert len(painters(view)) == 400
        assert (view.epoch, view.problem) == (60, None)
    assert sizes == [400, 50, 1, 10, 10, 10, 10, 10, 9]


def test_view_rests_after_long_work_until_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without queries, it leaves most of the time to others; a query and an erasure end the rest at once."""
    monkeypatch.setattr(sql_view, "_REST_S", 0.05)
    monkeypatch.setattr(sql_view, "_REST_SHARE", 1e6)
    monkeypatch.setattr(sql_view, "_REST_MOST_S", DEADLINE_S)
    journal = MemoryJournal()
    written = Written(journal)
    written.painters({1: "Ada"})
    with following(tmp_path, journal) as view:
        wait_for(lambda: view.epoch == 0, "the view has the first epoch", DEADLINE_S)
        written.painters({2: "Bob"})
        time.sleep(0.3)
        assert view.epoch == 0
        began = time.monotonic()
        assert painters(view) == [(1, "Ada"), (2, "Bob")]
        assert time.monotonic() - began < DEADLINE_S / 2
        monkeypatch.setattr(sql_view, "_CURIOUS_S", 0.0)
        written.painters({3: "Cy"})
        wait_for(lambda: view.epoch == 2, "the view has the third epoch", DEADLINE_S)
        written.painters({4: "Di"})
        time.sleep(0.3)
        assert view.epoch == 2
        monkeypatch.setattr(ErasureWatch, "count", lambda _: 1)
        wait_for(lambda: view.epoch == 3, "the view is built again", DEADLINE_S / 2)


def test_killed_view_loses_nothing(tmp_path: Path) -> None:
    """A view that is killed at any moment goes on, and ends with the state of the journal."""
    with closing(DataDirectory(tmp_path).open_journal_of(app.name)) as journal:
        written = Written(journal)
        for kills in range(4):
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.view_process", str(tmp_path)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=TOP,
            )
            assert process.stdout is not None
            assert process.stdout.readline()
            for number in range(20):
                written.painters(dict.fromkeys(range(number, 200), f"{kills}-{number}"))
                written.requests(1)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        with following(tmp_path, journal) as view:
            assert painters(view) == [(one, f"3-{min(one, 19)}") for one in range(200)]
            assert view.ask(Query("FROM requests")).table.num_rows == 80
            assert view.ask(Query("FROM epochs")).table.num_rows == 160


def test_killed_view_leaves_no_child(tmp_path: Path) -> None:
    """The queries of a killed view, and the child that waits for one, end with it."""
    command = [sys.executable, "-m", "tests.faults.asking_process", str(tmp_path)]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline()
            view = psutil.Process(process.pid)
            wait_for(lambda: len(view.children()) == 2, "a query that runs, and a spare child")
            children = view.children()
        finally:
            process.kill()
    gone, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert len(gone) == 2
    assert alive == []


def test_file_holds_an_epoch_or_not(tmp_path: Path) -> None:
    """An epoch that cannot be applied changes nothing: state and epoch stay as they were."""
    journal = MemoryJournal()
    written = Written(journal)
    written.painters({1: "Ada"})
    with following(tmp_path, journal) as view:
        assert painters(view) == [(1, "Ada")]
        written.changes(("Painter", "2", None), ("Painter", "1", b"\xc1"))
        wait_for(lambda: view.problem, "the failure")
        with pytest.raises(ViewUnavailable, match=r"epoch 0, and 1 is asked for .*no shape"):
            view.ask(Query("SELECT 1", timeout_ms=1_500))
        assert view.ask(Query("SELECT name FROM Painter", min_epoch=0)).epoch == 0
    with duckdb.connect(view_file(tmp_path)) as file:
        assert file.sql("SELECT epoch FROM penstock.view").fetchall() == [(0,)]
