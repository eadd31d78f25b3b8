"""Code beside the running one is loaded while other threads import modules."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.process.side_modules import SideModules


@pytest.fixture
def importing() -> Iterator[None]:
    """A thread that adds and removes modules, as imports do."""
    stopping = threading.Event()
    interval_s = sys.getswitchinterval()

    def add_and_remove() -> None:
        while not stopping.is_set():
            for number in range(50):
                sys.modules[f"passing_{number}"] = ModuleType("passing")
            for number in range(50):
                sys.modules.pop(f"passing_{number}", None)

    thread = threading.Thread(target=add_and_remove)
    sys.setswitchinterval(1e-6)
    thread.start()
    yield
    stopping.set()
    thread.join()
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("importing")
def test_other_threads_may_import_meanwhile(tmp_path: Path) -> None:
    """The modules of the process change at any time, and each look at them goes on."""
    modules = SideModules(tmp_path, {"aside"})
    for _ in range(300):
        with modules.active():
            pass
