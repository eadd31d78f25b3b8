"""A query that fails is started again, and no query starts while the runtime stops."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Lsn
from penstock.errors import EpochFailed, LogUnavailable, OperationalError
from penstock.process.config import Config
from penstock.runtime.spark import query as module
from penstock.runtime.spark.query import SupervisedQuery
from penstock.runtime.spark.runtime import SparkRuntime


class Query:
    """A query of Spark that runs until it is stopped."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class Rig:
    """A supervised query whose first query has failed, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.begun: list[Query] = []
        self.stopping = threading.Event()
        self.wait: Callable[[float], bool] = lambda _: self.stopping.is_set()
        stopping: Any = SimpleNamespace(
            is_set=self.stopping.is_set, wait=lambda pause_s: self.wait(pause_s)
        )
        start: Any = self._start
        self.query = SupervisedQuery(start, folder / "checkpoint", stopping)
        self.query.begin()

    def _start(self) -> Query:
        self.begun.append(Query())
        return self.begun[-1]

    def keep_running(self) -> None:
        driver: Any = SimpleNamespace(failure=LogUnavailable("the disk fails"))
        batches: Any = SimpleNamespace(offered=True)
        log: Any = SimpleNamespace(partitions=[])
        self.query.keep_running(driver, batches, log, lambda: BEFORE_FIRST, list)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def ended(query: Query) -> None:
    """Return when a query has ended, as Spark does; one that nothing stops would never end."""
    assert query.is_stopped


def test_no_query_begins_after_a_stop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop during the pause before a restart is the end: the next query would run without end."""

    def wait(_pause_s: float) -> bool:
        rig.stopping.set()
        return True

    rig.wait = wait
    monkeypatch.setattr(module, "await_end", lambda _: None)
    rig.keep_running()
    assert len(rig.begun) == 1


def test_query_that_begins_during_a_stop_is_stopped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that stops the runtime may have stopped the former query already."""
    first = rig.begun[0]

    def await_end(query: Query) -> None:
        if query is first:
            rig.query._start = begin
        else:
            ended(query)

    def begin() -> Any:
        rig.stopping.set()
        return rig._start()

    rig.wait = lambda _: False
    monkeypatch.setattr(module, "await_end", await_end)
    rig.keep_running()
    assert [query.is_stopped for query in rig.begun] == [False, True]


def test_end_of_java_is_the_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """No query begins without Java; the driver ends at once, and its supervisor starts another one."""
    monkeypatch.setattr(module, "java_has_ended", lambda: True)
    monkeypatch.setattr(module, "await_end", lambda _: RuntimeError("the connection is lost"))
    with pytest.raises(OperationalError, match="Java process has ended"):
        rig.keep_running()
    assert len(rig.begun) == 1


def test_stop_asks_no_java_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a Java process that has ended would fail."""
    runtime = SparkRuntime("tests.differential.machine:app", Config(tmp_path / "data"))
    monkeypatch.setattr("penstock.runtime.spark.runtime.java_has_ended", lambda: True)
    asked: Any = SimpleNamespace(stop=pytest.fail)
    runtime._query = asked
    runtime.stop()


def followers() -> int:
    return sum(thread.name == "penstock-tail" for thread in threading.enumerate())


def test_journal_is_followed_for_callers_of_this_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch costs a follower a sync and the lock of the commits, so a driver without callers has none."""
    monkeypatch.setattr("penstock.runtime.spark.runtime.java_has_ended", lambda: True)
    before = followers()
    runtime = SparkRuntime("tests.differential.machine:app", Config(tmp_path / "data"))
    assert followers() == before
    assert runtime.wait_until(Lsn(0), 10_000)
    assert runtime.wait_until(Lsn(0), 10_000)
    assert followers() == before + 1
    runtime.stop()
    assert followers() == before


def test_first_caller_after_the_end_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No epoch will come, so no caller waits for its time limit."""
    monkeypatch.setattr("penstock.runtime.spark.runtime.java_has_ended", lambda: True)
    runtime = SparkRuntime("tests.differential.machine:app", Config(tmp_path / "data"))
    runtime._give_up(RuntimeError("Java has ended"))
    with pytest.raises(EpochFailed, match="the runtime has stopped: Java has ended"):
        runtime._followed().wait((ONLY_PARTITION, Lsn(0)), 10_000)
    runtime.stop()
