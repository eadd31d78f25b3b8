"""The streaming query of a runtime, which is started again when it fails.

The runtime supplies the function that starts a query. This module decides when that function is called,
and when the failures are too many.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from penstock.base.cause import cause_text
from penstock.errors import EpochFailed, Fenced, IntegrityError, OperationalError, PenstockError
from penstock.log.api import Log
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.jvm import java_has_ended
from penstock.runtime.spark.micro_batches import MicroBatches
from penstock.runtime.spark.query import await_end, is_environmental, set_checkpoint_aside

_log = logging.getLogger(__name__)

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
    """

    def __init__(
        self, start: Callable[[], StreamingQuery], checkpoint: Path, stopping: threading.Event
    ) -> None:
        """Start nothing yet.

        Args:
            stopping: Is set when the runtime stops; then no query starts.
        """
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

        Raises:
            Exception: The failure after which no query starts.
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
