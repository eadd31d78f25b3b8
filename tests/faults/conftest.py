"""An object store for the tests of faults, reached at once and through a network whose answers lie."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.files.store_root import StoreRoot
    from tests.object_store import HostileProxy, StoreServer


@pytest.fixture
def proxy(store_server: "StoreServer") -> "Iterator[HostileProxy]":
    """Put a network before the store."""
    module: Any = import_module("tests.object_store")  # few tests need it, and all import this file
    with module.HostileProxy(store_server.port) as hostile:
        yield hostile


@pytest.fixture
def near(store_server: "StoreServer", tmp_path: Path) -> "StoreRoot":
    """The store as others see it."""
    return store_server.root(tmp_path / "near", tmp_path.name)


@pytest.fixture
def stored(
    store_server: "StoreServer", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Give a function that makes a data directory of a name, whose shared root lies in the store."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    module: Any = import_module("penstock.files.roots")

    def make(name: str) -> Path:
        module.use_store(tmp_path / name, store_server.url(f"{tmp_path.name}/{name}"))
        return tmp_path / name

    return make
