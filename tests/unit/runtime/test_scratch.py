"""A driver that starts removes what dead drivers have left, and nothing of processes that run."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.process.config import Config
from penstock.runtime.spark.driver import StoreUpdates
from penstock.runtime.spark.scratch import clear_scratch, new_scratch


def test_directories_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """A standby waits with files of its own; an earlier run of the same process has ended."""
    own, earlier = new_scratch(tmp_path), new_scratch(tmp_path)
    waits = own.with_name(f"{os.getppid()}-0123")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead, older = own.with_name(f"{process.pid}-0123"), own.with_name("0123456789abcdef")
    for path in (own, earlier, waits, dead, older):
        path.mkdir(parents=True)
        (path / "file").touch()
    clear_scratch(own)
    assert set(own.parent.iterdir()) == {own, waits}


def test_small_epoch_removes_its_files_at_once(tmp_path: Path) -> None:
    """No thread is woken for it; a failure is told when the next epoch waits for the stores."""
    applied: list[Epoch] = []
    jobs: Any = SimpleNamespace(apply_resident=applied.append)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name in ("e1-parts", "e12-parts"):
        (scratch / name).touch()
    threads = {*threading.enumerate()}
    updates = StoreUpdates(Config(data=tmp_path, cores=1), jobs, scratch)
    updates.begin(Epoch(1), count=1, tasks=1)
    assert [path.name for path in scratch.iterdir()] == ["e12-parts"]
    updates.wait()
    (scratch / "e2-parts").mkdir()
    updates.begin(Epoch(2), count=1, tasks=1)
    with pytest.raises(OSError, match="e2-parts"):
        updates.wait()
    updates.wait()
    assert {*threading.enumerate()} <= threads
    updates.close()
    assert applied == [1, 2]
