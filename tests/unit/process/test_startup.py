"""The step of a starting process, for displays in other processes."""

import subprocess
import sys
from pathlib import Path

from penstock.process.startup import finish, note, step_of


def test_newest_step_is_shown_until_the_start_is_over(tmp_path: Path) -> None:
    """Each step replaces the former one, and none remains in the directory."""
    assert step_of(tmp_path, "driver") is None
    note(tmp_path, "driver", "Java starts")
    note(tmp_path, "driver", "Spark starts")
    assert step_of(tmp_path, "driver") == "Spark starts"
    assert step_of(tmp_path, "view") is None
    finish(tmp_path, "driver")
    finish(tmp_path, "driver")
    assert step_of(tmp_path, "driver") is None
    assert list((tmp_path / "run").iterdir()) == []


def test_step_of_a_process_that_has_ended_is_ignored(tmp_path: Path) -> None:
    """A driver that was killed while it started is not shown as starting."""
    program = (
        "import sys; from pathlib import Path; from penstock.process.startup import note; "
        "note(Path(sys.argv[1]), 'driver', 'Java starts')"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
    assert (tmp_path / "run" / "driver.starting").exists()
    assert step_of(tmp_path, "driver") is None


def test_unreadable_step_is_no_step(tmp_path: Path) -> None:
    """A torn or foreign file is ignored."""
    note(tmp_path, "driver", "Java starts")
    (tmp_path / "run" / "driver.starting").write_bytes(b"{")
    assert step_of(tmp_path, "driver") is None


def test_directory_that_takes_no_file_costs_the_hint_alone(tmp_path: Path) -> None:
    """A start does not fail for its hint."""
    (tmp_path / "data").write_text("a file")
    note(tmp_path / "data", "driver", "Java starts")
    assert step_of(tmp_path / "data", "driver") is None
