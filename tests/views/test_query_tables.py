"""Tables that are written in SQL: at each epoch that the view shows, they are the answer of the query."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock import App, Entity, key, postgres, search, sql, sqlite, view
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.delta import DeltaJournal
from penstock.model.target_choice import TargetChoice
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import ViewState, folder_of
from penstock.views.search_index import SearchIndex, SearchQuery
from tests.views.book import Book, Rows, shown_in
from tests.views.sql_tables import Answering, applier, await_state, commit, sql_view
from tests.views.totals_app import app
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


@pytest.fixture
def answering(
    tmp_path: Path, journal: DeltaJournal, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Answering]:
    with sql_view(tmp_path, app, monkeypatch) as answering:
        yield answering


def totals_of(rows: Rows) -> list[tuple[Any, ...]]:
    """Return the rows of the SQL tables, computed from those of the classes, by Python alone."""
    credits_of = {name: credit for _, name, credit in rows["Customer"]}
    by_customer: dict[str, list[tuple[Any, ...]]] = {}
    for order in rows["Order"]:
        by_customer.setdefault(order[2], []).append(order)
    return [
        (
            name,
            len(orders),
            sum(Decimal(order[3]) for order in orders),
            Decimal(credits_of[name]) if name in credits_of else None,
            max(order[1] for order in orders) * 1_000_000,
            sorted(order[1] for order in orders),
        )
        for name, orders in sorted(by_customer.items())
    ]


def lines_of(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted(
        (json.dumps([str(order[1]), item], separators=(",", ":")), order[1], item, pieces, order[4])
        for order in rows["Order"]
        for item, pieces in order[5].items()
    )


def tables_in(path: Path) -> tuple[int, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the epoch and the rows of both SQL tables, read in one transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        (epoch,) = connection.execute("SELECT epoch FROM _penstock_view").fetchone()
        totals = connection.execute(
            "SELECT customer, orders, total, credit, patience, numbers FROM totals ORDER BY 1"
        ).fetchall()
        lines = connection.execute(
            "SELECT _key, number, item, pieces, shipped FROM lines ORDER BY _key"
        ).fetchall()
    shown = [
        (row[0], row[1], Decimal(row[2]), row[3] and Decimal(row[3]), row[4], json.loads(row[5]))
        for row in totals
    ]
    return epoch, shown, [(*row[:4], bool(row[4])) for row in lines]


def check(data: Path, book: Book) -> None:
    """Wait until the view shows the newest epoch, and compare all of its tables."""
    path = folder_of(data, NAME) / "view.sqlite"
    wait_for(lambda: shown_or_none(path) == book.epoch, f"epoch {book.epoch}")
    compare(path, book)


def compare(path: Path, book: Book) -> int:
    """Compare all tables with those of the epoch that the view shows, and return the epoch."""
    shown, totals, lines = tables_in(path)
    rows = book.expected[shown]
    assert totals == totals_of(rows)
    assert lines == lines_of(rows)
    epoch, others = shown_in(path)
    assert others == book.expected[epoch]
    return shown


def shown_or_none(path: Path) -> int | None:
    try:
        return shown_in(path)[0]
    except Exception:  # noqa: BLE001 -- the tables do not exist yet
        return None


def test_tables_are_the_answer_at_each_shown_epoch(
    tmp_path: Path, book: Book, answering: Answering
) -> None:
    """All tables of the view are those of one epoch, also while epochs come faster than the queries are asked."""
    for _ in range(20):
        book.write()
    path = folder_of(tmp_path, NAME) / "view.sqlite"
    with applier(tmp_path, app, NAME):
        check(tmp_path, book)
        epochs = set()
        for _ in range(6):
            first = book.epoch
            for _ in range(10):
                book.write()
                epochs.add(compare(path, book))
            wait_for(lambda: (shown_or_none(path) or 0) > first, "progress")  # noqa: B023
            epochs.add(compare(path, book))
        check(tmp_path, book)
    assert 1 < answering.asked < 60
    assert len(epochs) > 1
    assert await_state(tmp_path, NAME, ViewState.FOLLOWING).asked_ms


def test_restarted_applier_asks_nothing(tmp_path: Path, book: Book, answering: Answering) -> None:
    """The answer that the target shows is in a file, so that an applier goes on from its difference."""
    book.write()
    with applier(tmp_path, app, NAME):
        check(tmp_path, book)
        book.write()
        check(tmp_path, book)
    asked = answering.asked
    with applier(tmp_path, app, NAME):
        await_state(tmp_path, NAME, ViewState.FOLLOWING, book.epoch)
        assert answering.asked == asked
        book.order(7, "tea")
        check(tmp_path, book)
    assert answering.asked == asked + 1


@pytest.mark.parametrize("damage", ["lost", "cut", "other"])
def test_lost_answer_is_asked_again(
    tmp_path: Path, book: Book, answering: Answering, damage: str
) -> None:
    """Without the answer that the target shows, all tables are filled again."""
    for _ in range(10):
        book.write()
    with applier(tmp_path, app, NAME):
        check(tmp_path, book)
    (path,) = (folder_of(tmp_path, NAME) / "answers").iterdir()
    if damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif damage == "other":
        path.rename(path.with_name("0" * 32 + ".tables"))
    else:
        path.unlink()
    for _ in range(3):
        book.write()
    with applier(tmp_path, app, NAME):
        check(tmp_path, book)


def test_two_appliers_show_the_same(tmp_path: Path, book: Book, answering: Answering) -> None:
    """Of two appliers of one view, one wins each change, and no row differs."""
    book.write()
    with applier(tmp_path, app, NAME), applier(tmp_path, app, NAME):
        for _ in range(40):
            book.write()
        check(tmp_path, book)


def test_epochs_that_no_query_reads_ask_nothing(
    tmp_path: Path, book: Book, answering: Answering
) -> None:
    """Other tables go on at once while nothing has changed that a query reads."""
    book.write()
    with applier(tmp_path, app, NAME):
        check(tmp_path, book)
        asked = answering.asked
        for _ in range(5):
            book.commit(set(), [[(1, Decimal(3))]])
            check(tmp_path, book)
        assert answering.asked == asked


def test_view_waits_without_an_sql_view(tmp_path: Path, book: Book, answering: Answering) -> None:
    """The state says what is missing, and the view goes on by itself."""
    book.write()
    view, answering.view = answering.view, None
    with applier(tmp_path, app, NAME):
        report = await_state(tmp_path, NAME, ViewState.WAITING)
        assert "no SQL view runs" in report.reason
        assert "penstock view serve" in report.remedy
        answering.view = view
        check(tmp_path, book)
        answering.view = None
        book.order(3, "tea")
        await_state(tmp_path, NAME, ViewState.WAITING)
        answering.view = view
        check(tmp_path, book)


class Item(Entity):
    name: str = key()
    group: str | None = None
    stock: int = 0
    price: Decimal = Decimal(0)


class Person(Entity, personal=True):
    name: str = key()
    city: str = ""


OFTEN = timedelta(milliseconds=100)
BY_GROUP = "SELECT \"group\", sum(stock)::BIGINT AS stock FROM Item WHERE name <> 'x' GROUP BY ALL"


def shop(query: str, target: TargetChoice | None = None, name: str = "shown", **more: Any) -> App:
    """Return an application whose view has one table, a query."""
    table = sql(query, **{"key": "group", "every": OFTEN, **more})
    return App("shop", Item, Person, view(name, target or sqlite(personal=True), table))


@contextmanager
def answered(data: Path, shown: App, patch: pytest.MonkeyPatch) -> Iterator[DeltaJournal]:
    """Give the journal of an application, with an SQL view."""
    with closing(DataDirectory(data).open_journal(shown)) as journal:
        journal.deploy()
        with sql_view(data, shown, patch):
            yield journal


def rows(data: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder_of(data, "shown") / "view.sqlite")) as connection:
        return connection.execute(query).fetchall()


def test_view_is_filled_before_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application without an epoch has an empty table, which follows from then on."""
    shown = shop(BY_GROUP)
    with answered(tmp_path, shown, monkeypatch) as journal, applier(tmp_path, shown, "shown"):
        assert await_state(tmp_path, "shown", ViewState.FOLLOWING).epoch == -1
        assert rows(tmp_path, "SELECT * FROM shown") == []
        commit(journal, shown, {("Item", "a"): {"group": "g", "stock": 3}})
        await_state(tmp_path, "shown", ViewState.FOLLOWING, 0)
        assert rows(tmp_path, "SELECT _key, stock FROM shown") == [("g", 3)]


def test_rows_without_a_key_of_their_own_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is NULL, or that two rows have, makes the view incomplete; a later answer mends it."""
    shown = shop('SELECT "group", name, stock FROM Item')
    with answered(tmp_path, shown, monkeypatch) as journal:
        items = {("Item", name): {"group": name[0], "stock": 1} for name in ("a1", "a2", "b1")}
        commit(journal, shown, {**items, ("Item", "z"): {"group": None}})
        with applier(tmp_path, shown, "shown"):
            report = await_state(tmp_path, "shown", ViewState.FOLLOWING, 0)
            assert report.failed == 2
            assert rows(tmp_path, "SELECT _key, name FROM shown") == [("b", "b1")]
            failed = rows(tmp_path, 'SELECT "table", "key", reason FROM _failed ORDER BY _key')
            assert failed == [
                ("shown", None, "1 rows have no key, because it is NULL"),
                ("shown", "a", "2 rows of the query have this key"),
            ]
            commit(journal, shown, {("Item", "a2"): None, ("Item", "b2"): {"group": "b"}})
            assert await_state(tmp_path, "shown", ViewState.FOLLOWING, 1).failed == 2
            assert rows(tmp_path, "SELECT _key, name FROM shown") == [("a", "a1")]
            commit(journal, shown, {("Item", "z"): None, ("Item", "b1"): None})
            assert await_state(tmp_path, "shown", ViewState.FOLLOWING, 2).failed == 0
            assert rows(tmp_path, "SELECT _key FROM shown ORDER BY 1") == [("a",), ("b",)]
            assert rows(tmp_path, "SELECT * FROM _failed") == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT stock FROM Item", "the key group is not among its columns: stock"),
        ('SELECT stock AS "group", name, 1 AS name FROM Item', "two columns have the name name"),
        ('SELECT name AS "group", 1 AS _key FROM Item', "the column _key begins with _"),
        ('SELECT [name] AS "group" FROM Item', "the key group is of the kind json"),
        ('SELECT name AS "group", random() FROM Item', "another value each time"),
        ('SELECT name AS "group" FROM Itm', "Itm does not exist"),
    ],
)
def test_query_that_cannot_be_a_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, said: str
) -> None:
    """The state says why, and what to do."""
    shown = shop(query)
    with answered(tmp_path, shown, monkeypatch) as journal:
        commit(journal, shown, {("Item", "a"): {}})
        with applier(tmp_path, shown, "shown"):
            report = await_state(tmp_path, "shown", ViewState.REFUSED)
    assert said in report.reason
    assert report.remedy == "correct the query, and deploy it"


def test_query_that_fails_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that fails at some states leaves the table as it was, and says why."""
    shown = shop('SELECT name AS "group", CAST("group" AS INTEGER) AS n FROM Item')
    with answered(tmp_path, shown, monkeypatch) as journal:
        commit(journal, shown, {("Item", "a"): {"group": "1"}})
        with applier(tmp_path, shown, "shown"):
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 0)
            commit(journal, shown, {("Item", "a"): {"group": "x"}})
            report = await_state(tmp_path, "shown", ViewState.WAITING)
            assert "table shown: " in report.reason
            assert "Could not convert string 'x'" in report.reason
            assert rows(tmp_path, "SELECT n FROM shown") == [(1,)]
            commit(journal, shown, {("Item", "a"): {"group": "2"}})
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 2)
            assert rows(tmp_path, "SELECT n FROM shown") == [(2,)]


def test_another_query_fills_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another text the tables are filled again, also if the columns have the same names."""
    before, after = shop(BY_GROUP), shop(BY_GROUP.replace("sum(stock)", "max(stock)"))
    for shown, stock in ((before, 5), (after, 3)):
        with answered(tmp_path, shown, monkeypatch) as journal:
            items = {
                ("Item", name): {"group": "g", "stock": at + 2} for at, name in enumerate("ab")
            }
            epoch = commit(journal, shown, items)
            with applier(tmp_path, shown, "shown"):
                await_state(tmp_path, "shown", ViewState.FOLLOWING, epoch)
                assert rows(tmp_path, "SELECT stock FROM shown") == [(stock,)]


def test_wider_column_fills_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that changes the columns in SQL is shown, or has its reason; the table keeps its columns."""
    shown = shop("SELECT * FROM Item", key="name")
    read = "SELECT stock, price, _unshown FROM shown ORDER BY name"
    with answered(tmp_path, shown, monkeypatch) as journal:
        commit(journal, shown, {("Item", "a"): {"price": Decimal("1.50"), "stock": 1}})
        with applier(tmp_path, shown, "shown"):
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 0)
            assert rows(tmp_path, read) == [(1, "1.5", None)]
            commit(journal, shown, {("Item", "b"): {"price": Decimal(10) ** 40}})
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 1)
            first, (stock, price, unshown) = rows(tmp_path, read)
            assert (first, stock, price) == ((1, "1.5", None), 0, None)
            assert json.loads(unshown).keys() == {"price"}
            commit(journal, shown, {("Item", "b"): None})
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 2)
            assert rows(tmp_path, read) == [(1, "1.5", None)]


def test_personal_classes_are_found_in_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that reads a personal class wants a target that allows it."""
    shown = shop('SELECT p.city AS "group" FROM Person AS p', sqlite())
    with answered(tmp_path, shown, monkeypatch), applier(tmp_path, shown, "shown"):
        report = await_state(tmp_path, "shown", ViewState.REFUSED)
    assert "it reads Person, which is personal" in report.reason
    assert "sqlite(personal=True)" in report.reason


def test_erased_person_leaves_table_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an erasure, neither the table nor a file of answers has the person."""
    shown = shop("SELECT name, city FROM Person", key="name")
    with answered(tmp_path, shown, monkeypatch) as journal:
        commit(journal, shown, {("Person", name): {"city": "Ulm"} for name in ("ann", "bob")})
        with applier(tmp_path, shown, "shown"):
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 0)
            assert len(rows(tmp_path, "SELECT * FROM shown")) == 2
            assert list((folder_of(tmp_path, "shown") / "answers").iterdir()) == []
            KeyFile(tmp_path / SUBJECT_KEYS).destroy("Person/ann", 0)
            await_rows(tmp_path, "SELECT name, city FROM shown", [("bob", "Ulm")])


def await_rows(data: Path, query: str, wanted: list[tuple[Any, ...]]) -> None:
    wait_for(lambda: rows(data, query) == wanted, "the rows")


TYPES = """
    SELECT name, 1::TINYINT AS small, 18446744073709551615::UBIGINT AS large, -1::HUGEINT AS huge,
        -0.0::DOUBLE AS zero, 'NaN'::FLOAT AS nan, true AS yes, 1.50::DECIMAL(10, 2) AS cents,
        'ab'::BLOB AS bytes, DATE '2026-01-02' AS day, DATE 'infinity' AS forever,
        TIME '03:04:05' AS hour, TIMESTAMP '2026-01-02 03:04:05' AS local,
        TIMESTAMPTZ '2026-01-02 03:04:05+01' AS instant, INTERVAL '2 days 3 seconds' AS pause,
        INTERVAL '1 month' AS month, uuid '00000000-0000-0000-0000-000000000001' AS id,
        'x'::ENUM('x', 'y') AS choice, '{"a": 1}'::JSON AS document,
        [1.5::DECIMAL(38, 12), NULL] AS list, {'a': [NULL, 'b'], 'c': INTERVAL '1 day'} AS record,
        MAP {'k': 1} AS map, MAP {1: 'v'} AS numbers, NULL::VARCHAR AS absent,
        'a' || chr(0) AS nul
    FROM Item
"""
SHOWN = {
    "small": 1,
    "large": None,
    "huge": -1,
    "zero": -0.0,
    "nan": None,
    "yes": 1,
    "cents": "1.50",
    "bytes": b"ab",
    "day": "2026-01-02",
    "forever": None,
    "hour": "03:04:05",
    "local": "2026-01-02 03:04:05.000000+00:00",
    "instant": "2026-01-02 02:04:05.000000+00:00",
    "pause": 172_803_000_000,
    "month": None,
    "id": "00000000-0000-0000-0000-000000000001",
    "choice": "x",
    "document": '{"a": 1}',
    "list": '["1.5",null]',
    "record": '{"a":[null,"b"],"c":"P1D"}',
    "map": '{"k":1}',
    "numbers": '[[1,"v"]]',
    "absent": None,
    "nul": None,
}
UNSHOWN = {"large", "nan", "forever", "month", "nul"}


def test_types_of_sql_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each type has its kind; a value that no target holds is NULL, with a reason."""
    shown = shop(TYPES, key="name")
    with answered(tmp_path, shown, monkeypatch) as journal:
        commit(journal, shown, {("Item", "a"): {}})
        with applier(tmp_path, shown, "shown"):
            await_state(tmp_path, "shown", ViewState.FOLLOWING, 0)
    ((*values, unshown),) = rows(tmp_path, f"SELECT {', '.join(SHOWN)}, _unshown FROM shown")
    assert dict(zip(SHOWN, values, strict=True)) == SHOWN
    assert json.loads(unshown).keys() == UNSHOWN


@pytest.mark.parametrize("target", ["postgres", "search"])
def test_other_targets_show_the_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    target: str,
) -> None:
    """A database and a search index get the same differences."""
    shown = shop(BY_GROUP, postgres() if target == "postgres" else search(), f"by_{target}")
    url = ""
    if target == "postgres":
        cluster: Cluster = request.getfixturevalue("postgres")
        url = cluster.address

    def stocks() -> dict[str, int]:
        if target == "postgres":
            with psycopg.connect(url) as connection:
                found = connection.execute("SELECT _key, stock FROM by_postgres.by_postgres")
                return dict(found.fetchall())
        hits = SearchIndex(folder_of(tmp_path, "by_search")).search(SearchQuery()).hits
        return {
            each["group"]: each["stock"] for each in (msgspec.json.decode(hit.row) for hit in hits)
        }

    with answered(tmp_path, shown, monkeypatch) as journal:
        commit(journal, shown, {("Item", f"a{at}"): {"group": "a", "stock": at} for at in range(4)})
        with applier(tmp_path, shown, f"by_{target}", url):
            await_state(tmp_path, f"by_{target}", ViewState.FOLLOWING, 0)
            assert stocks() == {"a": 6}
            commit(journal, shown, {("Item", "a1"): None, ("Item", "b"): {"group": "b"}})
            await_state(tmp_path, f"by_{target}", ViewState.FOLLOWING, 1)
            assert stocks() == {"a": 5, "b": 0}
            commit(journal, shown, {("Item", f"a{at}"): None for at in range(4)})
            await_state(tmp_path, f"by_{target}", ViewState.FOLLOWING, 2)
            assert stocks() == {"b": 0}
