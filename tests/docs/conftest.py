"""A fixture that runs commands of `penstock` in an empty directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.main import execute

Run = Callable[..., tuple[int, str, str]]
"""Runs a command, and returns its exit code, its output, and its errors."""


@pytest.fixture
def penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command in an empty directory and return its exit code and its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = execute(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run
