"""Streams and tasks in SQL: their tables show the journal at exactly one epoch, old epochs included."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import QueryError
from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.words_app import Sale, Shelf, Stored, WrittenStreams, app, row_of

SETTINGS = ViewConfig(memory_mb=256)


class Shown:
    """A view of the words application, and its journal."""

    def __init__(self, folder: Path, settings: ViewConfig = SETTINGS) -> None:
        self.journal = MemoryJournal()
        self.written = WrittenStreams(self.journal)
        self.folder = folder
        self.settings = settings
        self.view = self.opened()

    def opened(self) -> View:
        view = View(self.folder, app, self.journal, self.settings)
        view.start()
        return view

    def close(self) -> None:
        self.view.close()

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        asked = Query(query, list(parameters), min_epoch=self.written.epoch)
        table = self.view.ask(asked).table
        return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    """Return a view of three epochs."""
    with closing(Shown(tmp_path)) as shown:
        count, common = "wordcount.Count", "wordcount.Count.task"
        shown.written.commit(
            ("lines", ["a b", "a"]),
            ("counts", [("a", 1), ("b", 1), ("a", 2)]),
            states={
                f"{count}/a": row_of(count, total=2),
                f"{count}/b": row_of(count, total=1),
                f"{common}/-": row_of(common, words=3),
                "$steps/r0": b"\x90",
                "Shelf/a": row_of("Shelf", books=1),
            },
        )
        shown.written.commit(
            ("new-sales", [Sale(Shelf("a"), 5, "noon"), Sale(Shelf("7"), 6)]),
            ("revenue", []),
            states={
                'revenue.Revenue/"a"': row_of("revenue.Revenue", sum=5),
                'revenue.Revenue/"7"': row_of("revenue.Revenue", sum=6),
                "revenue.Revenue/7": row_of("revenue.Revenue", sum=1),
            },
        )
        shown.written.commit(
            ("lines", ["a"]),
            ("counts", [("a", 3)]),
            states={f"{count}/a": row_of(count, total=3), f"{count}/b": None},
        )
        yield shown


def test_task_has_a_table_of_its_rows(shown: Shown) -> None:
    """The rows of a task are in the schema `tasks`: key and attributes."""
    assert shown.rows('SELECT key, total FROM tasks."wordcount.Count"') == [("a", 3)]
    assert shown.rows('SELECT words FROM tasks."wordcount.Count.task"') == [(3,)]


def test_keys_without_a_declared_type_stay_different(shown: Shown) -> None:
    """A key that is a string has no quotes, unless it could be taken for a number."""
    rows = shown.rows('SELECT key, sum FROM tasks."revenue.Revenue" ORDER BY ALL')
    assert rows == [('"7"', 6), ("7", 1), ("a", 5)]


def test_tasks_are_read_as_of_old_epochs(shown: Shown) -> None:
    """`AS OF` and `changes` know tasks as they know classes."""
    query = 'SELECT key, total FROM tasks."wordcount.Count" AS OF EPOCH 1'
    assert shown.rows(query) == [("a", 2), ("b", 1)]
    query = (
        'SELECT now.total, before.total AS former FROM tasks."wordcount.Count" AS now '
        'JOIN tasks."wordcount.Count" AS OF EPOCH 0 AS before USING (key)'
    )
    assert shown.rows(query) == [(3, 2)]
    query = "SELECT key, kind, before.total AS former, after.total FROM changes('wordcount.Count', 1, 2)"
    assert shown.rows(query) == [("a", "update", 2, 3), ("b", "delete", 1, None)]


def test_rows_of_the_engine_are_not_shown(shown: Shown) -> None:
    """No table has the rows whose class begins with `$`."""
    tables = shown.rows("SELECT table_schema, table_name FROM information_schema.tables")
    assert not [name for _, name in tables if "$" in name]
    assert ("tasks", "wordcount.Count") in tables


def test_stream_has_a_row_for_each_event(shown: Shown) -> None:
    """The fields of a record are columns; another event is the column `event`; empty atoms have no row."""
    rows = shown.rows('SELECT atom, place, event, epoch FROM streams."lines" ORDER BY atom, place')
    assert rows == [(0, 0, "a b", 0), (0, 1, "a", 0), (1, 0, "a", 2)]
    sales = shown.rows('SELECT atom, shelf, price, time_2 FROM streams."new-sales" ORDER BY place')
    assert sales == [(0, "a", 5, "noon"), (0, "7", 6, None)]
    assert shown.rows("SELECT event FROM streams.counts WHERE epoch = 2") == [
        ({"_1": "a", "_2": 3},)
    ]
    assert shown.rows("SELECT count(*) FROM streams.revenue") == [(0,)]
    assert shown.rows('SELECT * FROM streams."wordcount-failed"') == []


def test_streams_are_read_as_of_old_epochs(shown: Shown) -> None:
    """An old epoch shows the atoms up to it, in a query and in a part of it."""
    query = "SELECT atom, event FROM streams.lines AS OF EPOCH {}"
    assert shown.rows(query.format(1)) == [(0, "a b"), (0, "a")]
    assert shown.rows(query.format(2)) == [(0, "a b"), (0, "a"), (1, "a")]
    query = "SELECT count(*) FROM streams.LINES AS now JOIN streams.lines AS OF EPOCH 0 AS o USING (atom)"
    assert shown.rows(query) == [(4,)]
    with pytest.raises(QueryError, match="no table line"):
        shown.rows("SELECT * FROM streams.line AS OF EPOCH 0 AS x")


def test_view_keeps_the_newest_events(tmp_path: Path) -> None:
    """A stream has as many events as `view.requests_max`, also after a restart, and AS OF."""
    settings = ViewConfig(memory_mb=256, requests_max=20)
    with closing(Shown(tmp_path, settings)) as shown:
        for _ in range(10):
            shown.written.commit(("lines", ["x"] * 7))
        expected = [(20, 7, 9)]
        query = "SELECT count(*), min(atom), max(atom) FROM streams.lines"
        assert shown.rows(query) == expected
        shown.close()
        shown.view = shown.opened()
        shown.written.commit(("new-sales", []))
        assert shown.rows(query) == expected
        assert shown.rows(f"{query} AS OF EPOCH 9") == expected


def test_value_that_needs_wide_columns_widens_its_stream(tmp_path: Path) -> None:
    """A number beyond 64 bits with sign is shown, with all older events; a restart keeps it so."""
    with closing(Shown(tmp_path)) as shown:
        shown.written.commit(("new-sales", [Sale(Shelf("a"), 5)]), ("revenue", [5]))
        assert shown.rows("SELECT event FROM streams.revenue") == [(5,)]
        shown.written.commit(("new-sales", [Sale(Shelf("a"), 2**63)]), ("revenue", [2**63]))
        for _ in range(2):
            assert shown.rows("SELECT event FROM streams.revenue ORDER BY 1") == [(5,), (2**63,)]
            price = 'SELECT sum(price) FROM streams."new-sales"'
            assert shown.rows(price) == shown.rows(f"{price} AS OF EPOCH 1") == [(5 + 2**63,)]
            shown.close()
            shown.view = shown.opened()


def test_event_of_another_type_is_null_with_a_reason(tmp_path: Path) -> None:
    """An event from before a change of the stream's type does not stop the view."""
    with closing(Shown(tmp_path)) as shown:
        shown.written.commit(("revenue", [7]))
        shown.written.commit(("revenue", [Stored(b"\xa1x"), 8]))
        rows = shown.rows("SELECT event, _unshown FROM streams.revenue ORDER BY atom, place")
        assert [event for event, _ in rows] == [7, None, 8]
        assert "of another type than the stream now" in rows[1][1]
        assert shown.rows("SELECT event FROM streams.revenue AS OF EPOCH 1") == [
            (7,),
            (None,),
            (8,),
        ]


def test_sent_requests_name_their_parent(tmp_path: Path) -> None:
    """`requests` and `replies` have the requests that a record sent, behind it and with its id."""
    with closing(Shown(tmp_path)) as shown:
        shown.written.commit(sent=2)
        shown.written.commit(sent=1)
        for as_of in ("", " AS OF EPOCH 1"):
            rows = shown.rows(f"SELECT epoch, lsn, request_id, parent, method FROM requests{as_of}")
            assert rows == [
                (0, 0, "r0", None, "put"),
                (0, 0, "r0~~1", "r0", "put"),
                (0, 0, "r0~~2", "r0", "put"),
                (1, 1, "r1", None, "put"),
                (1, 1, "r1~~1", "r1", "put"),
            ]
            assert shown.rows(f"SELECT count(*) FROM replies WHERE value = '1'{as_of}") == [(5,)]
            assert shown.rows(f"SELECT records FROM epochs{as_of}") == [(1,), (1,)]
