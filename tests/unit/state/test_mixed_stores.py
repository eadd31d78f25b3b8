"""Stores whose rows came in several large epochs are written again in the order of their keys."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import StateUnavailable
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.state import environment, stores
from penstock.state.lmdb import LmdbState
from tests.memory_journal import MemoryJournal

LARGE = 50
Epochs = list[range]


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let writes of 50 rows be large ones, and return the list of the stores that are written again."""
    monkeypatch.setattr(stores, "REWRITE_ROWS", LARGE)
    paths: list[Path] = []
    original: Callable[[LmdbState], None] = LmdbState.rewrite

    def noted(state: LmdbState) -> None:
        original(state)
        paths.append(state._path)

    monkeypatch.setattr(LmdbState, "rewrite", noted)
    return paths


def journal_of(epochs: Epochs) -> MemoryJournal:
    journal = MemoryJournal()
    for epoch, numbers in enumerate(epochs):
        keys = [f"{number:04}" for number in numbers]
        columns = {"epoch": [epoch] * len(keys), "entity": ["Item"] * len(keys), "key": keys}
        rows = pa.table({**columns, "state": [b"%d" % epoch] * len(keys)}, schema=CHANGES)
        part = journal.write(PartKind.CHANGES, rows, f"{epoch}")
        journal.commit(Commit(Epoch(epoch), {}, (part,), 0))
    return journal


@pytest.mark.parametrize(
    ("epochs", "times"),
    [
        ([range(0, 200, 2), range(1, 200, 2)], 1),
        ([range(20), range(0, 200, 2), range(1, 200, 2)], 1),
        ([range(0, 400, 4), range(1, 400, 4), range(2, 400, 4)], 2),
        ([range(200)], 0),
        ([range(3), range(200)], 0),
        ([range(200), range(200)], 0),
        ([range(200), range(0, 200, 2)], 0),
        ([range(0, 200, 2), *(range(first, first + 80, 2) for first in (1, 81))], 0),
        ([range(1000), range(1000, 1060)], 0),
    ],
    ids=[
        "two imports",
        "few rows, and two imports",
        "three imports",
        "an import",
        "few rows, and an import",
        "the same rows again",
        "half of the rows again",
        "an import, and small epochs",
        "many rows, and a small import",
    ],
)
def test_rows_of_several_imports_are_put_in_order(
    tmp_path: Path, rewritten: list[Path], epochs: Epochs, times: int
) -> None:
    """A store is written again when an epoch has put many rows between its rows, and for nothing else."""
    held = stores.Stores(tmp_path, journal_of(epochs), 1, boot_id="boot")
    for epoch in range(len(epochs)):
        held.catch_up_one(0, Epoch(epoch))
    assert len(rewritten) == times
    with held.at(Epoch(len(epochs) - 1)) as reader:
        expected = {n: b"%d" % epoch for epoch, numbers in enumerate(epochs) for n in numbers}
        assert dict(reader.items()) == {
            EntityKey(f"Item/{number:04}"): state for number, state in expected.items()
        }
    held.close()


def test_store_that_is_built_from_imports_is_written_again_once(
    tmp_path: Path, rewritten: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that begins behind several imports takes them all before it is put in order."""
    monkeypatch.setattr(stores, "BATCH_CHANGES", LARGE)
    monkeypatch.setattr(stores.catch_up, "__defaults__", (None, LARGE, *[None] * 4))
    held = stores.Stores(
        tmp_path, journal_of([range(each, 400, 4) for each in range(4)]), 1, boot_id="boot"
    )
    with held.at(Epoch(3)) as reader:
        assert len(list(reader.items())) == 400
    assert len(rewritten) == 1
    held.close()


def test_failed_rewriting_is_reported_and_stops_nothing(
    tmp_path: Path,
    rewritten: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A full disk leaves the store as it is, and the epoch is applied."""

    def full(*_: object) -> None:
        message = "no space left"
        raise StateUnavailable(message)

    monkeypatch.setattr(environment, "rewrite", full)
    held = stores.Stores(
        tmp_path, journal_of([range(0, 200, 2), range(1, 200, 2)]), 1, boot_id="boot"
    )
    with caplog.at_level(logging.WARNING, stores.__name__):
        for epoch in range(2):
            held.catch_up_one(0, Epoch(epoch))
    assert [vars(each)["cause"] for each in caplog.records] == ["no space left"]
    assert not rewritten
    with held.at(Epoch(1)) as reader:
        assert len(list(reader.items())) == 200
    held.close()
