"""A program of Penstock does not free at its end what it has imported, and ends as any other one otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRST = """
import atexit, gc, sys
from penstock.base.start import look_for_less_garbage

look_for_less_garbage()
"""

PROGRAM = f"""
{FIRST}
sys.modules.update(dict.fromkeys(sys.argv[1:]))

class Circle:
    def __init__(self):
        self.own = self

    def __del__(self):
        print("finalised")

circle = Circle()
atexit.register(lambda: print(gc.get_freeze_count(), "frozen"))
"""

ENDED = """
from penstock.base.start import end_with

end_with(3)
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

class Kept:
    __class__ = property(lambda self: exit())
    file = open("kept", "w")

told = open("told", "w")
told.write("imported")
Kept.file.write("imported")
kept = Kept()
app = App("held", Item)
"""


def ended(program: str, *words: str, folder: Path, exit_code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (exit_code, "")
    return done.stdout


@pytest.mark.parametrize(
    ("modules", "said"), [([], "0 frozen\n"), (["_duckdb"], "0 frozen\nfinalised\n")]
)
def test_the_end_of_a_program(modules: list[str], said: str, tmp_path: Path) -> None:
    """At the end of a program nobody looks for cycles, which DuckDB would complain about."""
    assert ended(PROGRAM, *modules, folder=tmp_path) == said


def test_the_end_of_a_program_that_has_done_its_work(tmp_path: Path) -> None:
    """It frees nothing, with DuckDB, too; functions that wait for the end are called, and their output is written."""
    assert ended(PROGRAM + ENDED, "_duckdb", folder=tmp_path, exit_code=3) == "0 frozen\n"
    earlier = "import atexit\natexit.register(print, 'the earliest')\n"
    said = ended(earlier + PROGRAM + ENDED, "_duckdb", folder=tmp_path, exit_code=3)
    assert said == "0 frozen\nthe earliest\nfinalised\n"


@pytest.mark.parametrize(("end", "exit_code"), [("", 0), (ENDED, 3)])
def test_the_objects_of_a_user(end: str, exit_code: int, tmp_path: Path) -> None:
    """At the end of a program Python writes what an open file of the application holds back."""
    (tmp_path / "held.py").write_text(HELD)
    assert ended(LOADING + end, folder=tmp_path, exit_code=exit_code) == ""
    assert (tmp_path / "told").read_text() == (tmp_path / "kept").read_text() == "imported"


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    """A full disk is told, and changes the exit code, as at the end of any process."""
    with Path("/dev/full").open("w") as full:
        program = f"{FIRST}print('said'){ENDED}"
        environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # else the first `print` would fail
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
        )
    assert done.returncode == 120
    assert b"No space left on device" in done.stderr
