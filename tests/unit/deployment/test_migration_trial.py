"""The trial of functions with `@migrate`: which stored entities it takes, and what it says."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from penstock.deployment import migration_trial
from penstock.deployment.isolated_upcasts import IsolatedUpcasts
from penstock.deployment.loading import load_app
from penstock.deployment.migration_trial import try_new_migrations
from penstock.errors import ClassChanged
from penstock.model.versions.former_class import Presented
from penstock.process.config import Config
from tests.history import journal_of

_numbers = itertools.count()
FIRST = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()
    price: int

app = App("kiosk", Item)
"""
SECOND = """
from penstock import App, Entity, key, migrate

class Item(Entity):
    name: str = key()
    price: str

@migrate(Item, since=2)
def made(old):
    if old["price"] in {failing}:
        raise ValueError(old)
    return {{"price": str(old["price"])}}

app = App("kiosk", Item, made)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with the items 0 to 8, whose prices are their numbers."""
    source = tmp_path / f"trialkiosk{next(_numbers)}.py"
    source.write_text(FIRST)
    calls = [("Item", str(number), "create", {"price": number}) for number in range(9)]
    journal_of(str(source), tmp_path / "data", [calls], deploys=True)
    return tmp_path / "data"


def tried(data: Path, failing: list[int]) -> list[str]:
    """Try a version whose function fails for some prices."""
    source = data.parent / f"trialkiosk{next(_numbers)}.py"
    source.write_text(SECOND.format(failing=failing))
    return try_new_migrations(load_app(str(source)), Config(data=data, app=str(source)))


def test_a_trial_takes_each_nth_entity(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the last keys of a class, and its sentence says how many entities it has tried."""
    assert tried(data, []) == ["Item: @migrate was tried on 9 of 9 stored entities"]
    monkeypatch.setattr(migration_trial, "ROWS_MAX", 4)
    assert tried(data, [7]) == ["Item: @migrate was tried on 3 of 9 stored entities"]
    with pytest.raises(ClassChanged, match="Item/8"):
        tried(data, [8])
    monkeypatch.setattr(migration_trial, "SCANNED_MAX", 5)
    assert tried(data, [8]) == ["Item: @migrate was tried on 3 of the first 5 stored entities"]


def test_a_trial_ends_when_its_time_is_over(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with one entity, so that a slow function does not take much longer."""
    assert tried(data, []) == ["Item: @migrate was tried on 9 of 9 stored entities"]
    monkeypatch.setattr(migration_trial, "TRIAL_S", 0.0)
    assert tried(data, []) == ["Item: @migrate was tried on 1 of 9 stored entities"]


def test_parts_of_a_slow_function_stay_small(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of more entities follows only a fast one."""
    parts = []

    class Upcasts(IsolatedUpcasts):
        def __call__(self, *call: Any) -> list[Presented]:
            parts.append(len(call[1]))
            return super().__call__(*call)

    monkeypatch.setattr(migration_trial, "IsolatedUpcasts", Upcasts)
    monkeypatch.setattr(migration_trial, "_PART_S", math.inf)  # each call is a fast one
    tried(data, [])
    assert parts == [1, 2, 4, 2]
    monkeypatch.setattr(migration_trial, "_PART_S", 0.0)
    parts.clear()
    tried(data, [])
    assert parts == [1] * 9
