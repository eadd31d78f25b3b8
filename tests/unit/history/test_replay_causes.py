"""Handlers that are not deterministic: the cause is found and named, with its line."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli.main import execute
from tests.history import journal_of

pytestmark = pytest.mark.long

FRUITS = {"apple", "pear", "plum", "quince", "cherry", "medlar"}
WAYWARD = str(Path(__file__).parent / "nondeterministic_app.py")


def verdict_on(
    method: str, data: Path, capsys: pytest.CaptureFixture[str], arguments: str = ""
) -> Any:
    code = execute(["replay", WAYWARD, "--data", str(data), "--json"])
    found = msgspec.json.decode(capsys.readouterr().out)["divergence"]
    assert (code, found["call"]) == (1, f"Clerk/a.{method}({arguments})")
    return found["verdict"]


@pytest.mark.parametrize(
    ("method", "cause", "line"),
    [
        ("by_clock", "clock", "reads the real clock"),
        ("by_date", "clock", "reads the real clock"),
        ("by_chance", "chance", "differs at every run"),
        ("by_globals", "global variables", "SEEN is a global list"),
        ("by_environment", "environment", "environment of the process"),
    ],
)
def test_dependence_is_named_with_its_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    cause: str,
    line: str,
) -> None:
    """Clock, chance, environment and global variables are told apart by running again."""
    monkeypatch.setenv("WAYWARD_REGION", "north")
    journal_of(WAYWARD, tmp_path, [[("Clerk", "a", "create", ()), ("Clerk", "a", method, ())]])
    monkeypatch.setenv("WAYWARD_REGION", "south")
    verdict = verdict_on(method, tmp_path, capsys)
    assert verdict["causes"] == [cause]
    assert verdict["request_id"] == "r1"
    assert any(line in one and f"Clerk.{method}" in one for one in verdict["lines"])


def test_order_of_a_set_is_named(tmp_path: Path) -> None:
    """Two processes with other hash seeds cannot both have the order that the journal has."""
    journal_of(
        WAYWARD, tmp_path, [[("Clerk", "a", "create", ()), ("Clerk", "a", "by_set", (FRUITS,))]]
    )
    command = [sys.executable, "-m", "penstock", "replay", WAYWARD, "--data", str(tmp_path)]
    told = ""
    for seed in ("11", "12"):
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        told += done.stdout
        if done.returncode == 1:
            break
    assert "cause: set order or hash()" in told
    assert "the order of the set" in told


def test_request_for_a_method_that_is_gone_differs_by_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a method was renamed, replay says that it is not there, and that the code is the cause."""
    old = tmp_path / "formerly_nondeterministic.py"
    old.write_text(Path(WAYWARD).read_text().replace("def honest", "def truthful"))
    journal_of(
        str(old),
        tmp_path / "data",
        [[("Clerk", "a", "create", ()), ("Clerk", "a", "truthful", (2,))]],
    )
    verdict = verdict_on("truthful", tmp_path / "data", capsys, "2")
    assert verdict["causes"] == ["code"]
    assert verdict["lines"] == [
        "there is no method of Clerk 'truthful'; there are by_chance, by_clock, by_date, "
        "by_environment, by_globals, by_set, honest, create, delete, exists, update_or_create, upsert"
    ]
