"""SQL at past epochs: the rows of that epoch, always the same bytes, and only rows."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import Epoch
from penstock.errors import QueryError, ViewUnavailable
from penstock.journal.api import CompactionPolicy, Journal
from penstock.process.config import ViewConfig
from penstock.sql_view.as_of_query import AsOfQueries, as_of_queries
from penstock.sql_view.query import Query, QueryResult
from penstock.sql_view.query_body import AsOf
from penstock.sql_view.result_format import ResultFormat, encode_result
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.snapshots.test_snapshots import Gallery
from tests.unit.sql_view.gallery_app import Written, app, state_of
from tests.unit.sql_view.test_query_guard import ATTACKS
from tests.unit.sql_view.test_view_tables import FILLED

pytestmark = pytest.mark.long

SETTINGS = ViewConfig(memory_mb=256)
NAMES = st.one_of(st.none(), st.text("abc", min_size=1, max_size=3))
HISTORIES = st.lists(
    st.dictionaries(st.integers(0, 6), NAMES, min_size=1, max_size=5), min_size=1, max_size=5
)


def asked(history: AsOfQueries, query: str, *parameters: Any, **given_: Any) -> QueryResult:
    question = Query(query, list(parameters), **given_)
    past = question.as_of_statement()
    assert past is not None, query
    return history.ask(past, question, time.monotonic() + SETTINGS.time_ms / 1_000)


def rows(
    history: AsOfQueries, query: str, *parameters: Any, **given_: Any
) -> list[tuple[Any, ...]]:
    found = asked(history, query, *parameters, **given_).table
    return [tuple(row.values()) for row in found.to_pylist()]


def known(written: Written, names: dict[int, str | None], held: dict[int, str]) -> None:
    """Commit possible changes: only an existing entity is deleted."""
    changes = {key: name for key, name in names.items() if name is not None or key in held}
    written.painters(changes)
    for key, name in changes.items():
        if name is None:
            del held[key]
        else:
            held[key] = name


def five_epochs() -> MemoryJournal:
    journal = MemoryJournal()
    written = Written(journal)
    written.painters({1: "Ada", 2: "Bob"})
    written.painters({1: "Ann", 3: "Cyd"})
    written.painters({2: None})
    written.requests(3)
    written.changes(("Painting", "full", state_of("Painting", **FILLED)))
    return journal


@pytest.fixture
def journal() -> MemoryJournal:
    """Give a journal of five epochs."""
    return five_epochs()


@pytest.fixture(scope="module")
def shared() -> AsOfQueries:
    """Give a history that all refused queries share; its tables are loaded once."""
    return AsOfQueries(app, five_epochs(), SETTINGS)


@pytest.fixture
def history(journal: MemoryJournal) -> AsOfQueries:
    """Give its history."""
    return AsOfQueries(app, journal, SETTINGS)


@given(HISTORIES)
@settings(max_examples=4)
def test_every_epoch_is_as_the_view_was(epochs: list[dict[int, str | None]]) -> None:
    """At each epoch of any history, all tables have the rows that the live view had there."""
    queries = [f"FROM {one} ORDER BY ALL" for one in ("Painter", "epochs", "requests", "replies")]
    with TemporaryDirectory() as folder:
        journal = MemoryJournal()
        written = Written(journal)
        held: dict[int, str] = {}
        lived: dict[Epoch, list[pa.Table]] = {}
        with closing(View(Path(folder), app, journal, SETTINGS)) as view:
            view.start()
            for names in epochs:
                known(written, names, held)
                if len(names) % 2:
                    written.requests(1)
                lived[written.epoch] = [view.ask(Query(one)).table for one in queries]
        history = AsOfQueries(app, journal, SETTINGS)
        for epoch, tables in lived.items():
            for query, table in zip(queries, tables, strict=True):
                answer = asked(history, f"{query} AS OF EPOCH {epoch}")
                assert answer.epoch == epoch
                assert answer.table == table


@given(HISTORIES, st.data())
@settings(max_examples=12)
def test_changes_lead_from_one_state_to_the_other(
    epochs: list[dict[int, str | None]], data: st.DataObject
) -> None:
    """The feed of any range, applied to the state before it, gives the state after it."""
    journal = MemoryJournal()
    written, states = Written(journal), [dict[int, str]()]
    for names in epochs:
        held = states[-1].copy()
        known(written, names, held)
        states.append(held)
    history = AsOfQueries(app, journal, SETTINGS)
    last = data.draw(st.integers(0, written.epoch))
    first = data.draw(st.integers(0, last))
    state = states[first].copy()
    reached = (-1, -1)
    for row in asked(history, "FROM changes('Painter', ?, ?)", first, last).table.to_pylist():
        key, before, after = row["key"], row["before"], row["after"]
        assert (row["epoch"], key) > reached
        reached = row["epoch"], key
        assert state.get(key) == (before and before["name"])
        kind = "create" if before is None else "delete" if after is None else "update"
        assert row["kind"] == kind
        if after is None:
            del state[key]
        else:
            assert after["number"] == key
            state[key] = after["name"]
    assert state == states[last + 1]


def test_tables_may_be_of_several_epochs(history: AsOfQueries) -> None:
    """Each table of a query may have its own epoch, besides the epoch of the whole query."""
    query = (
        "SELECT old.number, old.name AS former, now.name FROM Painter AS OF EPOCH 0 AS old "
        "FULL JOIN Painter AS now USING (number) ORDER BY number"
    )
    assert rows(history, query) == [(1, "Ada", "Ann"), (2, "Bob", None), (None, None, "Cyd")]
    at = asked(history, f"{query} AS OF EPOCH 1")
    assert at.epoch == 1
    assert [row["name"] for row in at.table.to_pylist()] == ["Ann", "Bob", "Cyd"]
    assert asked(history, "FROM (FROM Painter AS OF EPOCH 1), epochs AS OF EPOCH 2 e").epoch == 2
    assert asked(history, "FROM changes('Painter', 0, 3)").epoch == 3
    assert rows(history, "SELECT Painter.name FROM main.Painter AS OF EPOCH 0 LIMIT 1") == [
        ("Ada",)
    ]
    assert rows(history, "SELECT max(epoch) FROM penstock.epochs AS OF EPOCH 2 e") == [(2,)]


def test_question_may_begin_with_anything_that_reads(history: AsOfQueries) -> None:
    """SHOW, DESCRIBE, SUMMARIZE, EXPLAIN, PIVOT and WITH work in the past as in the present."""
    tables = ["Painter", "Painting", "effects", "epochs", "replies", "requests"]
    assert [name for (name,) in rows(history, "SHOW TABLES AS OF EPOCH 0")] == tables
    assert rows(history, "DESCRIBE Painter AS OF EPOCH 0")[0][:2] == ("number", "BIGINT")
    assert rows(history, "SUMMARIZE Painter AS OF EPOCH 0")[0][:4] == ("number", "BIGINT", "1", "2")
    assert rows(history, "EXPLAIN FROM Painter AS OF EPOCH 0")
    query = "WITH p AS (FROM Painter AS OF EPOCH 0) SELECT count(*) FROM p"
    assert rows(history, query) == [(2,)]
    query = "PIVOT Painter AS OF EPOCH 0 ON number IN (1, 2) USING first(name)"
    assert rows(history, query) == [("Ada", "Bob")]


def test_every_type_is_as_in_the_present(history: AsOfQueries) -> None:
    """Values of all types, sets and nested ones among them, come out as the view shows them."""
    found = asked(history, "SELECT colours, ident, offers FROM Painting AS OF EPOCH 4")
    assert found.table.to_pylist() == [
        {"colours": [-2, 1, 3], "ident": str(FILLED["ident"]), "offers": [("Ada", 1)]}
    ]
    assert found.types == ["BIGINT[]", "UUID", "MAP(VARCHAR, BIGINT)"]


def test_wide_value_widens_its_epoch_alone(journal: MemoryJournal) -> None:
    """Types follow from the values of the epoch; a feed has the widest of its range."""
    Written(journal).changes(("Painting", "full", state_of("Painting", number=2**64 - 1)))
    history = AsOfQueries(app, journal, SETTINGS)
    assert asked(history, "SELECT number FROM Painting AS OF EPOCH 4").types == ["BIGINT"]
    assert asked(history, "SELECT number FROM Painting AS OF EPOCH 5").types == ["HUGEINT"]
    query = "SELECT kind, before.number b, after.number a FROM changes('Painting', ?, ?)"
    assert asked(history, query, 4, 5).types == ["VARCHAR", "HUGEINT", "HUGEINT"]
    assert rows(history, query, 5, 5) == [("update", -(2**63), 2**64 - 1)]


def test_epoch_without_rows_has_empty_tables(history: AsOfQueries) -> None:
    """Before its first entity a class is there, and has no rows; nor has a feed without changes."""
    assert rows(history, "FROM Painting AS OF EPOCH 0") == []
    assert rows(history, "SELECT * FROM changes('Painting', 0, 3)") == []
    empty = asked(history, "FROM changes('Painter', 3, 4)").table
    assert empty.column_names == ["epoch", "time", "key", "kind", "before", "after"]


def test_created_and_deleted_in_one_epoch_is_no_change(journal: MemoryJournal) -> None:
    """An entity that exists neither before nor after the epochs is not in the feed."""
    written = Written(journal)
    epoch = written.painters({9: None, 1: "Axa"})
    history = AsOfQueries(app, journal, SETTINGS)
    query = "SELECT key, kind FROM changes('Painter', ?, ?)"
    assert rows(history, query, epoch, epoch) == [(1, "update")]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack[:60])
def test_attack_is_refused_in_the_past_too(
    shared: AsOfQueries, attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that the guard refuses in the present is refused with AS OF too."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError):
        asked(shared, f"{attack}\nAS OF EPOCH 1")
    with pytest.raises(QueryError):
        asked(shared, attack, as_of=AsOf(1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("FROM Painter AS OF EPOCH 9", "there is no epoch 9; the journal holds epochs 0 to 4"),
        ("FROM Painter AS OF TIMESTAMP '1999-01-01'", "epoch 0, the oldest"),
        ("FROM Painter AS OF TIMESTAMP '2999-01-01'", "not known yet"),
        ("FROM changes('Painter', 0, 9)", "there is no epoch 9"),
        ("FROM changes('Painter', 2, 1)", "backwards"),
        ("FROM changes('Paintr', 0, 1)", "did you mean Painter"),
        ("FROM Paintr AS OF EPOCH 0 p", "did you mean Painter"),
        ("FROM other.Painter AS OF EPOCH 0 p", "no table"),
        ("FROM Paintr AS OF EPOCH 0", 'Did you mean "Painter"'),
        ("SELECT number AS OF EPOCH 0 FROM Painter", "only in the place of a table"),
        ("SELECT changes('Painter', 0, 1)", "only in the place of a table"),
        ('FROM "past 0".Painter, Painter AS OF EPOCH 0', "no table past 0"),
        ("FROM \"feed steps\", changes('Painter', 0, 1)", "does not exist"),
    ],
)
def test_mistake_is_named(history: AsOfQueries, query: str, said: str) -> None:
    """An epoch that is not held, a table that is not there, a clause out of place: each is named."""
    with pytest.raises(QueryError, match=said):
        asked(history, query)


def test_limits_hold_in_the_past(journal: MemoryJournal) -> None:
    """Time, rows and memory end a query of the past as one of the present."""
    small = AsOfQueries(app, journal, ViewConfig(memory_mb=64, rows_max=2))
    with pytest.raises(QueryError, match="more than 2 rows"):
        asked(small, "FROM range(3) AS OF EPOCH 0")
    with pytest.raises(QueryError, match=r"view\.memory_mb"):
        asked(small, "SELECT list(range) FROM range(100000000) AS OF EPOCH 0")
    endless = "SELECT count(*) FROM range(100000000000) WHERE range % 7 = hash(range) % 5"
    question = Query(f"{endless} AS OF EPOCH 0")
    past = question.as_of_statement()
    assert past is not None
    with pytest.raises(QueryError, match=r"view\.time_ms"):
        small.ask(past, question, time.monotonic() + 0.2)
    assert rows(small, "SELECT 1 AS OF EPOCH 0") == [(1,)]


def test_feed_takes_no_more_than_its_part_of_the_memory(journal: MemoryJournal) -> None:
    """A range with too many changes is refused before it is built, and smaller ones are answered."""
    written = Written(journal)
    for _ in range(3):
        written.painters(dict.fromkeys(range(8_000), "x" * 1_000))
    small = AsOfQueries(app, journal, ViewConfig(memory_mb=128))
    with pytest.raises(QueryError, match="fewer epochs"):
        asked(small, "FROM changes('Painter', 0, 7)")
    query = "SELECT count(*) FROM changes('Painter', 7, 7)"
    assert rows(small, query) == [(8_000,)]


def test_newest_requests_are_those_of_the_epoch(journal: MemoryJournal) -> None:
    """Of requests, replies and epochs there are as many as a view keeps, the newest of the epoch."""
    written = Written(journal)
    for _ in range(70):
        written.requests(2)
    few = AsOfQueries(app, journal, ViewConfig(memory_mb=256, requests_max=3))
    assert rows(few, "SELECT lsn FROM requests AS OF EPOCH 40") == [(72,), (73,), (74,)]
    assert rows(few, "SELECT lsn FROM replies AS OF EPOCH 3") == [(0,), (1,), (2,)]
    assert rows(few, "SELECT epoch FROM epochs AS OF EPOCH 40") == [(38,), (39,), (40,)]
    assert rows(few, "SELECT epoch FROM epochs AS OF EPOCH 1") == [(0,), (1,)]


def test_waits_for_the_epoch_that_was_seen(history: AsOfQueries) -> None:
    """Tables without a clause are of the epoch that the caller has seen, or the wait ends."""
    query = "SELECT count(*) FROM Painter a, Painter AS OF EPOCH 0 b"
    assert asked(history, query, min_epoch=4).epoch == 4
    question = Query(query, min_epoch=5)
    past = question.as_of_statement()
    assert past is not None
    with pytest.raises(ViewUnavailable, match="epoch 5"):
        history.ask(past, question, time.monotonic() + 0.05)


class Answers:
    """The bytes of some queries at some epochs; none of them has an ORDER BY."""

    QUERIES: Sequence[str] = (
        "FROM Painter",
        "SELECT name, sum(number / 7.0), list(number) FROM Painter GROUP BY name",
        "SELECT a.name, b.number FROM Painter a JOIN Painter b ON a.name = b.name LIMIT 999",
        "FROM changes('Painter', 3, 20)",
        "FROM Painter AS OF EPOCH 2 AS a JOIN Painter AS b USING (name)",
    )
    EPOCHS = (7, 30)

    def __init__(self, data: Path, journal: Journal) -> None:
        history = as_of_queries(data, app, journal, SETTINGS)
        self.bytes = [
            encode_result(asked(history, query, as_of=AsOf(epoch)), ResultFormat.ARROW)
            for query in self.QUERIES
            for epoch in self.EPOCHS
        ]


def test_bytes_are_the_same_for_ever(tmp_path: Path) -> None:
    """Asked again, after a restart, more epochs, compaction and snapshots, nothing differs."""
    gallery = Gallery(tmp_path)
    for epoch in range(40):
        names = {(epoch * 7 + n) % 50 - 9: f"{(epoch + n) % 6}" for n in range(9)}
        gallery.written.painters(names)
    first = Answers(tmp_path, gallery.journal).bytes
    assert Answers(tmp_path, gallery.journal).bytes == first
    gallery.write_snapshot(11)
    gallery.write_snapshot(25)
    assert Answers(tmp_path, gallery.journal).bytes == first
    gallery.written.painters({1: None, 2: None})
    gallery.journal.compact(CompactionPolicy(newest=5, epochs=10, grace_s=0))
    assert Answers(tmp_path, gallery.journal).bytes == first
    gallery.journal.close()
    again = Gallery(tmp_path)
    assert Answers(tmp_path, again.journal).bytes == first


def test_what_was_forgotten_is_named(tmp_path: Path) -> None:
    """Below the floor a query is refused with the held range; above it nothing changes."""
    gallery = Gallery(tmp_path)
    for epoch in range(20):
        gallery.written.painters({epoch: "Ada", epoch // 2: "Bob"})
    before = as_of_queries(tmp_path, app, gallery.journal, SETTINGS)
    expected = rows(before, "FROM Painter AS OF EPOCH 15")
    gallery.write_snapshot(11)
    gallery.journal.compact(CompactionPolicy(newest=0, epochs=4, grace_s=0))
    assert gallery.journal.forget(Epoch(12)) == 12
    after = as_of_queries(tmp_path, app, gallery.journal, SETTINGS)
    assert rows(after, "FROM Painter AS OF EPOCH 15") == expected
    with pytest.raises(QueryError, match="holds epochs 12 to 19"):
        rows(after, "FROM Painter AS OF EPOCH 11")
    assert len(rows(after, "FROM changes('Painter', 12, 13)")) == 4
    with pytest.raises(QueryError, match="epoch 12, the oldest"):
        rows(after, "FROM Painter AS OF TIMESTAMP '2020-01-01'")


@pytest.fixture
def timed() -> AsOfQueries:
    """Give a history whose epochs were committed at 10:00, 11:00 and 12:00 UTC."""
    journal = MemoryJournal()
    written = Written(journal)
    for number in range(3):
        written.time_us = (10 + number) * 3_600_000_000
        written.painters({number: "Ada"})
    return AsOfQueries(app, journal, SETTINGS)


@pytest.mark.parametrize(
    ("instant", "epoch"),
    [
        ("1970-01-01 10:00", 0),
        ("1970-01-01T10:59:59.999999Z", 0),
        ("1970-01-01 11:00:00+00:00", 1),
        ("1970-01-01 13:30:00+02:00", 1),
        ("1970-01-01 05:59:00-06:00", 1),
        ("1970-01-01 12:00:00", 2),
        ("2026-11-21", 2),
    ],
)
def test_instant_means_the_newest_epoch_by_then(
    timed: AsOfQueries, instant: str, epoch: int
) -> None:
    """A time means the newest epoch that was committed at or before it, in any zone."""
    assert asked(timed, f"FROM Painter AS OF TIMESTAMP '{instant}'").epoch == epoch
    assert asked(timed, "FROM Painter", as_of=AsOf(timestamp=instant)).epoch == epoch


def test_many_may_ask_at_once(tmp_path: Path) -> None:
    """Questions at several epochs, asked at once while epochs come and go, have their own answers."""
    gallery = Gallery(tmp_path)
    for epoch in range(16):
        gallery.written.painters({number: str(epoch) for number in range(epoch + 1)})
    history = as_of_queries(tmp_path, app, gallery.journal, SETTINGS)

    def ask(epoch: int) -> bool:
        found = rows(history, "SELECT count(*), max(name::INT) FROM Painter AS OF EPOCH ?", epoch)
        return found == [(epoch + 1, epoch)]

    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(ask, epoch * 7 % 16) for epoch in range(16)]
        for _ in range(5):
            gallery.written.painters({99: "0"})
            gallery.journal.compact(CompactionPolicy(newest=3, epochs=4, grace_s=0))
        assert all(one.result() for one in answers)
