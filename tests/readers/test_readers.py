"""Other engines read snapshots and the journal with Delta readers of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.journal.api import Keep
from penstock.journal.delta import DeltaJournal
from penstock.state.snapshot import Snapshots
from penstock.state.snapshotting import take, write_slices
from tests.unit.gallery import Written, app, state_of
from tests.unit.test_view_tables import FILLED

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".venv" / "readers"


def read(engine: str, table: Path) -> list[dict[str, Any]]:
    """Read a table as somebody would who has that engine, and not Penstock."""
    done = subprocess.run(
        [sys.executable, "-S", str(Path(__file__).with_name("read.py")), engine, str(table)],
        env={"PYTHONPATH": str(PACKAGES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr} (has scripts/readers run?)"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with two snapshots, and a journal that was merged and cut."""
    data = tmp_path_factory.mktemp("gallery")
    journal = DeltaJournal(data / "journal", app.name)
    written = Written(journal)
    snapshots = Snapshots(data / "snapshots", journal.identity)
    written.changes(("Painting", "sea", state_of("Painting", **FILLED)))
    for number in range(12):
        written.painters({number: f"p{number}", number - 3: None})
    for epoch in (5, 12):
        take(
            app, journal, snapshots, Epoch(epoch),
            lambda slices: write_slices(app, journal, snapshots, slices),
        )  # fmt: skip
    journal.compact(Keep(newest=2, epochs=3, grace_s=0))
    journal.forget(Epoch(4))
    return data


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_snapshot_is_read_with_its_types(data: Path, engine: str) -> None:
    """The newest snapshot's entities are there, each attribute as a type of the engine."""
    painters = read(engine, data / "snapshots" / "Painter")
    assert sorted((row["number"], row["name"]) for row in painters) == [
        (number, f"p{number}") for number in (9, 10, 11)
    ]
    assert {row["epoch"] for row in painters} == {12}
    [sea] = read(engine, data / "snapshots" / "Painting")
    assert sea["title"] == "sea"
    assert sea["tags"] == FILLED["tags"]
    assert float(sea["price"]) == 1.1
    assert sea["frame"]["wood"] == "oak"


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_merged_journal_is_read_once(data: Path, engine: str) -> None:
    """Every change that is still held is there once, whether its epoch was merged or not."""
    rows = [row for row in read(engine, data / "journal") if row["kind"] == "changes"]
    epochs = [row["epoch"] for row in rows]
    assert min(epochs) == 3
    assert sorted(epochs) == sorted([epoch for epoch in range(3, 13) for _ in range(2)])
