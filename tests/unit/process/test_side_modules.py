"""Code beside the running one is loaded while other threads import modules."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.process.loading import locate
from penstock.process.side_modules import SideModules, load_beside


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


VERSION = """
from dataclasses import dataclass
from typing import NamedTuple
from penstock import App, Entity, key

class Place(NamedTuple):
    row: int
    seat: int

@dataclass(frozen=True)
class Size:
    width: int
    inner: "Size | None" = None

class Jar(Entity):
    place: Place = key()
    sizes: list[Size] = []

app = App("jars", Jar)
"""


@pytest.mark.xfail(
    sys.version_info >= (3, 14),
    reason="on Python 3.14 msgspec 0.22 never releases the parts of a union",
    strict=True,
)
def test_a_former_version_can_be_collected(tmp_path: Path) -> None:
    """A process that loads versions one after the other keeps the last two at most."""
    classes = [_classes_of(tmp_path / str(number)) for number in range(4)]
    gc.collect()
    assert [each() for former in classes[:2] for each in former] == [None] * 4


def _classes_of(folder: Path) -> list[weakref.ref[type]]:
    """Load a version, use it, and return its classes."""
    folder.mkdir()
    (folder / "kept_jars.py").write_text(VERSION)
    app = load_beside(locate(f"{folder / 'kept_jars.py'}:app"))
    jar = app.entities["Jar"]
    place = jar.key_annotation
    assert jar.key_text(place(1, 2)) == "[1,2]"
    return [weakref.ref(jar.cls), weakref.ref(place)]
