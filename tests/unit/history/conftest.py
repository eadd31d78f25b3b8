"""A fixture for tests of differences whose cause is not asked for."""

import pytest

from penstock.history import nondeterminism


@pytest.fixture
def no_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start none of the processes that look for a cause: seven for each difference."""
    monkeypatch.setattr(nondeterminism, "_results", lambda *_: [])
