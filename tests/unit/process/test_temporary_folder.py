"""Folders in the temporary directory: a killed process leaves none for long, and nobody loses one that is used."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.files.temporary_folder import temporary_folder

PROGRAM = """
import pathlib, sys
from penstock.files.temporary_folder import temporary_folder
with temporary_folder("child", *map(pathlib.Path, sys.argv[1:])) as folder:
    (folder / "file").write_text("content")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_folder_of_a_killed_process_is_removed_by_the_next(temporary: Path) -> None:
    """Only that one: the folder of a process that lives stays, and so do files of other programs."""
    other = temporary / "penstock-shop"
    other.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    left = Path(child.stdout.readline().strip())
    with temporary_folder("first") as first:
        assert sorted(temporary.iterdir()) == sorted([other, left, first])
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        assert (left / "file").exists()
        with temporary_folder("second") as second:
            assert sorted(temporary.iterdir()) == sorted([other, first, second])
    assert list(temporary.iterdir()) == [other]


def test_processes_that_begin_at_once_take_no_folder_from_each_other(temporary: Path) -> None:
    """A folder that has no lock yet may be taken for one of a dead process; then its owner makes another."""
    lost: list[Path] = []

    def use() -> None:
        for _ in range(100):
            with temporary_folder("x") as folder:
                if not folder.exists():
                    lost.append(folder)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert list(temporary.iterdir()) == []


def test_a_chosen_directory_is_cleared_as_the_temporary_one_is(tmp_path: Path) -> None:
    """The folder of a killed process in another directory is removed by the next folder there, and by no other."""
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, chosen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    left = Path(child.stdout.readline().strip())
    assert left.parent == chosen
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    with temporary_folder("elsewhere"):
        assert left.exists()
    with temporary_folder("next", chosen) as following:
        assert list(chosen.iterdir()) == [following]
