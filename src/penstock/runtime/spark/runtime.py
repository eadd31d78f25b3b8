"""The Spark runtime: one application as one streaming query, supervised.

Starts Spark, drives the query whose every batch is one epoch, restarts it when it fails, and stops
it between two epochs. The journal says what is done; Spark's checkpoint is only a hint, and a
driver that starts anew goes on from the journal.
"""

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.errors import EpochFailed, Fenced, IntegrityError
from penstock.journal.delta import DeltaJournal
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.runtime.api import Caller, Reply
from penstock.runtime.config import Config
from penstock.runtime.loading import load_app
from penstock.runtime.replies import Replies
from penstock.runtime.report import EpochReport
from penstock.runtime.spark.boot import boot_id
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.orders import Settings
from penstock.runtime.spark.session import start_session
from penstock.runtime.spark.source import NAME, LogSource, positions_of, source_options
from penstock.state.stores import Stores

_log = logging.getLogger(__name__)

RESTARTS_MAX: Final = 5
"""Failures in a row, without an epoch between them, after which the runtime gives up."""

REPLY_TIMEOUT_MS: Final = 60_000


class SparkRuntime:
    """Runs an application on Spark; see `penstock.runtime.api.Runtime` for requests.

    Attributes:
        app: The application.
        log: Where requests are appended.
        journal: What was committed.
        call: Calls entities as one writes it: `runtime.call.Item("i1").update_stock(5)`.
        failure: Why it runs no more, if it gave up.
    """

    def __init__(self, spec: str, config: Config) -> None:
        """Open log and journal; `spec` says where the application is (`load_app`).

        Raises:
            UserError: There is no such application, or its definition or a setting is wrong.
            IntegrityError: Log or journal is damaged.
        """
        self._spec = spec
        self._config = config
        self.app = load_app(spec)
        config.data.mkdir(parents=True, exist_ok=True)
        self.log = SqliteLog(
            config.data / "log.sqlite",
            record_bytes_max=config.record_bytes_max,
            retention_s=config.retention_s,
        )
        self.journal = DeltaJournal(config.data / "journal", self.app.name)
        self.call = Caller(self)
        self.failure: BaseException | None = None
        self._listeners: list[Callable[[EpochReport], None]] = []
        self._replies = Replies(self.journal)
        self._busy = threading.Lock()
        self._stopping = threading.Event()
        self._driver: EpochDriver | None = None
        self._session: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._supervisor: threading.Thread | None = None

    @property
    def on_epoch(self) -> list[Callable[[EpochReport], None]]:
        """Called with the report of each committed epoch, in the driver's thread."""
        return self._listeners

    def start(self) -> None:
        """Start Spark and the query; returns when requests are being processed."""
        scratch = self._config.data / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        self._session = start_session(self.app.name, self._config)
        self._session.dataSource.register(LogSource)
        damaged = self._stores().examine()
        if damaged:
            _log.warning("local state is rebuilt", extra={"partitions": damaged})
        self._jobs = Jobs(self._session, self._settings())
        self._driver = EpochDriver(self._config, self.log, self.journal, self._jobs)
        self._driver.on_epoch = self._listeners
        self._query = self._start_query()
        self._supervisor = threading.Thread(
            target=self._supervise, name="penstock-supervisor", daemon=True
        )
        self._supervisor.start()

    def submit(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> Reply:
        """Append a request and wait for its reply; see `penstock.runtime.api.Runtime`."""
        body, touches = self.app.request(entity, key, method, positional, named)
        chosen = RequestId(str(uuid.uuid4()) if request_id is None else request_id)
        (lsn,) = self.log.append([Entry(chosen, body, touches, time.time_ns() // 1_000)])
        return self._replies.wait((LogPartition(0), lsn), REPLY_TIMEOUT_MS)

    def wait_until(self, lsn: Lsn, timeout_ms: int) -> bool:
        """Block until everything below `lsn` is committed; False when time is up.

        Raises:
            EpochFailed: The runtime gave up.
        """
        deadline = time.monotonic() + timeout_ms / 1_000
        while (left := deadline - time.monotonic()) > 0:
            if self._replies.wait_until((LogPartition(0), lsn), int(min(left, 0.2) * 1_000) + 1):
                return True
            self.check()
        return False

    def check(self) -> None:
        """Raise what made the runtime give up, if it did."""
        if self.failure is not None:
            raise EpochFailed(f"the runtime has stopped: {self.failure}") from self.failure

    def stop(self) -> None:
        """Stop after the epoch that runs, which is committed; then stop Spark."""
        self._stopping.set()
        with self._busy:
            pass  # an epoch that runs holds the lock until it is committed
        if self._query is not None:
            self._query.stop()
        if self._supervisor is not None:
            self._supervisor.join(timeout=60)
        if self._driver is not None:
            self._driver.close()
        self._replies.close()
        if self._session is not None:
            self._session.stop()
        self.journal.close()
        self.log.close()

    def _settings(self) -> Settings:
        config = self._config
        return Settings(
            self._spec,
            str(config.data.absolute()),
            config.partitions,
            config.limits,
            config.record_bytes_max,
            config.retention_s,
            config.fault,
        )

    def _stores(self) -> Stores:
        return Stores(
            self._config.data / "state", self.journal, self._config.partitions, boot_id=boot_id()
        )

    def _start_query(self) -> StreamingQuery:
        assert self._session is not None
        assert self._driver is not None
        options = source_options(
            self._config.data / "log.sqlite",
            self._driver.positions,
            run=uuid.uuid4().hex,
            epoch_records_max=self._config.epoch_records_max,
            epoch_bytes_max=self._config.epoch_bytes_max,
            poll_ms=self._config.poll_ms,
        )
        self._checkpoint = self._config.data / "checkpoint"
        return (
            self._session.readStream.format(NAME)
            .options(**options)
            .load()
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(self._checkpoint.absolute()))
            .queryName(f"penstock-{self.app.name}")
            .start()
        )

    def _on_batch(self, _frame: DataFrame, batch: int) -> None:
        """Process one batch of Spark's; the frame is never used, so it starts no job."""
        assert self._driver is not None
        with self._busy:
            if self._stopping.is_set():
                return
            offsets = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
            self._driver.advance(positions_of(offsets[-1]))
            self._driver.before_spark_commit()

    def _supervise(self) -> None:
        """Restart the query when it fails, until it fails too often or must not go on."""
        failures, epoch = 0, self._driver.epoch if self._driver else None
        while not self._stopping.is_set():
            assert self._query is not None
            assert self._driver is not None
            error = self._await_end(self._query)
            if self._stopping.is_set():
                return
            if self._driver.epoch != epoch:
                failures, epoch = 0, self._driver.epoch
            failures += 1
            cause = self._driver.failure or error
            if isinstance(cause, Fenced | IntegrityError) or failures > RESTARTS_MAX:
                self.failure = cause
                _log.error("the runtime stops", extra={"cause": str(cause)})
                return
            _log.warning("the query failed and is restarted", extra={"cause": str(cause)[:500]})
            time.sleep(min(0.1 * 2**failures, 5.0))
            self._stores().examine()
            self._query = self._start_query()

    @staticmethod
    def _await_end(query: StreamingQuery) -> BaseException | None:
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 -- whatever ended the query, it is to be restarted
            return error
        return None
