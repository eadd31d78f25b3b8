"""Queries in children: the system ends and bounds them, and no query costs another one its answer."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from penstock.base.ids import Epoch
from penstock.errors import PenstockError, QueryError
from penstock.model.application import App
from penstock.process.config import ViewConfig
from penstock.sql_view import view_store as store
from penstock.sql_view.as_of_query import AsOfQueries
from penstock.sql_view.change_batch import ROWS_MAX, ChangeBatch
from penstock.sql_view.query import Query
from penstock.sql_view.query_pool import LONG, QUICK, FairSlots, ResultOptions
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.history import person_app
from tests.unit.sql_view.gallery_app import Written, app
from tests.waiting import wait_for

SETTINGS = ViewConfig(memory_mb=64, time_ms=60_000, threads=1)
STUBBORN = "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))"
"""A function that runs for a minute, and looks at nothing meanwhile."""

GREEDY = "SELECT len(range(1000000000))"
DEADLINE_S = 60.0


@pytest.fixture
def settings() -> ViewConfig:
    return SETTINGS


STRANGERS: set[int] = set()


@pytest.fixture(autouse=True)
def know_strangers() -> None:
    """Note the children of other tests in this process, such as a JVM; `children` leaves them out."""
    STRANGERS.clear()
    STRANGERS.update(one.pid for one in psutil.Process().children())


def children() -> list[psutil.Process]:
    """Return the children that the test has made this process have; dead ones, too."""
    return [one for one in psutil.Process().children() if one.pid not in STRANGERS]


def ask(view: View, query: str, caller: str = "", timeout_ms: int = 60_000) -> list[object]:
    found = view.execute(Query(query, timeout_ms=timeout_ms), ResultOptions(caller=caller)).result()
    return [tuple(row.values()) for row in found.table.to_pylist()]


def test_stubborn_functions_end_and_leave_places(view: View) -> None:
    """Functions that cannot be interrupted end at their limit, and short queries run meanwhile."""

    def stubborn() -> None:
        with pytest.raises(PenstockError, match=r"took longer|places"):
            ask(view, STUBBORN, "a", timeout_ms=1_000)

    count = QUICK + 2 * LONG
    with ThreadPoolExecutor(count) as threads:
        running = [threads.submit(stubborn) for _ in range(count)]
        answered = 0
        while not all(one.done() for one in running):
            assert ask(view, "SELECT 1", "b") == [(1,)]
            answered += 1
        assert answered
        for one in running:
            one.result()
    assert children() == []


def test_caller_cannot_have_all_places_for_long_queries(view: View) -> None:
    """A caller with many long queries leaves one place for the long query of another caller."""
    sizes = "repeat('a', 12000)"
    long = f"SELECT levenshtein({sizes}, {sizes} || 'b')"  # beyond the first moments, and finite
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(ask, view, STUBBORN, "a") for _ in range(4)]
        assert ask(view, long, "b") == [(1,)]
        assert not any(one.done() for one in running)
        while not all(one.done() for one in running):
            for child in children():
                with suppress(psutil.NoSuchProcess):  # it may end by itself first
                    child.kill()


def test_memory_is_bounded_by_the_system(view: View) -> None:
    """The memory of a function outside of DuckDB's buffers is bounded, too, and the error says so."""
    stop, seen = threading.Event(), [0]

    def watch() -> None:
        while not stop.wait(0.01):
            for one in children():
                with suppress(psutil.Error):
                    seen.append(one.memory_info().data)

    watcher = threading.Thread(target=watch)
    before = psutil.Process().memory_info().data
    watcher.start()
    try:
        with pytest.raises(QueryError, match=r"view\.memory_mb"):
            ask(view, GREEDY)
    finally:
        stop.set()
        watcher.join()
    assert max(seen) - before <= 64 + 256 << 20
    assert ask(view, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_broken_child_costs_its_query_alone(view: View, name: str) -> None:
    """A process that is killed or crashes is named in the error, and the view goes on."""

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(ask, view, STUBBORN)
        found = wait_for(children, "the start of a child")
        found[0].send_signal(signal.Signals[name])
        with pytest.raises(QueryError, match=f"ended by {name}"):
            running.result()
    assert ask(view, "SELECT name FROM Painter WHERE number = 1") == [("Ada",)]
    assert children() == []


def test_past_has_the_same_limits(journal: MemoryJournal) -> None:
    """A stubborn function ends at its limit in a query of the past, too."""
    history = AsOfQueries(app, journal, SETTINGS)
    question = Query(f"{STUBBORN} FROM Painter AS OF EPOCH 0")
    past = question.as_of_statement()
    assert past is not None
    with pytest.raises(QueryError, match=r"view\.time_ms"):
        history.ask(past, question, time.monotonic() + 0.5)
    assert children() == []


def test_what_was_rewound_is_kept_for_later_children(journal: MemoryJournal) -> None:
    """A class at an epoch is rewound once; a later child has it from its parent."""
    history = AsOfQueries(app, journal, SETTINGS)
    question = Query("SELECT name FROM Painter AS OF EPOCH 0")
    past = question.as_of_statement()
    assert past is not None
    expected = pa.table({"name": ["Ada", "Bob"]})
    assert history.ask(past, question, time.monotonic() + DEADLINE_S).table == expected
    journal.read = None  # type: ignore[assignment, method-assign]
    journal.rows = None  # type: ignore[assignment, method-assign]
    assert history.ask(past, question, time.monotonic() + DEADLINE_S).table == expected


def opened_again(folder: Path, tried: App, class_name: str, **row: Any) -> list[bool]:
    """Apply four epochs of an entity with such a row each; say after which of them the file was opened again."""
    entity = tried.entities[class_name]
    again = []
    with closing(store.ViewStore(folder, tried, "journal", SETTINGS)) as view:
        for number in range(4):
            batch = ChangeBatch(Epoch(number), epochs=[(number, 0, 0)])
            batch.changes[class_name] = {str(number): entity.encode(row)}
            before = view._connection
            view.apply(batch)
            view.fold_log(is_read=False)
            again.append(view._connection is not before)
        assert (view.rows(), view.epoch) == (4, 3)
        assert view.sealed().execute("SELECT count(*) FROM epochs").fetchall() == [(4,)]
    return again


@pytest.mark.parametrize(
    ("bound", "expected"),
    [("_LOG_MAX", [True, True, True, True]), ("_BATCHES", [False, True, False, True])],
)
def test_file_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, expected: list[bool]
) -> None:
    """After a long log or many batches, DuckDB gives back the memory of former statements; the file has all rows."""
    monkeypatch.setattr(store, bound, 2)
    assert opened_again(tmp_path, app, "Painter", number=1, name="Ada") == expected


def test_tables_in_memory_are_not_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of an application with a personal class have no file, and stay."""
    monkeypatch.setattr(store, "_BATCHES", 2)
    again = opened_again(tmp_path, person_app.app, "Page", page_id="p", visits=0, last=None)
    assert again == [False, False, False, False]


@pytest.mark.parametrize(
    ("tried", "class_name", "row"),
    [
        (app, "Painter", {"number": 1, "name": "Ada"}),
        (person_app.app, "Page", {"page_id": "p", "visits": 0, "last": None}),
    ],
    ids=["file", "memory"],
)
@pytest.mark.parametrize("is_read", [False, True])
def test_replaced_rows_are_given_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: App,
    class_name: str,
    row: dict[str, Any],
    *,
    is_read: bool,
) -> None:
    """A statement reads the rows that were replaced until the log is folded; tables in memory have no log, and fold, too."""
    monkeypatch.setattr(store, "_REMOVED", 1 / ROWS_MAX)
    stored = f"SELECT estimated_size FROM duckdb_tables() WHERE table_name = '{class_name}'"
    with closing(store.ViewStore(tmp_path, tried, "journal", SETTINGS)) as view:
        sizes = []
        for number in range(8):
            batch = ChangeBatch(Epoch(number), epochs=[(number, 0, 0)])
            batch.changes[class_name] = {"1": tried.entities[class_name].encode(row)}
            view.apply(batch)
            view.fold_log(is_read=is_read)
            sizes.append(store._number(view._connection, stored))
        is_left = is_read and not tried.is_personal  # children may read the blocks of the file
        assert sizes[-1] == 8 if is_left else max(sizes) <= 3, sizes
        assert view.rows() == 1


def test_file_is_left_to_those_who_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints come while queries read, and each query has the rows of its own epoch."""
    monkeypatch.setattr(store, "_LOG_MAX", 1)
    monkeypatch.setattr(store, "_LOG_READ_MAX", 1)
    journal = MemoryJournal()
    written = Written(journal)
    count, rounds = 4_000, 4
    slow = "levenshtein(repeat('a', 20000), repeat('b', 20000))"
    query = f"SELECT count(*), min(name), max(name), {slow} FROM Painter"
    inodes = set()
    with closing(View(tmp_path, app, journal, SETTINGS)) as view:
        view.start()
        with ThreadPoolExecutor(2) as threads:
            running = []
            for number in range(rounds):
                epoch = written.painters(dict.fromkeys(range(count), f"{number:0100}"))
                question = Query(query, min_epoch=epoch)
                running.append((number, threads.submit(view.ask, question)))
                assert view.await_epoch(epoch, DEADLINE_S)
                inodes.add((tmp_path / "view" / "view.duckdb").stat().st_ino)
            for number, one in running:
                [row] = one.result().table.to_pylist()
                found = list(row.values())
                assert found[0] == count
                assert found[1] == found[2] >= f"{number:0100}"
    assert len(inodes) > 1, "a copy was made"


def test_turns_are_shared_out_among_callers() -> None:
    """The caller with the fewest places is next, and one without a turn in time goes away."""
    turns = FairSlots(2, per_caller=2)
    assert turns.take("a", 0)
    assert turns.take("a", 0)
    assert not turns.take_now("b")
    assert not turns.take("b", time.monotonic() + 0.01)
    order: list[str] = []

    def wait(name: str) -> None:
        assert turns.take(name, time.monotonic() + DEADLINE_S)
        order.append(name)
        turns.give(name)

    waiting = []
    for name in ("a", "a", "b"):
        waiting.append(threading.Thread(target=wait, args=[name]))
        waiting[-1].start()
        while len(turns._waiting) < len(waiting):
            time.sleep(0.001)
    turns.give("a")
    for one in waiting:
        one.join()
    assert order[0] == "b"
    assert turns.take_now("c")


def test_spare_child_answers_of_the_newest_epoch(tmp_path: Path) -> None:
    """Children that were forked before their questions came answer as others do, epoch by epoch."""
    journal = MemoryJournal()
    written = Written(journal)
    with closing(View(tmp_path, app, journal, SETTINGS)) as view:
        view.start(spare=True)
        for number in range(8):
            written.painters({1: str(number)})
            for _ in range(2):
                found = view.ask(Query("SELECT name, ? AS n FROM Painter", [number]))
                assert found.table.to_pylist() == [{"name": str(number), "n": number}]
        with pytest.raises(QueryError, match=r"took longer than 300 ms"):
            view.ask(Query(STUBBORN, timeout_ms=300))
    assert children() == []
