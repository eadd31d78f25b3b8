"""The Spark runtime: one application as one streaming query, supervised.

It stops the query between two epochs. The journal has the committed positions, and Spark's checkpoint is
only a hint: a driver that starts again continues from the journal.

A standby prepares everything that needs no lock (`warm_up`): Spark, workers, and the query, whose first
micro-batch waits. It has a checkpoint of its own. Once it holds the lock, its `start` only reads the head
of the journal, and then the micro-batch goes on.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from pyspark.core.context import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Epoch, Lsn, RequestId
from penstock.deployment.code_in_force import (
    code_in_force,
    load_deployed,
    remove_unpacked,
    spec_to_run,
)
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, EpochFailed, OperationalError, PenstockError
from penstock.files.layout import CHECKPOINT
from penstock.files.roots import snapshots_root
from penstock.journal.api import newest_epoch
from penstock.journal.as_of import PointInTime
from penstock.journal.tail import JournalTail
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.log.pump import Pump
from penstock.log.ticker import Ticker
from penstock.model.application import App
from penstock.model.call import Call, append_of, encoded
from penstock.model.reply import Reply, caller_of
from penstock.model.streams.stream import Stream
from penstock.orders.partitions import partitions_in_force
from penstock.orders.schedules import paused_schedules
from penstock.process import startup
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import DriverClaim
from penstock.process.epoch_report import EpochReport
from penstock.runtime.spark.cluster_jobs import ClusterJobs
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.jvm import Jvm, java_has_ended
from penstock.runtime.spark.maintenance_scheduler import MaintenanceScheduler
from penstock.runtime.spark.messages import ApplyEpoch, Code, WorkerSettings, worker_settings
from penstock.runtime.spark.micro_batches import LogOffsets, MicroBatches, check_log, committed
from penstock.runtime.spark.quarantine import deaths_noted
from penstock.runtime.spark.query import BatchListener, Progress, SupervisedQuery, start_query
from penstock.runtime.spark.scratch import clear_scratch, new_scratch
from penstock.runtime.spark.session import session_of_context, start_context
from penstock.runtime.spark.table import frame_of
from penstock.runtime.spark.watchdog import Watchdog
from penstock.snapshots.snapshot import Snapshots
from penstock.state.stores import Stores

_log = logging.getLogger(__name__)

T = TypeVar("T")

REPLY_TIMEOUT_MS: Final = 60_000


class _Follower:
    """Brings the state of a standby's host to epochs that others commit, in a thread.

    Args:
        bring: Brings the state to the newest epoch, and returns that.
    """

    def __init__(self, bring: Callable[[], Epoch]) -> None:
        self._bring = bring
        self._thread = ThreadPoolExecutor(1, "penstock-follow")
        self._running: Future[None] | None = None
        self._reached = BEFORE_FIRST

    def begin(self, newest: Epoch) -> None:
        """Begin to bring the state to an epoch, unless it is there or on its way."""
        if newest > self._reached and (self._running is None or self._running.done()):
            self._running = self._thread.submit(self._follow)

    def close(self) -> None:
        """End, after the epoch that is on its way."""
        self._thread.shutdown(cancel_futures=True)

    def _follow(self) -> None:
        try:
            self._reached = self._bring()
        except Exception as error:  # noqa: BLE001 -- the start brings the state there, too
            _log.info("the state of this host is behind", extra={"cause": cause_text(error)})


class SparkRuntime:
    """Runs an application on Spark; see `penstock.model.reply.Runtime` for requests.

    Attributes:
        app: The application.
        log: Where requests are appended.
        journal: The committed epochs.
        call: Calls entities: `runtime.call.Item("i1").update_stock(5)`.
        failure: Why the runtime gave up, if it did.
    """

    _supervisor: threading.Thread | None = None
    _tail: JournalTail | None = None

    def __init__(self, spec: str, config: Config, jvm: Jvm | None = None) -> None:
        """Open log and journal.

        Args:
            spec: The application, as for `load_app`.
            config: The settings.
            jvm: The Java process for Spark, which the caller ends; None uses that of this process.

        Raises:
            UserError: The application does not exist, its definition or a setting is wrong, or it has a workflow that
                pauses.
            IntegrityError: Log or journal is damaged.
        """
        self._spec = spec_to_run(config.data, spec)
        self._config = config
        self.app = load_app(spec) if self._spec == spec else load_deployed(config.data, self._spec)
        directory = DataDirectory(config.data)
        directory.create(config.key_service)
        self.journal, self.log = directory.open_journal(self.app), directory.open_log(config)
        self.call = caller_of(self)
        self.failure: BaseException | None = None
        self._listeners: list[Callable[[EpochReport], None]] = [
            lambda report: self._right.tell(report.epoch)
        ]
        self._tail_lock = threading.Lock()
        self._pump = Pump(self.log, self._give_up)
        self._ticker = Ticker(
            config.data, self.log, lambda: paused_schedules(config.data), self._give_up
        )
        self._jobs: Jobs
        self._right = DriverClaim(config.data, self._give_up)
        self._jvm = jvm
        # Of this run alone: workers of a killed run may still write files.
        self._scratch = new_scratch(config.data) if jvm is None else jvm.scratch
        self._watchdog = Watchdog(self._scratch, config.stuck_s)
        self._maintenance: MaintenanceScheduler | None = None
        self._listener: BatchListener | None = None
        self._stopping = threading.Event()
        self._driver: EpochDriver | None = None
        self._checkpoint = config.data.absolute() / CHECKPOINT
        self._query = SupervisedQuery(self._start_query, self._checkpoint, self._stopping)
        self._driving = threading.Event()
        self._follower = _Follower(self._bring)
        self._app_code: Code | None = None
        self._batches: MicroBatches | None = None
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None

    @property
    def on_epoch(self) -> list[Callable[[EpochReport], None]]:
        """Functions that the driver's thread calls with the report of each committed epoch."""
        return self._listeners

    def start(self) -> None:
        """Start Spark and the query; return when requests are processed.

        Raises:
            Fenced: Another driver runs this application.
            Diverged: The log ends before the position that the journal has committed.
            ConfigError: Spark finds no Java that it can run on.
            OperationalError: The disk cannot take the source, or records that the newest epoch appends.
        """
        self._claim()
        is_warm = self._context is not None
        if is_warm:
            self._jobs.use(self._settings())  # another driver may have deployed meanwhile
        else:
            self._examine()  # while Java starts
            self._start_spark()
        self._driver = EpochDriver(self._config, self.log, self.journal, self._jobs, self._scratch)
        self._driver.on_epoch = self._listeners
        self._driver.use_schedules = self._ticker.use
        if not is_warm:
            clear_scratch(self._scratch)  # after the driver has read the notes there
        recovered = self._driver.recover(self._present_app())  # while Spark plans the query
        self._batches = MicroBatches(
            self._driver, self.log, self._config, self._checkpoint, self._stopping
        )
        self._driving.set()
        if not is_warm:
            self._plan_query()
        self._maintenance = MaintenanceScheduler(self._config, self.log, self.journal, self._jobs)
        startup.note(self._config.data, "driver", "workers load the application and the state")
        recovered.result()
        self._driver.append_later()  # of late workflows, from the stores
        supervisor = threading.Thread(None, self._supervise, "penstock-supervisor", daemon=True)
        for part in (self._watchdog, self._pump, self._ticker, self._maintenance, supervisor):
            part.start()
        self._supervisor = supervisor
        if is_warm:
            clear_scratch(self._scratch)
        else:
            self._jobs.start_resident()
        startup.finish(self._config.data, "driver")

    def warm_up(self) -> None:
        """Prepare a start that takes no time: Spark, its workers, and a query that waits for `start`.

        It changes neither the log nor the journal, and it needs no lock, so another driver may run meanwhile.

        Raises:
            ConfigError: Spark finds no Java that it can run on.
            OperationalError: The disk cannot take the files of Spark.
            EpochFailed: A worker cannot load the application.
        """
        self._checkpoint = self._scratch / CHECKPOINT
        self._query = SupervisedQuery(self._start_query, self._checkpoint, self._stopping)
        self._examine()
        self._start_spark(is_standby=True)
        self._app_code = self._spec, BEFORE_FIRST
        self._present_app()  # the source may have changed since its deployment
        self._plan_query()
        self._load_workers()
        self._jobs.start_resident()
        self._follower.begin(newest_epoch(self.journal))
        startup.finish(self._config.data, "driver")

    def _examine(self) -> None:
        startup.note(self._config.data, "driver", "local state is examined")
        damaged = self._stores().examine()
        if damaged:
            _log.warning("local state is rebuilt", extra={"partitions": damaged})

    def _start_spark(self, *, is_standby: bool = False) -> None:
        """Start Spark, without a session.

        Args:
            is_standby: Whether another driver has the hosts of a cluster: then one is enough, and this waits for it.
        """
        startup.note(self._config.data, "driver", "Spark starts")
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._context = start_context(self.app.name, self._config, self._scratch, self._jvm)
        settings, config = self._settings(), self._config
        if config.is_cluster:
            jobs = ClusterJobs(self._context, settings, config, self.log, self._stopping)
            self._jobs = jobs
            startup.note(config.data, "driver", "the hosts of the cluster join")
            jobs.start_resident(is_standby=is_standby)
        else:
            self._jobs = Jobs(self._context, settings, residents=config.residents)
        self._app_code = self._jobs.settings.code

    def _plan_query(self) -> None:
        startup.note(self._config.data, "driver", "Spark plans the query")
        self._session = session_of_context()
        self._listener = BatchListener(self._session)
        self._query.begin()

    def claim(self) -> bool:
        """Ask for the right to be the driver, without a wait; say whether this runtime has it."""
        return self._right.is_got()

    def check_warm(self) -> None:
        """Check that a runtime that has warmed up can still start.

        Raises:
            OperationalError: Java or the query has ended, or the disk fails.
            EpochFailed: A worker cannot load the application.
        """
        if java_has_ended() or not self._query.is_active:
            raise OperationalError("Spark has ended in a standby; run/java.log has its messages")
        self._load_workers()  # Spark ends workers that rest for a minute

    def follow(self) -> None:
        """Begin to bring local state to the newest epoch that the driver of another host has told of, if it is not there.

        A driver of this host brings the same state there itself. An error only costs time.
        """
        self._follower.begin(self._right.newest)

    def _bring(self) -> Epoch:
        """Bring local state to the newest epoch, and load the code that is in force; return the epoch."""
        last = self.journal.last()
        if last is None:
            return BEFORE_FIRST
        self._jobs.use(self._settings())
        count = self._jobs.partitions = partitions_in_force(last, self._config.partitions)
        self._jobs.run([ApplyEpoch(list(range(count)), last.epoch, count)])
        return last.epoch

    def _load_workers(self) -> None:
        """Let workers load the application: one for each partition, and one in reserve."""
        self._jobs.load_application(self._config.partitions + 1)

    def _claim(self) -> None:
        """Get the right to be the driver, and record the classes and the code that run from now on."""
        self._right.get()
        self._follower.close()
        if (last := self.journal.last()) is not None:
            self._right.tell(last.epoch)  # so that processes at rest need not ask for a newer one
        check_log(self.log, self.journal, self._config.data)
        if self._context is None or code_in_force(self._config.data, self.journal) is None:
            self.journal.deploy()
            deploy(self._config.data, self._spec, self.app, self.journal)
            remove_unpacked(self._config.data)

    def submit(self, call: Call[Any]) -> Reply:
        """Append a request and wait for its reply; see `penstock.model.reply.Runtime`."""
        body, hint = encoded(self._present_app(), call)
        request_id = RequestId(str(uuid.uuid4()) if call.request_id is None else call.request_id)
        (lsn,) = self.log.append([Entry(request_id, body, hint, wall_clock_us())])
        return self._followed().wait((ONLY_PARTITION, lsn), REPLY_TIMEOUT_MS)

    def append(
        self, stream: Stream[T] | str, events: Iterable[T], *, request_id: str | None = None
    ) -> Reply:
        """Append events to a stream, as one atom, and wait for the reply: the number of events.

        Args:
            stream: The stream, or its name.
            events: The events of the atom.
            request_id: The id of the append; None for a new id.

        Raises:
            RequestError: The stream does not exist or takes no appends, or an event does not fit its type.
            RequestConflict: The request id was used with other events.
        """
        return self.submit(append_of(stream, events, request_id))

    def table(self, name: str, as_of: PointInTime | None = None) -> DataFrame:
        """Return the entities of a class after an epoch, the newest by default.

        See `penstock.read_table`; this method uses the session of the runtime.
        """
        assert self._session is not None, "the runtime is started"
        if self._config.is_cluster:
            raise ConfigError(
                "the tasks of epochs have all slots of the cluster: read a table with penstock.read_table, in a program "
                "with a Spark session of its own"
            )
        snapshots = Snapshots(snapshots_root(self._config.data), self.journal.identity)
        source = self.journal, snapshots
        return frame_of(self._session, self._present_app(), source, name, as_of, self._scratch)

    def _present_app(self) -> App:
        """Return the application whose code is in force; a deployment has changed it since its last use."""
        if self._app_code and (code := self._jobs.settings.code) != self._app_code:
            self.app, self._app_code = load_deployed(self._config.data, code[0]), code
            self.call = caller_of(self)
        return self.app

    def wait_until(self, lsn: Lsn, timeout_ms: int) -> bool:
        """Block until all records below `lsn` are committed; return False after `timeout_ms`.

        Raises:
            PenstockError: The runtime gave up; see `check`.
        """
        deadline = time.monotonic() + timeout_ms / 1_000
        while (left := deadline - time.monotonic()) > 0:
            if self._followed().wait_until((ONLY_PARTITION, lsn), int(min(left, 0.2) * 1_000) + 1):
                return True
            self.check()
        return False

    def progress(self) -> Progress:
        """Return the newest epoch, the lag in records, and the durations of Spark's newest batch."""
        epoch, positions = committed(self.log, self.journal)
        lag = sum(self.log.end(partition) - at for partition, at in positions.items())
        batch, spark_ms = self._listener.newest() if self._listener else (-1, {})
        return Progress(epoch, lag, batch, spark_ms, self._query.restarts)

    def check(self) -> None:
        """Raise the reason why the runtime gave up, if it did.

        Raises:
            PenstockError: The cause; `EpochFailed` where the cause is another exception.
        """
        if isinstance(self.failure, PenstockError):
            raise self.failure
        if self.failure is not None:
            raise EpochFailed(f"the runtime has stopped: {self.failure}") from self.failure

    def abandon(self) -> None:
        """Let a start that runs in another thread fail soon, by the end of Java; an epoch that runs is committed first."""
        self._stopping.set()  # no batch begins from now on
        if self._jvm is not None and (self._batches is None or self._batches.are_idle):
            self._jvm.kill()

    def stop(self) -> None:
        """Stop after the running epoch is committed; then stop Spark."""
        self._stopping.set()
        self._driving.set()
        startup.finish(self._config.data, "driver")
        if self._maintenance is not None:
            self._maintenance.stop()
        if self._batches is not None:
            self._batches.wait()  # until a running epoch is committed
        self._stop_query()
        if self._driver is not None:
            self._driver.close()
        self._follower.close()
        if self._app_code is not None:  # else the start has failed before
            self._jobs.stop_resident()
        self._watchdog.stop()
        self._pump.stop()
        self._ticker.stop()
        if self._tail is not None:
            self._tail.close()
        self._stop_spark()
        self.journal.close()
        self.log.close()
        self._right.release()

    def _stop_query(self) -> None:
        if self._jvm is not None:
            self._jvm.expect_end()
        if not java_has_ended():
            self._query.stop()
        if self._supervisor is not None:
            self._supervisor.join(timeout=60)

    def _stop_spark(self) -> None:
        if java_has_ended():
            return
        if self._session is not None:
            if self._listener is not None:
                self._listener.close()
            self._session.stop()
        elif self._context is not None:
            self._context.stop()

    def _settings(self) -> WorkerSettings:
        code = code_in_force(self._config.data, self.journal) or (self._spec, BEFORE_FIRST)
        return worker_settings(code[0], self._config, self._scratch, code[1])

    def _stores(self) -> Stores:
        partitions = partitions_in_force(self.journal.last(), self._config.partitions)
        return DataDirectory(self._config.data).open_stores(self.journal, partitions)

    def _start_query(self) -> StreamingQuery:
        assert self._session is not None
        _, positions = committed(self.log, self.journal)
        offsets = LogOffsets(self.log, positions, uuid.uuid4().hex)
        name = f"penstock-{self.app.name}"
        return start_query(self._session, name, offsets, self._checkpoint, self._process)

    def _process(self, batch: int) -> None:
        """Process a micro-batch of the query; in a standby, when it has become the driver."""
        self._driving.wait()
        if self._batches is not None:
            self._batches.process(batch)

    def _supervise(self) -> None:
        """Keep the query running; report an error to all callers that wait."""
        assert self._driver is not None
        assert self._batches is not None
        examine = self._stores().examine
        try:
            self._query.keep_running(self._driver, self._batches, self.log, self._progress, examine)
        except Exception as error:  # noqa: BLE001 -- the thread has no caller
            self._give_up(error)

    def _progress(self) -> tuple[Epoch, int]:
        """Return a value that changes with each commit and with each death that is noted."""
        assert self._driver is not None
        return self._driver.epoch, deaths_noted(self._scratch)

    def _give_up(self, cause: BaseException) -> None:
        self.failure = cause
        _log.error("the runtime stops", extra={"cause": str(cause)})
        with self._tail_lock:
            if self._tail is not None:
                self._tail.fail(_stopped(cause))

    def _followed(self) -> JournalTail:
        """Return the tail of the journal, which follows it from the first call on."""
        # A driver whose callers are other processes has none: it would sync each commit a second time, just when the reply
        # can leave.
        with self._tail_lock:
            if self._tail is None:
                directory = DataDirectory(self._config.data)
                self._tail = JournalTail(directory.resting(self.journal, self.log))
                if self.failure is not None:
                    self._tail.fail(_stopped(self.failure))
            return self._tail


def _stopped(cause: BaseException) -> EpochFailed:
    return EpochFailed(f"the runtime has stopped: {cause_text(cause)}")
