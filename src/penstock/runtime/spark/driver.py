"""The driver of epochs: plan, run rounds, commit and apply, one epoch at a time.

An epoch exists when the commit of the journal is durable, and is reported to no listener before. The
driver holds hashes and counts only. Supervision and Spark's query belong to `runtime`.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Epoch, LogPartition, Lsn
from penstock.engine.access_memory import FirstRounds
from penstock.engine.failure import internal
from penstock.engine.streams.late_flows import subscriptions
from penstock.engine.streams.published_rows import first_pieces
from penstock.errors import (
    Diverged,
    EpochFailed,
    Fenced,
    JournalUnavailable,
    OperationalError,
    PenstockError,
    Truncated,
)
from penstock.files.durable import storage
from penstock.files.roots import journal_root
from penstock.journal.api import Commit, Journal, PartKind, UnclearCommit
from penstock.journal.deployments import Deployments
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.request import encode_failure
from penstock.model.schedule import Schedule
from penstock.orders.partitions import partitions_in_force
from penstock.process.config import Config
from penstock.process.disk_space import check_space, tells_of_full_disk
from penstock.process.epoch_report import EpochReport, calls_of, total_of
from penstock.process.fault import Fault
from penstock.process.held_lines import write_held
from penstock.process.incidents import IncidentLog, incident_of
from penstock.runtime.spark.control import ControlEffect, ControlEpochs
from penstock.runtime.spark.division import DEATHS_MAX, Division
from penstock.runtime.spark.erasing import Eraser
from penstock.runtime.spark.executors import executors_of
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.late_subscribers import LateSubscribers
from penstock.runtime.spark.later_records import LaterRecords
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    LogRange,
    RunTransactions,
    TaskResult,
    first_not_run,
    first_requests,
    request_count,
)
from penstock.runtime.spark.parallelism import ParallelismPolicy, planned
from penstock.runtime.spark.quarantine import condemned_in
from penstock.runtime.spark.round_files import UsedFiles
from penstock.runtime.spark.rounds import Overflow, Rounds, Stopwatch


class StoreUpdates:
    """Brings the stores to committed epochs, in a thread of its own."""

    def __init__(self, config: Config, jobs: Jobs, scratch: Path) -> None:
        self._config = config
        self._jobs = jobs
        self._used = UsedFiles(config, scratch)
        self._thread = ThreadPoolExecutor(1, "penstock-apply")
        self._running: Future[None] | None = None

    def recover(self, epoch: Epoch) -> Future[None]:
        """Begin to bring all stores to the newest epoch, which another driver may have committed."""
        self._running = self._thread.submit(self._recover, epoch)
        return self._running

    def begin(self, epoch: Epoch, count: int, tasks: int) -> None:
        """Bring the stores to an epoch of `count` records, and delete the temporary files of its tasks."""
        # The resident task applies a small epoch, or else the next epoch's task, which costs less than a job.
        is_small = count <= self._config.small_epoch
        by_several = tasks > 1 or not is_small or self._config.large_atom > 0

        def apply() -> None:
            if not is_small:
                self._jobs.apply(self._commands(epoch))
            self._used.remove(epoch, by_several=by_several)

        if is_small:
            self._jobs.apply_resident(epoch)
        if by_several:
            self._running = self._thread.submit(apply)
            return
        # To wake the thread would take longer than to look at a few names of this host.
        self._running = Future()
        try:
            apply()
        except Exception as error:  # noqa: BLE001 -- `wait` raises it
            self._running.set_exception(error)
        else:
            self._running.set_result(None)

    def wait(self) -> None:
        """Wait for the work that was begun last, and raise its error."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def settle(self) -> None:
        """Wait for the work that was begun last; workers that have died leave it to the next epoch."""
        try:
            self.wait()
        except PenstockError:
            raise
        except Exception as error:  # noqa: BLE001 -- Spark says in its own way that workers have died
            extra = {"cause": cause_text(error)}
            _log.warning("state is not ready; the next epoch brings it up to date", extra=extra)

    def close(self) -> None:
        """Wait for the work, and end the thread."""
        self._thread.shutdown(wait=True)

    def _commands(self, epoch: Epoch) -> Sequence[ApplyEpoch]:
        count = self._jobs.partitions
        return [ApplyEpoch([partition], epoch, count) for partition in range(count)]

    def _recover(self, epoch: Epoch) -> None:
        began = time.perf_counter()
        try:
            self._jobs.apply(self._commands(epoch))
        except OperationalError as error:
            _log.warning("state is not ready yet", extra={"cause": str(error)})
            return
        self._used.remove_old()
        spent_s = round(time.perf_counter() - began, 3)
        _log.info("state is ready", extra={"epoch": epoch, "seconds": spent_s})


_log = logging.getLogger(__name__)

_TRIES: Final = 3
"""How often a request must fail alone like the environment before it counts as the cause."""

ATTEMPT: Final = "attempt.json"
"""The file in the data directory that notes the newest attempt at an epoch."""


class _NotCommitted(JournalUnavailable):
    """The journal did not take an epoch; its handlers had ended, so none of its requests is the cause."""


def _ignore(_: Sequence[Schedule]) -> None:
    """Take schedules of an application whose ticks a test appends."""


class EpochDriver:
    """Runs epochs of one application, in order, each to its commit.

    Attributes:
        on_epoch: Called with the report of each committed epoch.
        use_schedules: Takes the schedules of the code that runs from now on.
        failure: The `PenstockError` that the last call of `advance` raised, if any.
        late: Subscribes workflows that begin with earlier atoms.
    """

    _unclear: tuple[Commit, int, ControlEffect | None] | None = None
    """A commit whose outcome is unknown, with the number of its records, and the effect of its control record."""

    _deployment: str | None = None
    """The name of the deployment that executes the next epoch; None if it is not known yet."""

    _lines: Sequence[bytes] = ()
    """The lines of handlers in the epoch that is being committed."""

    use_schedules: Callable[[Sequence[Schedule]], None] = staticmethod(_ignore)

    def __init__(
        self, config: Config, log: Log, journal: Journal, jobs: Jobs, scratch: Path
    ) -> None:
        """Continue after the newest epoch of the journal.

        Args:
            journal: The journal, where the driver commits epochs.
        """
        self._config = config
        self._log = log
        self._journal = journal
        self.failure: PenstockError | None = None
        self._jobs = jobs
        self._fault = Fault(config.fault)
        self._incidents = IncidentLog(config.data)
        self._division = Division(config.data / ATTEMPT, config.epoch_records_max)
        self._rounds = Rounds(jobs, self._fault, config, scratch)
        self._stores = StoreUpdates(config, jobs, scratch)
        self._scratch = scratch
        self._condemned = 0  # positions of the current epoch that the quarantine excludes
        self._idle_since = time.perf_counter()
        self.on_epoch: list[Callable[[EpochReport], None]] = []
        last = journal.last()
        jobs.partitions = partitions_in_force(last, config.partitions)
        # The relay of two passes that overlap is a file of one host.
        self._parallelism = ParallelismPolicy(
            config.small_epoch,
            config.large_atom,
            config.epoch_time_ms,
            overlaps=not config.is_cluster,
        )
        self._first_rounds = FirstRounds()
        self.late = LateSubscribers(config, log, journal)
        self._eraser = Eraser(config.data, journal.identity)
        executors = executors_of(
            config, jobs, self.late, lambda: self._atoms, self._eraser, self._scheduled
        )
        self.controls = ControlEpochs(config, log, executors)
        self._epoch = BEFORE_FIRST if last is None else last.epoch
        self._time_us = 0 if last is None else last.time_us
        self._atoms: dict[str, int] = {} if last is None else dict(last.atoms)
        self._positions: dict[LogPartition, Lsn] = dict.fromkeys(log.partitions, Lsn(0))
        self._positions.update({} if last is None else last.positions)
        self._later = LaterRecords(log, journal, last, config.retention_s, self.late.fill)
        self._division.recall(self._epoch, scratch.parent)

    def _check_log(self) -> None:
        """Check that the log still has the last record of the newest epoch.

        Raises:
            Diverged: It has another record, or none: requests that were acknowledged may be lost.
        """
        last, position = self._journal.last(), self._positions[ONLY_PARTITION]
        checksum = self._log.checksum(Lsn(position - 1)) if position else ""
        if (
            last is not None
            and last.record_checksum
            and checksum
            and checksum != last.record_checksum
        ):
            raise Diverged(
                f"the log has another record at {position - 1} than epoch {last.epoch} has processed: it has lost its end, and "
                "others were appended; restore a backup, or copy log.sqlite from a host that has the former records"
            )

    def recover(self, app: App) -> Future[None]:
        """Append the later records that the log may lack, and begin to bring all stores to the newest epoch.

        Python workers load the application meanwhile. An error of the stores is only logged.

        Raises:
            Diverged: The log has lost its end.
            OperationalError: The disk fails.
        """
        self._check_log()
        self._eraser.finish(self._epoch)
        since = self._jobs.settings.since
        self.late.watch(subscriptions(app.topology), first_pieces(app.topology, since))
        self._scheduled(list(app.schedules.values()))
        self._later.append()
        return self._stores.recover(self._epoch)

    def _scheduled(self, schedules: Sequence[Schedule]) -> None:
        self.use_schedules(schedules)

    @property
    def positions(self) -> dict[LogPartition, Lsn]:
        """For each log partition the position after the committed records."""
        return dict(self._positions)

    @property
    def epoch(self) -> Epoch:
        """The newest committed epoch."""
        return self._epoch

    def advance(
        self, upto: dict[LogPartition, Lsn], stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Process the log from the committed positions up to `upto`, in epochs within the limits.

        The last epoch also takes records beyond `upto`, as far as it has room for them.
        Records that are committed already are skipped: Spark may offer a batch again. An epoch that
        fails is tried again in halves. So an epoch that was too large for memory or disk succeeds in
        pieces, and a request that fails every epoch is isolated: it is recorded as failed, with the
        code `internal`, and all other requests are processed.

        Args:
            upto: The position to reach, for each log partition.
            stopping: Asked before each epoch; True ends the call early.

        Raises:
            Fenced: Another driver has committed this epoch.
        """
        self.failure = None
        try:
            self._ask_again()
            self.controls.switch()
            self.append_later()
            while not stopping() and (ranges := self._ranges(upto)):
                self._fault.reached("offsets-planned")
                if self._division.deaths >= DEATHS_MAX:
                    self._set_aside(ranges, EpochFailed("each driver died that ran it alone"))
                elif self.controls.is_control(ranges):
                    self._control(ranges)
                else:
                    self._attempt(ranges)
        except PenstockError as error:
            self.failure = error  # Spark passes on only its text
            raise type(error)(cause_text(error)) from None

    def _control(self, ranges: list[LogRange]) -> None:
        """Run an epoch that is a control record; its effect is in force from the commit on."""
        epoch, clock = Epoch(self._epoch + 1), Stopwatch(self._idle_since)
        self._stores.settle()  # dead workers must not end the query
        clock.lap("apply")
        self._division.begin(epoch, 1)
        try:
            result, effect = self.controls.prepare(epoch, ranges)
        except PenstockError:
            raise
        except Exception as error:  # noqa: BLE001 -- the record must not stop all later ones
            self._set_aside(ranges, error)
            return
        clock.lap("round1")
        self._fault.reached("control-prepared")
        self._commit(epoch, ranges, 1, [result], effect)
        self._fault.reached("control-committed")
        self.controls.switch(effect)
        self._fault.reached("control-switched")
        clock.lap("commit")
        self._conclude(epoch, 1, 1, clock.total_s, effect.changed)
        self._tell(
            EpochReport(
                epoch=epoch,
                time_us=wall_clock_us(),
                records=1,
                aborts=result.aborts,
                failed=result.failed,
                phases_ms=clock.phases_ms,
            )
        )

    def _attempt(self, ranges: list[LogRange]) -> None:
        """Run an epoch; where it fails, make the next attempt a smaller one."""
        try:
            self._run(ranges)
        except (Fenced, UnclearCommit, _NotCommitted):
            raise
        except Overflow:  # nothing is lost: the same range runs again, in one task
            self._parallelism.overflowed()
        except Exception as error:
            if self._is_committed(ranges):  # the work behind the commit has failed
                raise
            if (condemned := condemned_in(self._scratch, self._epoch + 1)) > self._condemned:
                self._condemned = condemned  # the next attempt runs without this position
                return
            self._division.failed(count := request_count(ranges))
            extra = {"epoch": self._epoch + 1, "records": count, "cause": cause_text(error)}
            _log.warning("an epoch failed and is divided", extra=extra)
            if count == 1:
                self._judge(ranges, error)

    def _judge(self, ranges: list[LogRange], error: Exception) -> None:
        """Set aside a request that fails alone, if the request itself is the cause.

        A handler that closes files or replaces functions of its process looks like a disk failure,
        and a disk failure looks like such a handler. So the epoch first runs without its handler: if
        that succeeds, and the handler then fails again, the environment is not the cause.

        The run without the handler needs less disk, so the disk must have some more. Where hosts give each other rows, it asks for a
        row of each partition, and so fails if one is out of reach. Space or a host may come back just then, so a request that fails
        like the environment has several tries.

        Raises:
            OperationalError: The environment is the cause; the next call of `advance` tries again.
        """
        for _ in range(_TRIES):
            with storage("run an epoch"):
                check_space(self._config.data)
            self._jobs.run([self._decided(ranges, encode_failure(internal("")))])
            try:
                self._run(ranges)
            except (Fenced, UnclearCommit, _NotCommitted):
                raise
            except Exception as again:
                if self._is_committed(ranges):
                    raise
                _log.warning("a request fails alone", extra={"cause": cause_text(again)})
                if not (isinstance(again, OperationalError) or tells_of_full_disk(again)):
                    break
            else:
                return
        self._set_aside(ranges, error)

    def _is_committed(self, ranges: list[LogRange]) -> bool:
        """Say whether the requests of an epoch have their outcome: run again, they would take effect twice."""
        return any(part.start < self._positions[part.partition] for part in ranges)

    def _set_aside(self, ranges: list[LogRange], error: Exception) -> None:
        """Record a request as failed without running it, and report an incident."""
        self._eraser.forget(self._epoch)
        (record,) = self._log.read(ranges[0].start, ranges[0].end, ranges[0].partition)
        incident = incident_of(Epoch(self._epoch + 1), record, error)
        self._run(ranges, encode_failure(internal(incident.incident)))
        _log.error("a request is set aside", extra=msgspec.structs.asdict(incident))
        self._incidents.add(incident)

    def _decided(self, ranges: list[LogRange], failure: bytes) -> RunTransactions:
        """Return the command that records the failure of one request without running it."""
        return RunTransactions(
            Epoch(self._epoch + 1), 1, 0, ranges, None, tracked=False, keep=False, publish=True,
            outputs=[], output_bytes_max=len(failure), decided={0: failure}, atoms=self._atoms,
            with_steps=True, partitions=self._jobs.partitions,
        )  # fmt: skip

    def append_later(self, took_s: float = 0.0) -> None:
        """Append the records that the newest epoch, which took so many seconds, appends to the log, unless they are there.

        Raises:
            OperationalError: The log or the journal fails; the next call tries again.
        """
        self._later.append(took_s)
        self.late.append()

    def before_spark_commit(self) -> None:
        """Mark the step between the journal's commit and Spark's, for fault injection."""
        self._fault.reached("before-spark-commit")

    def close(self) -> None:
        """Wait for the work in the background."""
        self._stores.close()
        self.controls.close()

    def _ranges(self, upto: dict[LogPartition, Lsn]) -> list[LogRange]:
        """Return the ranges of the next epoch; this is the only place that limits its size.

        Records that are left wait for the epoch after it, which runs while callers get their replies to this one.
        """
        ranges = []
        for partition, end in sorted(upto.items()):
            start = self._positions[partition]
            if start >= end:
                continue
            if start < (oldest := self._log.start(partition)):
                raise Truncated(
                    f"the log starts at {oldest}, but the journal has committed up to {start} "
                    f"only: requests {start} to {oldest - 1} are lost"
                )
            width = self._parallelism.width(self._division.width)
            limit = self._log.limit(start, width, self._config.epoch_bytes_max)
            if limit > start:  # else the offset is of a log that was longer
                ranges.append(LogRange(partition, start, limit))
        return ranges[:1] if self._division.suspects else ranges

    def _run(self, ranges: list[LogRange], failure: bytes = b"") -> None:
        """Run an epoch to its commit; with a `failure`, its only request is recorded as failed."""
        epoch = Epoch(self._epoch + 1)
        clock = Stopwatch(self._idle_since)
        count = request_count(ranges)
        assert count > 0, "an epoch has requests"
        plan = self._parallelism.plan(count, 1 if failure else self._jobs.tasks_max)
        run = planned(self._log, ranges, plan.tasks, self._first_rounds)
        clock.lap("read")
        self._stores.wait()
        clock.lap("apply")
        self._fault.reached("log-read")
        self._division.begin(epoch, count)
        every: list[TaskResult] = []
        results: list[TaskResult] = []
        if failure:
            results = self._jobs.run([self._decided(ranges, failure)])
        elif plan.overlapped:
            every = results = self._rounds.run_overlapped(epoch, ranges, run, clock, self._atoms)
        else:
            for results in self._rounds.run(
                epoch, ranges, run, clock, self._atoms, divided=plan.divided
            ):
                every += [result for result in results if id(result) not in map(id, every)]
        if (stopped_at := first_not_run(results)) is not None:
            ranges, count = first_requests(ranges, stopped_at), stopped_at
        self._commit(epoch, ranges, count, results)
        clock.lap("commit")
        samples = [result.samples for result in every]
        self._parallelism.learn(count, plan.tasks, run.reran, every)
        self._conclude(epoch, count, plan.tasks, clock.total_s)
        self._tell(
            EpochReport(
                epoch=epoch,
                time_us=wall_clock_us(),
                records=count,
                aborts=sum(result.aborts for result in results),
                failed=sum(result.failed for result in results),
                rounds=run.rounds,
                reran=run.reran,
                tasks=plan.tasks,
                phases_ms=clock.phases_ms,
                calls=calls_of([result.roots for result in results], samples),
                atoms=total_of(result.atoms for result in results),
                events=total_of(result.events for result in results),
                incidents=1 if failure else 0,
            )
        )
        # While the stores take the epoch:
        self._first_rounds.learn(run, [result.mentions() for result in every])

    def _conclude(
        self, epoch: Epoch, count: int, tasks: int, took_s: float, changed: int = 0
    ) -> None:
        """Do the work after the commit of an epoch with `count` records, which took so many seconds.

        Args:
            changed: How many entities a control record has changed.
        """
        self._division.committed(count)
        self._condemned = 0
        self.append_later(took_s)
        self._fault.reached("later-appended")
        self._stores.begin(epoch, max(count, changed), tasks)

    def _commit(
        self,
        epoch: Epoch,
        ranges: list[LogRange],
        count: int,
        results: list[TaskResult],
        effect: ControlEffect | None = None,
    ) -> None:
        """Commit the parts; on return the epoch is durable.

        Args:
            count: Their number.
            effect: That of the control record which is this epoch.
        """
        parts = tuple(part for result in results for part in result.parts)
        answered = sum(part.rows for part in parts if part.kind is PartKind.TRANSACTIONS)
        if answered != count:
            raise Diverged(f"epoch {epoch} has {count} requests and {answered} replies")
        assert not self._is_committed(ranges), "an epoch begins where the one before it has ended"
        reached = {**self._positions, **{part.partition: part.end for part in ranges}}
        self._fault.reached("before-commit")
        # Never before the previous epoch's time, because `AS OF TIMESTAMP` relies on the order.
        self._time_us = max(self._time_us, wall_clock_us())
        atoms = total_of([self._atoms, *(result.atoms for result in results)])
        partitions = (effect and effect.partitions) or self._jobs.partitions
        checksum = self._log.checksum(Lsn(reached[ONLY_PARTITION] - 1))
        if self._deployment is None or effect is not None:  # else no deployment can have come
            deployments = Deployments(journal_root(self._config.data))
            self._deployment = deployments.name_at(Epoch(epoch + 1))
        name = self._deployment
        commit = Commit(epoch, reached, parts, self._time_us, atoms, partitions, checksum, name)
        self._lines = [run for result in results for run in result.lines]
        self._put(commit, count, effect)

    def _put(self, commit: Commit, count: int, effect: ControlEffect | None) -> None:
        """Commit an epoch, and go on from there; remember it if its outcome stays unknown."""
        try:
            self._journal.commit(commit)
        except UnclearCommit:
            self._unclear = commit, count, effect
            raise
        except JournalUnavailable as error:
            raise _NotCommitted(str(error)) from error
        self._unclear = None
        self._fault.reached("after-commit")
        lines, self._lines = self._lines, ()
        try:
            write_held(lines)
        except Exception:  # noqa: BLE001 -- the epoch is committed, also if its lines are lost
            _log.exception("lines of handlers are lost", extra={"epoch": commit.epoch})
        self._epoch = commit.epoch
        self._positions = dict(commit.positions)
        self._atoms = dict(commit.atoms)
        self._later.owe(commit)

    def _ask_again(self) -> None:
        """Commit the epoch whose outcome is unknown once more, with the same bytes: run again, it would have other ones.

        Its outcome then is known, and if it was committed before, this driver is not fenced by itself.
        """
        if self._unclear is not None:
            commit, count, effect = self._unclear
            self._put(commit, count, effect)
            if effect is not None:
                self.controls.switch(effect)
            self._division.committed(count)
            self._condemned = 0
            self._stores.begin(commit.epoch, count, self._jobs.partitions)

    def _tell(self, report: EpochReport) -> None:
        for listener in self.on_epoch:
            try:
                listener(report)
            except Exception:  # noqa: BLE001 -- the epoch is committed, also if a listener fails
                _log.exception("a listener of epochs failed", extra={"epoch": report.epoch})
        self._idle_since = time.perf_counter()
