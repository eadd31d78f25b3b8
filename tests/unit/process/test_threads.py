"""A thread that dies ends its process, so that the supervisor restarts it."""

import subprocess
import sys
from pathlib import Path

from penstock.process.process_limits import DIED
from tests.checkout import TOP

VIEW = """
import sys, time
from pathlib import Path
from tests.memory_journal import MemoryJournal
from penstock.process import logs
from penstock.process.config import ViewConfig
from penstock.process.process_limits import end_with_threads
from penstock.sql_view.view import View
from tests.checkout import TOP
from tests.unit.sql_view.gallery_app import Written, app

class Journal(MemoryJournal):
    def commits(self, after, upto):
        raise LookupError("this error was not foreseen")

logs.configure("view", "text", "info")
end_with_threads()
journal = Journal()
view = View(Path(sys.argv[1]), app, journal, ViewConfig(memory_mb=256))
view.start()
Written(journal).painters({1: "Ada"})
time.sleep(60)
"""
OTHER = """
import threading
from penstock.process.process_limits import end_with_threads

end_with_threads()
other = threading.Thread(target=lambda: 1 / 0, name="a-library")
other.start()
other.join()
print("goes on")
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, str(folder)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=TOP, timeout=50)


def test_view_whose_thread_dies_ends(tmp_path: Path) -> None:
    """An unforeseen error ends the view's process at once, and is in the log."""
    done = run(VIEW, tmp_path)
    assert done.returncode == DIED, done.stderr
    assert "a thread died; the process ends" in done.stderr
    assert "this error was not foreseen" in done.stderr


def test_thread_of_a_library_ends_nothing(tmp_path: Path) -> None:
    """Threads that are not ours die as they always did."""
    done = run(OTHER, tmp_path)
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "ZeroDivisionError" in done.stderr
