"""A driver that starts removes what dead drivers have left, and nothing of processes that run."""

import os
import subprocess
import sys
from pathlib import Path

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
