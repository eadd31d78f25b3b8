"""Spark's streaming query, and its callbacks in this process: batches and progress.

PySpark builds a session and a data frame for each batch, and typed events for each listener. The JVM
then searches all of its archives for classes: 200 ms of processor time for each epoch on a small
machine. Penstock uses none of these objects, so the callbacks here keep the JVM's objects unread.
"""

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from py4j.java_gateway import java_import
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import EpochFailed, Fenced, IntegrityError, OperationalError, PenstockError
from penstock.log.api import Log
from penstock.process.disk_space import tells_of_full_disk
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.java_classes import FILE_SYSTEM, SOURCE, class_loader
from penstock.runtime.spark.jvm import java_has_ended
from penstock.runtime.spark.micro_batches import LogOffsets, MicroBatches

_log = logging.getLogger(__name__)

_SPARK = "org.apache.spark.sql"
_INTERPRETED: Final = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a runtime.

    Attributes:
        epoch: The newest committed epoch; -1 before the first.
        lag: Records in the log that are not committed yet.
        batch: Spark's newest finished batch; -1 before the first.
        spark_ms: Milliseconds of Spark's phases of that batch: `triggerExecution` is the whole,
            `addBatch` contains the epochs, `walCommit` and `commitOffsets` write Spark's checkpoint.
        restarts: How often the query was restarted after a failure.
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
        progress = json.loads(self._newest.progress().json())
        return int(progress["batchId"]), dict(progress["durationMs"])

    def close(self) -> None:
        """Stop listening."""
        self._manager.removeListener(self._wrapper)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Keep the event of a finished batch, unread."""
        self._newest = event

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Do nothing: the supervisor waits for the end itself."""

    class Java:
        """The Java interface that py4j implements with this class."""

        implements: ClassVar = [f"{_SPARK}.streaming.PythonStreamingQueryListener"]


class _BatchCallback:
    """Passes the number of each batch to Python; the data frame stays in the JVM."""

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch

    def call(self, _frame: Any, batch: int) -> None:
        """Process a batch; an exception ends the query."""
        self._on_batch(batch)

    class Java:
        """The Java interface that py4j implements with this class."""

        implements: ClassVar = [f"{_SPARK}.execution.streaming.sources.PythonForeachBatchFunction"]


def start_query(
    session: SparkSession,
    name: str,
    offsets: LogOffsets,
    checkpoint: Path,
    on_batch: Callable[[int], None],
) -> StreamingQuery:
    """Start a query over the log that calls `on_batch` with the number of each batch.

    Args:
        on_batch: Called in a thread of this process; the batch ends when it returns.
    """
    gateway = session.sparkContext._gateway  # noqa: SLF001 -- as `foreachBatch` itself does
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    loader = class_loader(gateway)
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 -- see the module
    hadoop.setClassLoader(loader)
    hadoop.set("fs.file.impl", FILE_SYSTEM)
    source = loader.loadClass(SOURCE).newInstance()
    frame = DataFrame(source.apply(session._jsparkSession, offsets), session)  # noqa: SLF001
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).queryName(name)
    java_import(gateway.jvm, f"{_SPARK}.execution.streaming.sources.*")
    helper = gateway.jvm.PythonForeachBatchHelper
    helper.callForeachBatch(writer._jwrite, _BatchCallback(on_batch))  # noqa: SLF001
    with _interpreted(session):
        return writer.start()


@contextmanager
def _interpreted(session: SparkSession) -> Iterator[None]:
    """Let a query that starts in the block run its plan without generated code.

    The plan of the log has no rows, so generated code would only be compiled. A query keeps the settings of
    its start; other queries of the session compile theirs, except while the block runs.
    """
    for name, value in _INTERPRETED.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in _INTERPRETED:
            session.conf.unset(name)


def await_end(query: StreamingQuery) -> Exception | None:
    """Wait until a query ends, and return its error; None if it was stopped."""
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 -- every error leads to a restart
        return error
    return None


def is_environmental(cause: BaseException | None) -> bool:
    """Say whether the environment made a query fail, so that the failure may pass."""
    return isinstance(cause, OperationalError) or tells_of_full_disk(cause)


def set_checkpoint_aside(checkpoint: Path, cause: BaseException | None) -> None:
    """Move a checkpoint away, so that Spark begins a new one; the journal has the committed positions."""
    aside = checkpoint.with_name("checkpoint.unusable")
    shutil.rmtree(aside, ignore_errors=True)
    if checkpoint.exists():
        checkpoint.rename(aside)
    extra = {"path": str(aside), "cause": cause_text(cause)}
    _log.warning("Spark's checkpoint is set aside", extra=extra)


# The runtime supplies the function that starts a query. This module decides when that function is called,
# and when the failures are too many.


RESTARTS_MAX: Final = 5
"""Failures in a row, without progress between them, after which the runtime gives up.

A failure of the environment, such as a full disk, is not counted: the query is restarted until the
environment recovers.
"""

PAUSE_MAX_S: Final = 5.0
"""The longest pause between two restarts."""


class SupervisedQuery:
    """The query over the log of one runtime.

    Attributes:
        restarts: How often the query was restarted after a failure.

    Args:
        stopping: Is set when the runtime stops; then no query starts.
    """

    def __init__(
        self, start: Callable[[], StreamingQuery], checkpoint: Path, stopping: threading.Event
    ) -> None:
        self.restarts = 0
        self._start = start
        self._checkpoint = checkpoint
        self._stopping = stopping
        self._query: StreamingQuery | None = None

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return self._query is not None and self._query.isActive

    def begin(self) -> None:
        """Start the query, from a checkpoint if there is a usable one."""
        try:
            self._query = self._start()
        except Exception as error:
            if self._stopping.is_set():
                raise  # Java may have been ended
            set_checkpoint_aside(self._checkpoint, error)
            self._query = self._start()

    def stop(self) -> None:
        """Stop the query."""
        if self._query is not None:
            self._query.stop()

    def keep_running(
        self,
        driver: EpochDriver,
        batches: MicroBatches,
        log: Log,
        progress: Callable[[], object],
        examine: Callable[[], object],
    ) -> None:
        """Restart the query when it fails, until the runtime stops, the query fails too often, or it must not continue.

        A failed restart counts as a failure of the query: the disk may still be full.

        Args:
            driver: The driver that the query calls; it knows why it failed.
            progress: Returns a value that changes with each commit and with each death that is noted.
            examine: Finds damaged stores; it is called before each restart.
        """
        tries, failures, last = 0, 0, progress()
        error = self._await_end()
        while not self._stopping.is_set():
            if (now := progress()) != last:
                tries, failures, last = 0, 0, now
            tries += 1
            if self._stopping.wait(min(0.1 * 2 ** min(tries, 10), PAUSE_MAX_S)):
                return
            cause = _cause_of(error, driver, log)
            failures = 0 if is_environmental(cause) else failures + 1
            is_final = isinstance(cause, Fenced | IntegrityError) or java_has_ended()
            if is_final or failures > RESTARTS_MAX:
                raise cause
            _log.warning("the query failed and is restarted", extra={"cause": cause_text(cause)})
            self.restarts += 1
            try:
                if not batches.offered:
                    set_checkpoint_aside(self._checkpoint, cause)
                examine()
                batches.offered = False
                self.begin()
            except Exception as failed:  # noqa: BLE001 -- handled as a failed query
                error = failed
                continue
            if self._stopping.is_set():  # `stop` may have seen the query before
                self.stop()
            error = self._await_end()

    def _await_end(self) -> Exception | None:
        assert self._query is not None
        return await_end(self._query)


def _cause_of(error: Exception | None, driver: EpochDriver, log: Log) -> Exception:
    """Return why the query ended, as precisely as it is known here."""
    if java_has_ended():
        return OperationalError("Spark's Java process has ended; run/java.log has its messages")
    failure, driver.failure = driver.failure, None
    return (
        failure or _log_failure(log) or error or EpochFailed("Spark's query ended without an error")
    )


def _log_failure(log: Log) -> PenstockError | None:
    """Read the log as Spark's source does, whose errors arrive here as text."""
    try:
        for partition in log.partitions:
            log.end(partition)
    except PenstockError as error:
        return error
    return None
