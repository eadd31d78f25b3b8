"""Golden files: expected output that a person can read, rewritten by `pytest tests/golden --update-golden`."""

from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files; then read the diff"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of a name."""

    def compare(name: str, text: str) -> None:
        path = HERE / name
        if request.config.getoption("--update-golden", default=False):
            path.write_text(text)
        assert path.is_file(), f"{name} is missing; run pytest tests/golden --update-golden"
        assert text == path.read_text(), f"{name} differs; if it should, add --update-golden"

    return compare
