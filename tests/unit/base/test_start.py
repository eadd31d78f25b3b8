"""A program of Penstock does not look at its end at what it has imported, and ends as any other one otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, gc, sys
from penstock.base.start import look_for_less_garbage

look_for_less_garbage()
sys.modules.update(dict.fromkeys(sys.argv[1:]))

class Circle:
    def __init__(self):
        self.own = self

    def __del__(self):
        print("finalised")

circle = Circle()
atexit.register(lambda: print(gc.get_freeze_count(), "frozen"))
"""

LOADING = """
from penstock.base.start import look_for_less_garbage

look_for_less_garbage()
import penstock.deployment.code_check
from penstock.deployment.loading import load_app

load_app("held:app")
"""

HELD = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()

    def rename(self) -> None:
        told.write("renamed")

told = open("told", "w")
told.write("imported")
app = App("held", Item)
"""


def ended(program: str, *words: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("modules", "said"), [([], "0 frozen\n"), (["_duckdb"], "0 frozen\nfinalised\n")]
)
def test_the_end_of_a_program(modules: list[str], said: str, tmp_path: Path) -> None:
    """At the end of a program nobody looks for cycles, which DuckDB would complain about."""
    assert ended(PROGRAM, *modules, folder=tmp_path) == said


def test_the_objects_of_a_user(tmp_path: Path) -> None:
    """At the end of a program Python writes what an open file of the application holds back."""
    (tmp_path / "held.py").write_text(HELD)
    assert ended(LOADING, folder=tmp_path) == ""
    assert (tmp_path / "told").read_text() == "imported"
