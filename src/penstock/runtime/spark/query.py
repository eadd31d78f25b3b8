"""Spark's streaming query, and what it calls in this process: batches and progress.

PySpark wraps what it hands to Python: a session and a frame for each batch, typed events for each
listener. Building these makes the JVM look for classes in all of its archives, 200 ms of processor
time for each epoch on a small machine, and Penstock uses none of it. So the callbacks here take
what the JVM gives and look into it only when somebody asks.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from py4j.java_gateway import java_import
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.runtime.spark.source import NAME

_SPARK = "org.apache.spark.sql"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a runtime stands.

    Attributes:
        epoch: The newest committed epoch; -1 before the first.
        lag: Records in the log that no epoch has committed yet.
        batch: Spark's newest finished batch; -1 before the first.
        spark_ms: What Spark's phases of that batch took: `triggerExecution` is the whole, `addBatch`
            holds the epoch, `walCommit` and `commitOffsets` are Spark's own checkpoint.
        restarts: How often the query failed and was started again.
    """

    epoch: Epoch = BEFORE_FIRST
    lag: int = 0
    batch: int = -1
    spark_ms: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0


class BatchListener:
    """Remembers the newest batch that Spark has reported."""

    def __init__(self, session: SparkSession) -> None:
        """Listen to all queries of a session, until `close`."""
        self._newest: Any = None
        gateway = session.sparkContext._gateway  # noqa: SLF001
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001 -- see the module
        self._manager = session._jsparkSession.streams()  # noqa: SLF001
        streaming = jvm.org.apache.spark.sql.streaming
        self._wrapper = streaming.PythonStreamingQueryListenerWrapper(self)
        self._manager.addListener(self._wrapper)

    def newest(self) -> tuple[int, dict[str, int]]:
        """Return Spark's newest finished batch (-1: none) and its durations in milliseconds."""
        if self._newest is None:
            return -1, {}
        told = json.loads(self._newest.progress().json())
        return int(told["batchId"]), dict(told["durationMs"])

    def close(self) -> None:
        """Listen no more."""
        self._manager.removeListener(self._wrapper)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Do nothing: who started the query knows."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Remember a finished batch, unread."""
        self._newest = event

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Do nothing: no batch, no news."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Do nothing: the supervisor waits for it by itself."""

    class Java:
        """What py4j implements with this class."""

        implements: ClassVar = [f"{_SPARK}.streaming.PythonStreamingQueryListener"]


class _BatchCallback:
    """Hands the number of each batch to Python; the frame stays in the JVM."""

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch

    def call(self, _frame: Any, batch: int) -> None:
        """Process a batch; what this raises ends the query."""
        self._on_batch(batch)

    class Java:
        """What py4j implements with this class."""

        implements: ClassVar = [f"{_SPARK}.execution.streaming.sources.PythonForeachBatchFunction"]


def start_query(
    session: SparkSession,
    name: str,
    options: Mapping[str, str],
    checkpoint: Path,
    on_batch: Callable[[int], None],
) -> StreamingQuery:
    """Start a query over the log that calls `on_batch` with the number of each batch.

    Args:
        session: Where `LogSource` is registered.
        name: Of the query, in Spark's messages.
        options: Of the source; see `source_options`.
        checkpoint: Where Spark keeps its offsets.
        on_batch: Called in a thread of this process; the batch ends when it returns.

    Raises:
        pyspark.errors.PySparkException: The checkpoint cannot be read.
    """
    writer = (
        session.readStream.format(NAME)
        .options(**options)
        .load()
        .writeStream.option("checkpointLocation", str(checkpoint))
        .queryName(name)
    )
    gateway = session.sparkContext._gateway  # noqa: SLF001 -- as `foreachBatch` itself does
    assert gateway is not None
    java_import(gateway.jvm, f"{_SPARK}.execution.streaming.sources.*")
    helper = gateway.jvm.PythonForeachBatchHelper
    helper.callForeachBatch(writer._jwrite, _BatchCallback(on_batch))  # noqa: SLF001
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer.start()
