"""The command line says that a pausing workflow cannot be run yet, before it starts anything."""

import subprocess
import sys
from pathlib import Path

APP = """
from penstock import App, flow, stream

numbers = stream("numbers", int)
doubled = flow("doubling", numbers, on_failure="pause").map(lambda n: 2 * n).sink("doubled", int)
app = App("pausing", doubled)
"""


def test_run_refuses_pausing_workflows(tmp_path: Path) -> None:
    """The message names the workflow and the other policy, and no data directory is made."""
    (tmp_path / "pausing.py").write_text(APP)
    words = [sys.executable, "-m", "penstock", "run", str(tmp_path / "pausing.py")]
    ended = subprocess.run(
        [*words, "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    message = " ".join(ended.stderr.split())
    assert ended.returncode == 2
    assert "application pausing has workflow doubling with on_failure=" in message
    assert "a workflow goes on at a failure" in message
    assert not (tmp_path / "data").exists()
