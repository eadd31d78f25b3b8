"""Code beside the running one is loaded while other threads import modules."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.deployment.loading import locate
from penstock.deployment.side_modules import SideModules, load_aside
from penstock.history.deployment_check import compare_interfaces
from penstock.process.data_directory import DataDirectory
from tests.deployments import kept_imports, write_version
from tests.history import journal_of
from tests.waiting import meanwhile

__all__ = ["kept_imports"]


@pytest.fixture
def importing() -> Iterator[None]:
    """A thread that adds and removes modules, as imports do."""
    interval_s = sys.getswitchinterval()

    def add_and_remove(stop: threading.Event) -> None:
        while not stop.is_set():
            for number in range(50):
                sys.modules[f"passing_{number}"] = ModuleType("passing")
            for number in range(50):
                sys.modules.pop(f"passing_{number}", None)

    sys.setswitchinterval(1e-6)
    with meanwhile(add_and_remove):
        yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("importing")
def test_other_threads_may_import_meanwhile(tmp_path: Path) -> None:
    """The modules of the process change at any time, and each look at them goes on."""
    modules, path = SideModules(tmp_path, {"aside"}), list(sys.path)
    for _ in range(300):
        with modules.active():
            assert sys.path[0] == str(tmp_path)
    assert sys.path == path


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
    app = load_aside(locate(f"{folder / 'kept_jars.py'}:app")).app
    jar = app.entities["Jar"]
    place = jar.key_annotation
    assert jar.key_text(place(1, 2)) == "[1,2]"
    return [weakref.ref(jar.cls), weakref.ref(place)]


TEXTS = """
from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypedDict

from penstock import App, Entity, key
from tests.waiting import meanwhile

@dataclass
class Money:
    amount: Decimal = Decimal(0)

class Span(NamedTuple):
    width: Decimal

class Note(TypedDict):
    cost: Decimal

class Bill(Entity):
    number: str = key()
    owed: Money
    span: Span
    note: Note
    {line}

    def pay(self, money: Money) -> Money:
        return money

app = App("bills", Bill)
"""


def test_annotations_that_are_text_have_their_types_in_every_version(
    tmp_path: Path, kept_imports: None
) -> None:
    """Records of a version are compared with stored ones, also when its modules have left `sys.modules`."""
    lines = ("", "paid: bool = False", "due: bool = False")
    specs = [
        write_version(tmp_path / str(number), "text_bills", TEXTS.replace("{line}", line))
        for number, line in enumerate(lines)
    ]
    money = {"amount": "1.50"}
    bill = {"owed": money, "span": ["2"], "note": {"cost": "3"}}
    journal_of(specs[0], tmp_path / "data", [[("Bill", "b", "create", bill)]])
    del sys.modules["text_bills"]  # a worker has not imported it
    apps = [load_aside(locate(spec)).app for spec in specs]
    for app in apps:
        DataDirectory(tmp_path / "data").open_journal(app).close()
    assert list(compare_interfaces(apps[0], apps[1])) == []
