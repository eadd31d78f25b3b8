"""A till with its processes: a driver without Spark, and the process that calls effects, which a test may kill."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from penstock.base.ids import EntityKey, RequestId
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.effects.service import serve_effects
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.waiting_effect import WaitingEffect, decode_waiting_effect
from penstock.orders.paused_workflows import newest_rows
from penstock.process.config import Config, EffectsConfig
from penstock.process.data_directory import DataDirectory
from tests.forked import processes
from tests.views.processes import driving

SPEC = "tests/effects/charging_app.py"
DEADLINE_S = 120.0


class Till:
    """A data directory with the application `till`, and its callers from outside."""

    def __init__(self, data: Path, secrets: Path) -> None:
        self.data = data
        self.app: App = load_app(SPEC)
        self.config = Config(data, effects=EffectsConfig(secrets=secrets, at_once=4, memory_mb=64))
        directory = DataDirectory(data)
        directory.create("")
        with closing(directory.open_journal(self.app)) as journal:
            journal.deploy()
            deploy(data, SPEC, self.app, journal)
        self._log = directory.open_log(self.config)
        self._count = 0

    def send(self, method: str, order: str, *arguments: Any) -> str:
        """Append a request to an order, and return its id."""
        body, hint = self.app.request("Order", order, method, arguments)
        return self._append(body, hint)

    def append(self, stream: str, *events: Any) -> str:
        """Append an atom to a stream, and return its id."""
        return self._append(self.app.append(stream, events), b"")

    def _append(self, body: bytes, hint: bytes) -> str:
        self._count += 1
        request_id = RequestId(f"r{self._count}")
        self._log.append([Entry(request_id, body, hint, wall_clock_us())])
        return request_id

    def outcomes(self, order: str) -> list[str]:
        """Return what an order was told."""
        (row,) = newest_rows(self.config, [EntityKey(f"Order/{order}")])
        if row is None:
            return []
        values = self.app.entity("Order").decode(order, row)
        return list(values["outcomes"])

    def await_outcomes(self, count: int, *orders: str) -> dict[str, list[str]]:
        """Wait until each order was told so many outcomes, and return them."""
        told: dict[str, list[str]] = {}

        def are_told() -> bool:
            told.update({order: self.outcomes(order) for order in orders})
            return all(len(each) >= count for each in told.values())

        wait_until(are_told, lambda: f"outcomes: {told}")
        return told

    def effect(self, request_id: str) -> WaitingEffect | None:
        """Return the row of an effect."""
        (row,) = newest_rows(self.config, [EntityKey(f"$effect/{request_id}")])
        return None if row is None else decode_waiting_effect(row)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def wait_until(condition: Callable[[], bool], why: Callable[[], str] = str) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


@contextmanager
def calling(till: Till) -> Iterator[int]:
    """Call effects in a process, and kill it at the end; yields the number of the process."""
    process = processes().Process(target=_call, args=(till.data, till.config.effects.secrets))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def _call(data: Path, secrets: Path) -> None:
    # Those of the server that has forked this process are not there otherwise.
    os.closerange(3, 65_536)
    config = Config(data, app=SPEC, effects=EffectsConfig(secrets=secrets, at_once=4, memory_mb=64))
    serve_effects(load_app(SPEC), config, {})


@contextmanager
def running(data: Path, url: str) -> Iterator[Till]:
    """Run a till without its effect process.

    Args:
        url: The address of the provider.
    """
    secrets = data.with_suffix(".secrets")
    secrets.write_text(f"# of the tests\nPROVIDER={url}\nCARD_KEY=sk_live_9x8y7z\n")
    secrets.chmod(0o600)
    till = Till(data, secrets)
    try:
        with driving(SPEC, data):
            yield till
    finally:
        till.close()
