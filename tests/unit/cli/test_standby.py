"""A standby waits, ready to start, until it has the lock of the driver."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.running import standby
from penstock.errors import OperationalError
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.stop import Stop
from tests.waiting import wait_for


class Runtime:
    """A runtime without Spark; it records the states that a standby announces."""

    def __init__(self, data: Path) -> None:
        self.states: list[object] = []
        self.is_stopped = False
        self.is_abandoned = threading.Event()
        self.is_slow = False
        self.fails = False
        self.lock: int | None = None
        self._data = data

    def claim(self) -> bool:
        if (found := self._announced()) not in self.states:
            self.states.append(found)
        try:
            self.lock = DataDirectory(self._data).claim()
        except OperationalError:
            return False
        return True

    def warm_up(self) -> None:
        self.states.append(self._announced())
        if self.is_slow:
            assert self.is_abandoned.wait(60)
            raise OperationalError("Java has ended")

    def abandon(self) -> None:
        self.is_abandoned.set()

    def check_warm(self) -> None:
        if self.fails:
            raise OperationalError("the source has changed")

    def follow(self) -> None:
        """Nothing: there is no driver on another host."""

    def stop(self) -> None:
        self.is_stopped = True

    def _announced(self) -> object:
        waiting = presence.find(self._data, standby.ROLE)
        return waiting[0].details.get("state") if waiting else None


@contextmanager
def waiting(runtime: Runtime, data: Path, stop: Stop) -> Iterator[list[object]]:
    """Let a standby wait in a thread; lend the list that gets its outcome."""
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(standby.stand_by(runtime, "app.py", data, stop, Console(quiet=True)))
        except OperationalError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield outcomes
    finally:
        stop.wanted.set()
        thread.join(60)
        assert not thread.is_alive()
        if runtime.lock is not None:
            os.close(runtime.lock)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = DataDirectory(tmp_path / "data")
    directory.create()
    return directory.path


class _NoSignals(Stop):
    """A request to stop without signals, which only a main thread may take."""

    def listen(self) -> None:
        """Take no signal."""


def test_first_driver_does_not_wait(data: Path) -> None:
    """Without another driver, there is nothing to prepare: the driver starts."""
    runtime = Runtime(data)
    with waiting(runtime, data, _NoSignals()) as outcomes:
        wait_for(lambda: bool(outcomes), "the outcome")
    assert (outcomes, runtime.states, runtime.is_stopped) == ([True], [None], False)


def test_standby_takes_over_when_the_lock_is_free(data: Path) -> None:
    """It announces that it warms up, and then that it is ready; the end of the driver wakes it."""
    runtime = Runtime(data)
    driver = DataDirectory(data).claim()
    with waiting(runtime, data, _NoSignals()) as outcomes:
        wait_for(lambda: "ready" in runtime.states, "a standby that is ready")
        assert outcomes == []
        os.close(driver)
        wait_for(lambda: bool(outcomes), "the outcome")
    assert (outcomes, runtime.states) == ([True], [None, "warming", "ready"])
    assert not runtime.is_stopped
    assert presence.find(data, standby.ROLE) == []


def test_standby_that_is_asked_to_stop_abandons_its_preparation(data: Path) -> None:
    """Spark takes seconds to start; the error of its early end means nothing then."""
    runtime, stop = Runtime(data), _NoSignals()
    runtime.is_slow = True
    driver = DataDirectory(data).claim()
    with waiting(runtime, data, stop) as outcomes:
        wait_for(lambda: "warming" in runtime.states, "a standby that warms up")
        stop.wanted.set()
        wait_for(lambda: bool(outcomes), "the outcome")
    assert (outcomes, runtime.is_stopped) == ([False], True)
    os.close(driver)


def test_standby_that_is_asked_to_stop_ends(data: Path) -> None:
    """The driver goes on."""
    runtime, stop = Runtime(data), _NoSignals()
    driver = DataDirectory(data).claim()
    with waiting(runtime, data, stop) as outcomes:
        wait_for(lambda: "ready" in runtime.states, "a standby that is ready")
        stop.wanted.set()
        wait_for(lambda: bool(outcomes), "the outcome")
    os.close(driver)
    assert (outcomes, runtime.is_stopped) == ([False], True)


def test_standby_that_cannot_start_any_more_ends(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor starts another one, which loads the application again."""
    monkeypatch.setattr(standby, "CHECK_S", 0.0)
    runtime = Runtime(data)
    runtime.fails = True
    driver = DataDirectory(data).claim()
    with waiting(runtime, data, _NoSignals()) as outcomes:
        wait_for(lambda: bool(outcomes), "the outcome")
    os.close(driver)
    assert [str(error) for error in outcomes] == ["the source has changed"]
    assert runtime.is_stopped
