"""The pump: due entries get into the log, also when it fails meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.ids import RequestId
from penstock.errors import Corrupt, LogUnavailable
from penstock.log.api import Entry
from penstock.log.pump import Pump
from penstock.process.config import Config
from tests.memory_log import MemoryLog
from tests.serial_driver import SerialDriver

DEADLINE_MS = 60_000


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us


class Troubled(MemoryLog):
    """A log whose promotions fail first, with these errors."""

    def __init__(self, *trouble: Exception) -> None:
        super().__init__()
        self.trouble = list(trouble)
        self.tried = threading.Semaphore(0)

    def promote(self, now_us: int) -> int:
        self.tried.release()
        if self.trouble:
            raise self.trouble.pop(0)
        return super().promote(now_us)


def entry(name: str) -> Entry:
    return Entry(RequestId(name), b"body", b"", 0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pumping(log: MemoryLog, clock: Clock, damage: list[Exception]) -> Iterator[Pump]:
    pump = Pump(log, damage.append, clock)
    pump.start()
    yield pump
    pump.stop()


def test_due_request_is_appended(clock: Clock) -> None:
    """A request is appended when the pump's clock has come to its due time, and not before."""
    log = Troubled()
    log.schedule(entry("now"), 0)
    log.schedule(entry("later"), 5)
    for _pump in pumping(log, clock, []):
        assert log.wait(log.start(), DEADLINE_MS) == 1
        for _ in range(3):  # looks in vain
            assert log.tried.acquire(timeout=DEADLINE_MS / 1_000)
        assert log.end() == 1
        clock.now_us = 5
        assert log.wait(log.end(), DEADLINE_MS) == 2


def test_trouble_delays_only(clock: Clock) -> None:
    """Failures of the environment are retried until they pass."""
    log = Troubled(LogUnavailable("disk full"), LogUnavailable("disk full"))
    log.schedule(entry("a"), 0)
    damage: list[Exception] = []
    for _pump in pumping(log, clock, damage):
        assert log.wait(log.start(), DEADLINE_MS) == 1
    assert damage == []


def test_damage_is_told(clock: Clock) -> None:
    """A failure that waiting cannot mend stops the pump, and is reported once."""
    told = threading.Event()
    damage: list[Exception] = []

    def tell(error: Exception) -> None:
        damage.append(error)
        told.set()

    pump = Pump(Troubled(Corrupt("damaged")), tell, clock)
    pump.start()
    assert told.wait(DEADLINE_MS / 1_000)
    pump.stop()
    assert [type(error) for error in damage] == [Corrupt]


def test_pump_that_never_began_stops() -> None:
    """Stopping is allowed at any time, and twice."""
    damage: list[Exception] = []
    pump = Pump(MemoryLog(), damage.append)
    pump.stop()
    pump.stop()
    assert damage == []


def test_driver_runs_what_is_due(tmp_path: Path) -> None:
    """A driver answers a request that was scheduled before it started, once it is due."""
    driver = SerialDriver("examples/shop", Config(tmp_path))
    body, hint = driver.app.request("Item", "i1", "create", (), {"price": 3})
    driver.log.schedule(Entry(RequestId("later"), body, hint, 0), 1)
    driver.start()
    assert driver.log.wait(driver.log.start(), DEADLINE_MS) == 1
    assert driver.wait_until(driver.log.end(), DEADLINE_MS)
    driver.check()
    driver.stop()
