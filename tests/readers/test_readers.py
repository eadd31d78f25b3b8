"""Other engines read snapshots and the journal with Delta readers of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.base.ids import Epoch
from penstock.journal.api import CompactionPolicy
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.java import java_home
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from tests.checkout import TOP
from tests.unit.sql_view.gallery_app import Written, app, state_of
from tests.unit.sql_view.test_view_tables import FILLED

PACKAGES = TOP / ".venv" / "readers"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of a Java that ends before its optimising compiler repays its cost."""


Rows = list[dict[str, Any]]


class Found(NamedTuple):
    """The rows that an engine finds in three tables."""

    painters: Rows
    paintings: Rows
    journal: Rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with two snapshots, and a journal that was merged and cut."""
    data = tmp_path_factory.mktemp("gallery")
    journal = DataDirectory(data).open_journal_of(app.name)
    written = Written(journal)
    snapshots = Snapshots(data / "snapshots", journal.identity)
    written.changes(("Painting", "sea", state_of("Painting", **FILLED)))
    for number in range(12):
        written.painters({number: f"p{number}", number - 3: None})
    for epoch in (5, 12):
        write_next_snapshot(app, journal, snapshots, Epoch(epoch))
    journal.compact(CompactionPolicy(newest=2, epochs=3, grace_s=0))
    journal.forget(Epoch(4))
    return data


@pytest.fixture(
    scope="module", params=["duckdb", "polars", pytest.param("spark", marks=pytest.mark.spark)]
)
def found(
    data: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Found:
    """Read the tables with that engine, without Penstock."""
    tables = (data / "snapshots" / "Painter", data / "snapshots" / "Painting", data / "journal")
    program = [str(Path(__file__).with_name("read.py")), request.param, PACKAGES, *tables]
    if request.param == "spark":  # the engine that Penstock runs on
        java = java_home(tmp_path_factory.mktemp("java"))
        chosen = {"JAVA_HOME": str(java), "JDK_JAVA_OPTIONS": SHORT_LIVED}
        python, environment = [sys.executable], {**os.environ, **chosen}
    else:
        python, environment = [sys.executable, "-S"], {"PYTHONPATH": str(PACKAGES)}
    done = subprocess.run(
        [*python, *map(str, program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stderr} (has scripts/readers run?)"
    return Found(*map(json.loads, done.stdout.splitlines()))


def test_snapshot_is_read_with_its_types(found: Found) -> None:
    """The newest snapshot's entities are there, each attribute as a type of the engine."""
    assert sorted((row["number"], row["name"]) for row in found.painters) == [
        (number, f"p{number}") for number in (9, 10, 11)
    ]
    assert {row["epoch"] for row in found.painters} == {12}
    [sea] = found.paintings
    assert sea["title"] == "sea"
    assert sea["tags"] == FILLED["tags"]
    assert float(sea["price"]) == 1.1
    assert sea["frame"]["wood"] == "oak"
    assert {row.get("key"): row["value"] for row in sea["rooms"]} == FILLED["rooms"]


def test_merged_journal_is_read_once(found: Found) -> None:
    """Every change that is still held is there once, whether its epoch was merged or not."""
    epochs = [row["epoch"] for row in found.journal if row["kind"] == "changes"]
    assert min(epochs) == 3
    assert sorted(epochs) == sorted([epoch for epoch in range(3, 13) for _ in range(2)])
