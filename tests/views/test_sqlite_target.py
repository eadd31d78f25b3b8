"""The SQLite target: the suite of all targets, and what only a file of SQLite can meet.

The numbers of cases are those of issues of other systems (`test_postgres_target` has the list).
"""

import gc
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from penstock.errors import ConfigError
from penstock.model.target_choice import sqlite
from penstock.model.views.view import ViewPlan
from penstock.snapshots.column import quoted
from penstock.testing.target_suite import TargetSuite, _ended, _fork, position_of
from penstock.views.sqlite_target import SqliteTarget
from penstock.views.target import (
    ColumnShape,
    Kind,
    Row,
    TableChange,
    TableShape,
    Target,
    TargetProblem,
)
from penstock.views.targets import open_target
from tests.views.items_view import ITEM, KEY, LARGER, REASONS, WITHOUT_STOCK, ItemsView, items

READ: Final[dict[Kind, Callable[[Any], Any]]] = {
    Kind.BOOLEAN: bool,
    Kind.DECIMAL: Decimal,
    Kind.DATE: date.fromisoformat,
    Kind.TIME: time.fromisoformat,
    Kind.TIMESTAMP: datetime.fromisoformat,
    Kind.DURATION: lambda microseconds: timedelta(microseconds=microseconds),
    Kind.UUID: UUID,
}


def rows_in(path: Path, shape: TableShape) -> list[Row]:
    names = ", ".join(map(quoted, shape.names))
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(f"SELECT {names} FROM {quoted(shape.name)}").fetchall()
    kinds = [READ.get(column.kind, lambda value: value) for column in shape.columns[:-1]] + [
        json.loads
    ]
    return [
        tuple(
            None if value is None else read(value) for read, value in zip(kinds, row, strict=True)
        )
        for row in rows
    ]


class TestSqliteTarget(TargetSuite):
    kills = int(os.environ.get("PENSTOCK_KILLS", "10"))

    def opened(self, place: Path) -> Target:
        return SqliteTarget(place / "view.sqlite", "reporting", wait_s=0.5)

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        return rows_in(place / "view.sqlite", shape)


class View(ItemsView[SqliteTarget]):
    """A view with a table of items, and another connection to its file."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        super().__init__(SqliteTarget(path, "reporting", wait_s=0.2, **options))
        self.user = sqlite3.connect(path, isolation_level=None)

    def all(self, query: str) -> list[Any]:
        return self.user.execute(query).fetchall()


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = View(tmp_path / "view.sqlite")
    yield view
    view.user.close()
    view.target.close()


def test_what_users_added_stays(view: View) -> None:
    """Case 15: indexes, triggers and views of users are there after a load, also with another definition."""
    view.user.execute("CREATE INDEX by_price ON Item (price)")
    view.user.execute("CREATE TABLE seen (key TEXT)")
    view.user.execute(
        "CREATE TRIGGER note AFTER INSERT ON Item BEGIN INSERT INTO seen VALUES (new._key); END"
    )
    view.user.execute("CREATE VIEW dear AS SELECT _key, price FROM Item WHERE price > 4")
    view.load(ITEM, items(2))
    view.load(LARGER, [("i9", 9, 1, "nine", None)])
    assert view.all("SELECT * FROM dear") == [("i9", 9)]
    names = view.all(
        "SELECT name FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql <> ''"
    )
    assert sorted(names) == [("by_price",), ("note",)]
    assert view.all("SELECT count(*) FROM seen WHERE key = 'i9'") == [(1,)]


def test_reader_keeps_former_rows_during_a_load(view: View) -> None:
    """Case 15: a read transaction sees the former rows to its end, and keeps neither a load nor a change waiting."""
    view.user.execute("BEGIN")
    assert view.all("SELECT count(*) FROM Item") == [(3,)]
    view.load(LARGER, [("i9", 9, 1, "nine", None)])
    assert view.all("SELECT count(*), sum(stock) FROM Item") == [(3, 3)]
    view.user.execute("COMMIT")
    assert view.all("SELECT name FROM Item") == [("nine",)]


@pytest.mark.parametrize(
    "query", ["SELECT stock FROM Item", 'SELECT "stock" FROM item', "SELECT * FROM Item"]
)
def test_column_of_a_dependent_view_is_not_dropped(view: View, query: str) -> None:
    """A column that a view of a user reads is not dropped: the problem names the view; without it, the load works."""
    view.user.execute(f"CREATE VIEW low AS {query}")
    problem = view.rejected(lambda: view.load(WITHOUT_STOCK, []))
    assert "view low" in problem.reason
    assert problem.remedy == "change or drop low"
    assert len(rows_in(view.path, ITEM)) == 3
    view.user.execute("DROP VIEW low")
    view.load(WITHOUT_STOCK, [])


def test_table_of_a_dependent_view_is_not_dropped(view: View) -> None:
    """A table that the view has no more stays if a view of a user reads it, and the problem names both."""
    view.user.execute("CREATE VIEW number AS SELECT count(*) FROM Item")
    other = TableShape("Other", 1, (KEY, REASONS))
    problem = view.rejected(lambda: view.load(other, []))
    assert problem.reason == "the view number of the database reads Item, which has to go"


def test_index_on_a_dropped_column_is_refused(view: View) -> None:
    """A column with an index of a user is not dropped: the problem names the index."""
    view.user.execute("CREATE INDEX by_stock ON Item (stock)")
    assert "index by_stock" in view.rejected(lambda: view.load(WITHOUT_STOCK, [])).reason
    assert view.all("SELECT name FROM sqlite_master WHERE name = 'by_stock'") == [("by_stock",)]


def test_table_of_a_user_is_never_overwritten(view: View) -> None:
    """A table or a view of a user with the name of a table is refused, whatever its case, and stays."""
    view.user.execute("CREATE TABLE OTHER (mine TEXT)")
    other = TableShape("Other", 1, (KEY, REASONS))
    assert "OTHER exists" in view.rejected(lambda: view.load(other, [])).reason
    assert view.all("SELECT * FROM OTHER") == []


def test_unique_index_is_refused(view: View) -> None:
    """Case 5: a unique index on another column is refused by its name, by a change and a load; then all goes on."""
    view.user.execute("CREATE UNIQUE INDEX one_stock ON Item (stock)")
    assert "unique index one_stock" in view.rejected(lambda: view.apply(*items(1))).reason
    assert "unique index one_stock" in view.rejected(lambda: view.load(ITEM, [])).reason
    view.user.execute("DROP INDEX one_stock")
    view.apply(*items(1))


def test_dropped_column_is_found_and_mended(view: View) -> None:
    """Case 11: after a change of the schema by hand the problem names the column, and a rebuild mends the table."""
    view.user.execute("ALTER TABLE Item DROP COLUMN stock")
    problem = view.rejected(lambda: view.apply(*items(1)))
    assert problem.reason == "the column stock of the table Item is gone"
    assert "penstock view rebuild reporting" in problem.remedy
    view.load(ITEM, items(4))
    assert len(rows_in(view.path, ITEM)) == 4


def test_dropped_table_is_found_and_mended(view: View) -> None:
    """A table that was dropped by hand is named; a rebuild creates it."""
    view.user.execute("DROP TABLE Item")
    assert "Item is gone" in view.rejected(lambda: view.apply(*items(1))).reason
    view.load(ITEM, items(4))
    assert len(rows_in(view.path, ITEM)) == 4


def test_column_of_a_user_is_no_problem(view: View) -> None:
    """Case 11: a column that a user has added keeps no change from being written."""
    view.user.execute("ALTER TABLE Item ADD COLUMN remark TEXT DEFAULT 'none'")
    view.apply(*items(5))
    assert view.all("SELECT count(*) FROM Item WHERE remark = 'none'") == [(5,)]


def test_equal_rows_are_not_written(view: View) -> None:
    """A change whose rows are equal writes nothing but the position."""
    view.user.execute("CREATE TABLE seen (key TEXT)")
    view.user.execute(
        "CREATE TRIGGER note AFTER UPDATE ON Item BEGIN INSERT INTO seen VALUES (new._key); END"
    )
    view.apply(*items(3)[:2], ("i2", 6, 2, None))
    assert view.all("SELECT * FROM seen") == [("i2",)]


def test_busy_file_is_a_problem_that_passes(view: View) -> None:
    """Another program that writes to the file for long is a problem that needs no remedy but time."""
    view.user.execute("BEGIN IMMEDIATE")
    problem = view.rejected(lambda: view.apply(*items(1)))
    assert "another program is writing" in problem.reason
    assert problem.remedy == ""
    view.user.execute("COMMIT")
    view.apply(*items(1))


def test_removed_file_is_a_new_target(view: View) -> None:
    """When the file was removed, nothing is written into the file that nobody sees: the target is empty."""
    for path in view.path.parent.glob("view.sqlite*"):
        path.unlink()
    assert view.target.position() == (None, 0)
    view.target.load(None, position_of(7), [ITEM], [])
    assert view.target.position().position == position_of(7)


def test_reader_that_stays_is_reported_and_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Case 21: a long reader keeps the log of the file from being emptied: a message says so, and beyond a bound nothing
    is written until the reader ends; then the log shrinks and the view goes on."""
    view = View(tmp_path / "view.sqlite", log_bytes_max=200_000)
    view.user.execute("BEGIN")
    assert view.all("SELECT count(*) FROM Item") == [(3,)]

    def write() -> None:
        for at in range(1_000):
            view.apply(*items(500, price=at))

    with caplog.at_level(logging.WARNING):
        problem = view.rejected(write)
    assert "cannot be emptied" in caplog.text
    assert "write-ahead log" in problem.reason
    assert problem.remedy == "end the transaction of that reader"
    size = tmp_path.joinpath("view.sqlite-wal").stat().st_size
    assert 200_000 < size < 2_000_000
    assert view.all("SELECT sum(price) FROM Item") == [(15,)]
    view.user.execute("COMMIT")
    view.apply(*items(1))
    assert tmp_path.joinpath("view.sqlite-wal").stat().st_size < size
    view.user.close()
    view.target.close()


def test_log_stays_small_without_readers(view: View) -> None:
    """The write-ahead log of a view that is only written does not grow with the number of changes."""
    for at in range(200):
        view.apply(*items(500, price=at))
    assert view.path.with_name("view.sqlite-wal").stat().st_size < 20 << 20


def test_full_disk_is_a_problem(tmp_path: Path) -> None:
    """A full disk is a problem with a remedy; nothing has changed, and with room again the view goes on."""
    view = View(tmp_path / "view.sqlite")
    connection = view.target._connected()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    problem = view.rejected(lambda: view.apply(*items(5_000)))
    assert "disk is full" in problem.reason
    assert problem.remedy
    assert len(rows_in(view.path, ITEM)) == 3
    connection.execute("PRAGMA max_page_count = 1000000")
    view.apply(*items(5_000))
    view.user.close()
    view.target.close()


def test_file_that_is_no_database_is_a_problem(tmp_path: Path) -> None:
    """A file of another program is left alone."""
    path = tmp_path / "view.sqlite"
    path.write_text("a letter\n" * 1_000)
    target = SqliteTarget(path, "reporting")
    with pytest.raises(TargetProblem, match=r"not a database of SQLite; move it away"):
        target.position()
    assert path.read_text().startswith("a letter")


def test_directory_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    """A path below a file is a problem with a remedy."""
    tmp_path.joinpath("file").touch()
    target = SqliteTarget(tmp_path / "file" / "view.sqlite", "reporting")
    with pytest.raises(TargetProblem, match="cannot be made"):
        target.position()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_without_rights_is_a_problem(tmp_path: Path) -> None:
    """A directory in which the service may not write is a problem with a remedy."""
    tmp_path.chmod(0o500)
    with pytest.raises(TargetProblem, match="right to write"):
        SqliteTarget(tmp_path / "view.sqlite", "reporting").position()


def test_values_are_those_of_the_documentation(tmp_path: Path) -> None:
    """Each kind of value has the form that docs/VIEWS.md says."""
    shape = TableShape(
        "Kinds", 1, (KEY, *(ColumnShape(member.value, member) for member in Kind), REASONS)
    )
    target = SqliteTarget(tmp_path / "view.sqlite", "reporting")
    values = [
        *("text", 1, float("inf"), True, Decimal("1.50"), b"\0", date(2026, 1, 2), time(3, 4, 5)),
        *(datetime.fromisoformat("2026-01-02T03:04:05+00:00"), timedelta(days=-1, seconds=1)),
        *(UUID(int=1), '{"a": [1]}'),
    ]
    rows = [("a", *values, None), ("b", "\0", None, float("nan"), *[None] * 9, {"text": "old"})]
    target.load(None, position_of(1), [shape], [TableChange(shape, (), rows)])
    with closing(sqlite3.connect(tmp_path / "view.sqlite")) as connection:
        shown = connection.execute("SELECT * FROM Kinds ORDER BY _key").fetchall()
    assert shown[0][1:] == (
        *("text", 1, float("inf"), 1, "1.50", b"\0", "2026-01-02", "03:04:05"),
        *("2026-01-02 03:04:05.000000+00:00", -86_399_000_000),
        *("00000000-0000-0000-0000-000000000001", '{"a": [1]}', None),
    )
    assert json.loads(shown[1][-1]) == {
        "float": "it is not a number, and SQLite has none such",
        "text": "it contains a NUL character",
    }
    target.close()


@pytest.mark.parametrize(
    ("url", "path"),
    [("", "/data/view.sqlite"), ("sqlite:///other/a%20b.sqlite", "/other/a b.sqlite")],
)
def test_url_names_the_file(url: str, path: str) -> None:
    """Without a URL the file is in the folder of the view; a URL names another."""
    plan = ViewPlan("reporting", sqlite(), (), "app.py:1")
    target = open_target(plan, url, Path("/data"))
    assert isinstance(target, SqliteTarget)
    assert target._path == Path(path)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h/d", "sqlite:relative", "sqlite://host"])
def test_url_of_another_kind_is_refused(url: str) -> None:
    """A URL that names no file is a mistake in the settings; the message does not repeat it."""
    plan = ViewPlan("reporting", sqlite(), (), "app.py:1")
    with pytest.raises(ConfigError, match=r"views\.reporting\.url") as caught:
        open_target(plan, url, Path("/data"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("dependent", "name"),
    [
        ("CREATE VIEW low AS SELECT price FROM Item", "view low"),
        ("CREATE TABLE orders (item TEXT REFERENCES Item (_key))", "table orders"),
    ],
)
def test_drop_leaves_what_users_have_made(view: View, dependent: str, name: str) -> None:
    """A table on which something depends is not dropped, and named; tables of users are there afterwards."""
    view.user.execute("CREATE TABLE prices (price INTEGER)")
    view.user.execute(dependent)
    problem = view.rejected(lambda: view.target.drop(position_of(1)))
    assert name in problem.reason
    assert view.all("SELECT count(*) FROM Item") == [(3,)]
    view.user.execute(f"DROP {name}")
    view.target.drop(position_of(1))
    assert view.all("SELECT name FROM sqlite_master") == [("prices",)]


def test_a_process_of_the_suite_leaves_the_garbage_of_its_parent() -> None:
    """A client among it would wait for threads that only the parent has."""
    freed: list[str] = []

    class Client:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            freed.append("client")

    gc.disable()
    try:
        Client()
        child = _fork(lambda: len(freed) if gc.collect() >= 0 else 70)
    finally:
        gc.enable()
    assert _ended(child) == 0
