"""Deployments of small applications for tests: versions of one module, each in a folder of its own."""

import itertools
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.deployment.archives import Archives, pack
from penstock.journal.deployments import Deployment, Deployments
from penstock.model.control import DeployedCode
from penstock.process.data_directory import DataDirectory
from tests.gateway_thread import RunningGateway
from tests.history import journal_of

_WRITTEN = ("jars", "store", "newsroom", "pantry")
"""The modules that tests write for themselves."""


KIOSK = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()
    price: {type}

app = App("kiosk", Item)
"""
_numbers = itertools.count()


def kiosk_in(folder: Path) -> Path:
    """Return the file of a `KIOSK` that has run an epoch on the directory `data` beside it, as a module of its own."""
    file = folder / f"livekiosk{next(_numbers)}.py"
    file.write_text(KIOSK.format(type="int"))
    calls = [[("Item", "tea", "create", {"price": 3})]]
    journal_of(str(file), folder / "data", calls, deploys=True)
    return file


@pytest.fixture
def kept_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the modules that a test imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith(_WRITTEN):
            del sys.modules[name]


def write_version(folder: Path, name: str, text: str) -> str:
    """Write the source of an application into a new folder, and return its name for a command line."""
    folder.mkdir(parents=True)
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def stored_code(data: Path, spec: str) -> DeployedCode:
    """Store the archive of an application's only file, and return its code."""
    path = Path(spec)
    archive = Archives(data).put(pack({path.name: path.read_bytes()}))
    return DeployedCode(archive, path.stem, "app", "3", {})


def record(gateway: RunningGateway, spec: str) -> Deployment:
    """Record a deployment that executes the epochs from the next one on."""
    data = gateway.config.data
    assert gateway.driver is not None
    last = gateway.driver.journal.last()
    since = Epoch(0 if last is None else last.epoch + 1)
    deployments = Deployments(DataDirectory(data).journal_root)
    recorded = deployments.record(since, time.time_ns() // 1_000, stored_code(data, spec), {})
    assert recorded is not None
    return recorded
