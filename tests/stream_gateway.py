"""A gateway of an application with streams, in whose journal a test commits the epochs itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from penstock.deployment.loading import load_app
from penstock.journal.api import Journal
from penstock.process.data_directory import DataDirectory
from tests.gateway_thread import RunningGateway

COUNTING: Final = "tests.counting_app:app"


@contextmanager
def counting(path: Path) -> Iterator[tuple[RunningGateway, httpx.Client, Journal]]:
    """Run a gateway of an application with streams; the test itself commits epochs."""
    data = path / "data"
    data.mkdir()
    journal = DataDirectory(data).open_journal(load_app(COUNTING))
    with (
        RunningGateway(COUNTING, data, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        yield gateway, client, journal
    journal.close()
