"""A plugin of pytest: an object store and a broker that run already, perhaps behind a slow link, in place of those of the suite.

pytest -p tests.cluster.far_servers --servers FILE tests/conformance
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.kafka_server import Broker
from tests.object_store import Store


class Places(msgspec.Struct, frozen=True):
    """Where they are.

    Attributes:
        store: The arguments of `Store`.
        broker: The port and the address of the broker.
    """

    store: tuple[str, int, str, str]
    broker: tuple[int, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--servers`."""
    parser.addoption("--servers", type=Path, help="file with the places of a store and a broker")


def lent(config: pytest.Config) -> dict[str, Any]:
    """Return the servers, by the names of the fixtures that they replace."""
    places = msgspec.json.decode(config.getoption("--servers").read_bytes(), type=Places)
    return {"store_server": Store(*places.store), "kafka_server": Broker(*places.broker)}
