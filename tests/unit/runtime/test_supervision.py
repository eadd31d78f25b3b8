"""The runtime restarts a query that fails, and starts none while it stops."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.ids import BEFORE_FIRST
from penstock.errors import LogUnavailable, OperationalError
from penstock.process.config import Config
from penstock.runtime.spark.runtime import SparkRuntime


class Query:
    """A query of Spark that runs until it is stopped."""

    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Any]:
    """A runtime whose first query has failed, without Spark."""
    made: Any = SparkRuntime("tests.differential.machine:app", Config(tmp_path / "data"))
    made._driver = SimpleNamespace(epoch=BEFORE_FIRST, failure=LogUnavailable("the disk fails"))
    made._batches = SimpleNamespace(offered=True)
    made._query = Query()
    yield made
    made._tail.close()
    made.journal.close()
    made.log.close()


def ended(query: Query) -> None:
    """Return when a query has ended, as Spark does; one that nothing stops would never end."""
    assert query.is_stopped


def test_no_query_begins_after_a_stop(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop during the pause before a restart is the end: the next query would run without end."""
    begun: list[Query] = []

    def begin() -> Query:
        begun.append(Query())
        return begun[-1]

    def wait(_pause_s: float) -> bool:
        runtime._stopping.set()
        return True

    runtime._begin_query, runtime._stopping.wait = begin, wait
    monkeypatch.setattr("penstock.runtime.spark.runtime.await_end", lambda _: None)
    runtime._keep_running()
    assert begun == []


def test_query_that_begins_during_a_stop_is_stopped(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that stops the runtime may have stopped the former query already."""
    first, second = runtime._query, Query()

    def begin() -> Query:
        runtime._stopping.set()
        return second

    runtime._begin_query = begin
    runtime._stopping.wait = lambda _: False
    monkeypatch.setattr(
        "penstock.runtime.spark.runtime.await_end",
        lambda query: None if query is first else ended(query),
    )
    runtime._keep_running()
    assert second.is_stopped


def test_end_of_java_is_the_end(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No query begins without Java; the driver ends at once, and its supervisor starts another one."""
    module = "penstock.runtime.spark.runtime"
    monkeypatch.setattr(f"{module}.java_has_ended", lambda: True)
    monkeypatch.setattr(f"{module}.await_end", lambda _: RuntimeError("the connection is lost"))
    runtime._stopping.wait = lambda _: False
    runtime._begin_query = pytest.fail
    runtime._keep_running()
    with pytest.raises(OperationalError, match="Java process has ended"):
        runtime.check()
    runtime._stop_query()
    assert not runtime._query.is_stopped, "Java cannot be asked"
