"""The roots of journals, for the suites that a journal must pass on each of them."""

from pathlib import Path
from typing import Final

import pytest

from penstock.files.local_root import LocalRoot
from penstock.files.shared_root import SharedRoot
from tests.object_store import StoreServer

ROOTS: Final = ("delta", "store")
ADAPTERS: Final = ("memory", *ROOTS)


def root_of(request: pytest.FixtureRequest, tmp_path: Path) -> SharedRoot:
    """Return the root of a test for the parameter of its fixture."""
    if request.param == "delta":
        return LocalRoot(tmp_path / "journal")
    server: StoreServer = request.getfixturevalue("store_server")
    return server.root(tmp_path / "host", tmp_path.name)
