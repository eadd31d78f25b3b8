"""One PostgreSQL server for all tests of a process; each test has schemas of its own."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.cluster import Cluster, running_cluster
from penstock.gateway.serving import free_port

SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # no test takes the power away
    "shared_buffers": "32MB",
    "max_connections": "40",
    "log_min_messages": "fatal",
}


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """Start a server; without PostgreSQL, skip the tests that need it, but fail if CI is set."""
    settings = SETTINGS | {"port": str(free_port("127.0.0.1"))}
    try:
        # The server has a user of its own, who must be able to enter the directory.
        with running_cluster(Path("/var/tmp"), settings) as cluster:
            yield cluster
    except FileNotFoundError as error:
        (pytest.fail if "CI" in os.environ else pytest.skip)(str(error))
