"""The SQLite target: the suite of all targets, and what only a file of SQLite can meet."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from penstock.snapshots.column import quoted
from penstock.testing.target_suite import TargetSuite
from penstock.views.sqlite_target import SqliteTarget
from penstock.views.target import Kind, Row, TableShape, Target

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
    def opened(self, place: Path) -> Target:
        return SqliteTarget(place / "view.sqlite", "reporting", wait_s=0.5)

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        return rows_in(place / "view.sqlite", shape)
