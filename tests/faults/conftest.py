"""An object store for the tests of faults, reached at once and through a network whose answers lie."""

from collections.abc import Iterator
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
