"""Streams and tasks in SQL: their tables show the journal at exactly one epoch, old epochs included."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.process.config import ViewConfig
from penstock.sql.query import Query
from penstock.sql.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql.words_app import Sale, Shelf, WrittenStreams, app, row_of

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
