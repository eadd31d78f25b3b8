"""A view of two painters; a module chooses the view's configuration by its own `settings` fixture."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.gallery_app import Written, app


@pytest.fixture
def settings() -> ViewConfig:
    """Return the view's configuration."""
    return ViewConfig(memory_mb=128, time_ms=60_000, rows_max=1_000)


@pytest.fixture
def journal() -> MemoryJournal:
    """Return a journal of two painters."""
    journal = MemoryJournal()
    Written(journal).painters({1: "Ada", 2: "Bob"})
    return journal


@pytest.fixture
def view(tmp_path: Path, journal: MemoryJournal, settings: ViewConfig) -> Iterator[View]:
    """Start a view that follows the journal, and wait until it answers."""
    with closing(View(tmp_path, app, journal, settings)) as view:
        view.start()
        view.ask(Query("SELECT 1"))
        yield view
