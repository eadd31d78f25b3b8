"""The command line says that an application with streams cannot be run yet, before it starts anything."""

import subprocess
import sys
from pathlib import Path

from tests.checkout import TOP


def test_run_refuses_streams(tmp_path: Path) -> None:
    """The message names the runtimes that can run it, and no data directory is made."""
    words = [sys.executable, "-m", "penstock", "run", str(TOP / "examples/newsroom")]
    ended = subprocess.run(
        [*words, "--data", str(tmp_path / "data")], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2
    assert "has streams, which only LocalRuntime" in " ".join(ended.stderr.split())
    assert list(tmp_path.iterdir()) == []
