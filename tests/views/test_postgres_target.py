"""The PostgreSQL target: the suite of all targets, and what only a server can do."""

from pathlib import Path

import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock.snapshots.column import quoted
from penstock.testing.target_suite import TargetSuite
from penstock.views.postgres_target import PostgresTarget
from penstock.views.target import Kind, Row, TableShape, Target


def schema_of(place: Path) -> str:
    return f"{place.parent.name[-40:]} {place.name[-20:]}"


def rows_in(address: str, schema: str, shape: TableShape) -> list[Row]:
    *columns, unshown = shape.columns
    names = [
        f"{quoted(column.name)}::text" if column.kind is Kind.JSON else quoted(column.name)
        for column in columns
    ]
    text = ", ".join([*names, quoted(unshown.name)])
    with psycopg.connect(address) as connection:
        rows: list[Row] = connection.execute(
            f"SELECT {text} FROM {quoted(schema)}.{quoted(shape.name)}".encode()
        ).fetchall()
    return rows


class TestPostgresTarget(TargetSuite):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, postgres: Cluster) -> None:
        self.address = postgres.address

    def opened(self, place: Path) -> Target:
        return PostgresTarget(self.address, schema_of(place), "reporting", lock_ms=500)

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        return rows_in(self.address, schema_of(place), shape)
