"""The driver of epochs: read, rounds, write, commit, apply; one epoch at a time.

What it promises: an epoch exists when the journal's commit is durable, and not before; nobody is
told earlier. It holds hashes and counts only. Supervision and Spark's query are `runtime`'s part.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.engine.calls import Sample
from penstock.engine.failure import internal
from penstock.engine.order import spread
from penstock.engine.step import EpochRun
from penstock.errors import (
    Diverged,
    EpochFailed,
    Fenced,
    OperationalError,
    PenstockError,
    Truncated,
)
from penstock.journal.api import Commit, Journal, PartKind
from penstock.log.api import Log
from penstock.model.request import encode_failure
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport, calls_of
from penstock.process.fault import Fault
from penstock.process.incidents import IncidentLog, incident_of
from penstock.runtime.spark.division import DEATHS_MAX, Division
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    LogRange,
    RoundOutput,
    RunTransactions,
    TaskResult,
    first_not_run,
    first_requests,
    pack_positions,
    request_count,
)
from penstock.runtime.spark.parallelism import ParallelismPolicy
from penstock.runtime.spark.quarantine import condemned_in
from penstock.runtime.spark.stopwatch import Stopwatch

_log = logging.getLogger(__name__)

ATTEMPT: Final = "attempt.json"
"""Where the newest attempt at an epoch is noted, in the data directory."""


class EpochDriver:
    """Runs epochs of one application, in order, each to its commit.

    Attributes:
        on_epoch: Called with the report of each committed epoch.
        failure: What the last call of `advance` raised, if it raised one of ours.
    """

    def __init__(
        self, config: Config, log: Log, journal: Journal, jobs: Jobs, scratch: Path
    ) -> None:
        """Go on after the journal's newest epoch; `scratch` is of this run alone."""
        self._config = config
        self._log = log
        self._journal = journal
        self.failure: PenstockError | None = None
        self._jobs = jobs
        self._fault = Fault(config.fault)
        self._pacing = ParallelismPolicy(config.partitions, config.small_epoch)
        self._incidents = IncidentLog(config.data)
        self._division = Division(config.data / ATTEMPT, config.epoch_records_max)
        self._beside = ThreadPoolExecutor(1, "penstock-apply")
        self._applied: Future[None] | None = None
        self._scratch = scratch
        self._condemned = 0  # by the notes of the epoch that runs
        self._idle_since = time.perf_counter()
        self.on_epoch: list[Callable[[EpochReport], None]] = []
        last = journal.last()
        self._epoch = BEFORE_FIRST if last is None else last.epoch
        self._time_us = 0 if last is None else last.time_us
        self._positions: dict[LogPartition, Lsn] = {
            partition: Lsn(0) for partition in log.partitions
        }
        if last is not None:
            self._positions.update(last.positions)
        self._division.recall(self._epoch, scratch.parent)

    def recover(self) -> Future[None]:
        """Begin to bring all stores to the newest epoch, side by side; the first epoch waits for that.

        Python workers load the application meanwhile, also where there is nothing to be recovered.
        Only where the surroundings fail does this end well without: then the first epoch tries again.
        """
        self._applied = self._beside.submit(self._recover)
        return self._applied

    @property
    def positions(self) -> dict[LogPartition, Lsn]:
        """For each log partition the position after what is committed."""
        return dict(self._positions)

    @property
    def epoch(self) -> Epoch:
        """The newest committed epoch."""
        return self._epoch

    def advance(self, upto: dict[LogPartition, Lsn]) -> None:
        """Process the log from what is committed up to `upto`, in as many epochs as limits ask.

        What the journal has committed already is skipped: a batch that Spark offers again. An epoch
        that fails is tried again in halves. So one that was too large for memory or disk gets
        through in pieces, and a request that stops every epoch that holds it comes to stand alone.
        It is then recorded as failed, with the code `internal`, and everything else goes on.

        Raises:
            Fenced: Another driver has committed this epoch.
            Truncated: The log no longer holds what is still to be processed.
            PenstockError: The surroundings fail: disk, log, journal, state, Spark.
        """
        self.failure = None
        try:
            while ranges := self._ranges(upto):
                self._fault.reached("offsets-planned")
                if self._division.deaths >= DEATHS_MAX:
                    self._set_aside(ranges, EpochFailed("each driver died that ran it alone"))
                else:
                    self._attempt(ranges)
        except PenstockError as error:
            self.failure = error  # Spark would hand on its text only
            raise type(error)(str(error)[:500]) from None

    def _attempt(self, ranges: list[LogRange]) -> None:
        """Run an epoch; where it fails, see to it that the next attempt is a smaller one.

        Raises:
            PenstockError: The surroundings fail.
        """
        try:
            self._run(ranges)
        except Fenced:
            raise
        except _Overflow:  # nothing is lost: the same range runs again, in one task
            self._pacing.overflowed()
        except Exception as error:  # noqa: BLE001 -- whatever it is, a smaller epoch may get through
            if (condemned := condemned_in(self._scratch, self._epoch + 1)) > self._condemned:
                self._condemned = condemned  # the quarantine gets on with this epoch as it is
                return
            self._division.failed(count := request_count(ranges))
            extra = {"epoch": self._epoch + 1, "records": count, "cause": str(error)[:500]}
            _log.warning("an epoch failed and is divided", extra=extra)
            if count == 1:
                self._judge(ranges, error)

    def _judge(self, ranges: list[LogRange], error: Exception) -> None:
        """Set aside a request that fails alone, if it is the request that makes it fail.

        What a handler does to its process (it closes files, it replaces functions) may look like a
        disk that fails, and a disk that fails like a handler. So the same epoch is run without the
        handler: where that works, and the handler fails once more, the surroundings are well.

        Raises:
            Exception: The surroundings fail.
        """
        self._jobs.run([self._alone(ranges, encode_failure(internal("")))])
        try:
            self._run(ranges)
        except Fenced:
            raise
        except Exception as again:  # noqa: BLE001 -- now it is known whose fault it is
            _log.warning("a request fails alone", extra={"cause": str(again)[:500]})
            self._set_aside(ranges, error)

    def _set_aside(self, ranges: list[LogRange], error: Exception) -> None:
        """Record that a request failed, without running it, and tell whom it concerns."""
        (record,) = self._log.read(ranges[0].start, ranges[0].end, ranges[0].partition)
        incident = incident_of(Epoch(self._epoch + 1), record, error)
        _log.error("a request is set aside", extra=msgspec.structs.asdict(incident))
        self._run(ranges, encode_failure(internal(incident.incident)))
        self._incidents.add(incident)

    def _alone(self, ranges: list[LogRange], failure: bytes) -> RunTransactions:
        """Return the order for an epoch of one request that does not run, but is recorded."""
        return RunTransactions(
            Epoch(self._epoch + 1), 1, 0, ranges, None, tracked=False, keep=False, publish=True,
            drafts=[], output_bytes_max=len(failure), decided={0: failure},
        )  # fmt: skip

    def before_spark_commit(self) -> None:
        """Mark the step between our commit and Spark's, for fault injection."""
        self._fault.reached("before-spark-commit")

    def close(self) -> None:
        """Wait for what runs beside the epochs."""
        self._beside.shutdown(wait=True)

    def _ranges(self, upto: dict[LogPartition, Lsn]) -> list[LogRange]:
        config, found = self._config, []
        for partition, end in sorted(upto.items()):
            start = self._positions[partition]
            if start >= end:
                continue
            if start < (oldest := self._log.start(partition)):
                raise Truncated(
                    f"the log starts at {oldest}, but the journal has committed up to {start} "
                    f"only: requests {start} to {oldest - 1} are lost"
                )
            limit = self._log.limit(start, self._division.width, config.epoch_bytes_max)
            if (end := min(end, limit)) > start:  # else the offset is of a log that was longer
                found.append(LogRange(partition, start, end))
        return found[:1] if self._division.suspects else found

    def _run(self, ranges: list[LogRange], failure: bytes = b"") -> None:
        """Run an epoch to its commit; with a `failure`, its only request is recorded as failed."""
        epoch = Epoch(self._epoch + 1)
        clock = Stopwatch(self._idle_since)
        count = request_count(ranges)
        tasks = 1 if failure else self._pacing.tasks(count)
        run = self._plan(ranges, count, tasks)
        clock.lap("read")
        self._wait_applied()
        clock.lap("apply")
        self._fault.reached("log-read")
        self._division.begin(epoch, count)
        samples: list[Mapping[str, Sample]] = []
        reports: list[TaskResult] = []
        if failure:
            reports = self._jobs.run([self._alone(ranges, failure)])
        else:
            for reports in self._rounds(epoch, ranges, run, tasks, clock):
                samples += [report.samples for report in reports]
        if (cut := first_not_run(reports)) is not None:
            ranges, count = first_requests(ranges, cut), cut
        self._commit(epoch, ranges, count, reports)
        clock.lap("commit")
        self._division.committed(count)
        self._condemned = 0
        self._pacing.learn(count, tasks, run.reran)
        self._apply_beside(epoch, count)
        self._tell(
            EpochReport(
                epoch,
                count,
                sum(report.aborts for report in reports),
                run.rounds,
                run.reran,
                tasks,
                clock.phases_ms,
                calls_of([report.roots for report in reports], samples),
                incidents=1 if failure else 0,
            )
        )
        self._idle_since = time.perf_counter()

    def _plan(self, ranges: list[LogRange], count: int, tasks: int) -> EpochRun:
        """Spread the epoch over tasks; log order is the order of positions."""
        if tasks == 1:
            return EpochRun.single_task(count)
        blobs = [self._log.touches(one.start, one.end, one.partition) for one in ranges]
        if len(blobs) == 1:
            return EpochRun(count, spread(blobs[0], tasks))
        order = sorted(
            (lsn, one.partition, blob)
            for one, some in zip(ranges, blobs, strict=True)
            for lsn, blob in enumerate(some, one.start)
        )
        return EpochRun(count, spread([blob for _, _, blob in order], tasks))

    def _rounds(
        self, epoch: Epoch, ranges: list[LogRange], run: EpochRun, tasks: int, clock: Stopwatch
    ) -> Iterator[list[TaskResult]]:
        """Run rounds until all is finished; the last reports yielded name the parts that stand."""
        drafts: list[tuple[int, int, str]] = []  # round, task, path
        while (now := run.next_round()) is not None:
            publish = tasks == 1 or now.number > 1
            reports = self._jobs.run(
                [
                    RunTransactions(
                        epoch,
                        now.number,
                        task,
                        ranges,
                        None if tasks == 1 else pack_positions(positions),
                        tracked=tasks > 1,
                        keep=tasks > 1,
                        publish=publish,
                        drafts=_standing(drafts, task, run) if publish else [],
                        output_bytes_max=self._config.epoch_output_bytes_max // tasks,
                    )
                    for task, positions in enumerate(now.tasks)
                ]
            )
            if tasks > 1 and first_not_run(reports) is not None:
                raise _Overflow
            clock.lap(f"round{now.number}", write_ms=_slowest(reports) if publish else 0.0)
            self._fault.reached("after-round")
            run.absorb([report.access() for report in reports])
            clock.lap("validate")
            drafts += [
                (now.number, task, one.draft) for task, one in enumerate(reports) if one.draft
            ]
            yield reports
        if run.rounds == 1 and tasks > 1:  # nothing was in conflict, so nothing was published yet
            yield self._jobs.run(
                [
                    RunTransactions(
                        epoch, 2, task, ranges, b"", tracked=False, keep=False, publish=True,
                        drafts=_standing(drafts, task, run), output_bytes_max=0,
                    )
                    for task in range(tasks)
                ]
            )  # fmt: skip
            clock.lap("write")

    def _commit(
        self, epoch: Epoch, ranges: list[LogRange], count: int, reports: list[TaskResult]
    ) -> None:
        """Commit the parts that stand; on return the epoch is history."""
        parts = tuple(part for report in reports for part in report.parts)
        answered = sum(part.rows for part in parts if part.kind is PartKind.TRANSACTIONS)
        if answered != count:
            raise Diverged(f"epoch {epoch} has {count} requests and {answered} replies")
        reached = {**self._positions, **{one.partition: one.end for one in ranges}}
        self._fault.reached("before-commit")
        # Never earlier than the epoch before, whatever the clock does: `AS OF TIMESTAMP` counts on it.
        self._time_us = max(self._time_us, time.time_ns() // 1_000)
        self._journal.commit(Commit(epoch, reached, parts, self._time_us))
        self._fault.reached("after-commit")
        self._epoch = epoch
        self._positions = reached

    def _apply_beside(self, epoch: Epoch, count: int) -> None:
        """After a commit: bring the stores up to it, tidy up, beside whatever comes next.

        A small epoch is applied by the next epoch's task, which costs less than a job.
        """

        def beside() -> None:
            if count > self._config.small_epoch:
                self._jobs.run([ApplyEpoch(one, epoch) for one in range(self._config.partitions)])
            for left in self._scratch.glob(f"e{epoch}-*"):
                left.unlink(missing_ok=True)

        self._applied = self._beside.submit(beside)

    def _recover(self) -> None:
        began = time.perf_counter()
        try:
            self._jobs.run([ApplyEpoch(one, self._epoch) for one in range(self._config.partitions)])
        except OperationalError as error:
            _log.warning("state is not ready yet", extra={"cause": str(error)})
            return
        spent_s = round(time.perf_counter() - began, 3)
        _log.info("state is ready", extra={"epoch": self._epoch, "seconds": spent_s})

    def _wait_applied(self) -> None:
        applied, self._applied = self._applied, None
        if applied is not None:
            applied.result()

    def _tell(self, report: EpochReport) -> None:
        for listener in self.on_epoch:
            try:
                listener(report)
            except Exception:  # noqa: BLE001 -- the epoch is committed, whatever a listener does
                _log.exception("a listener of epochs failed", extra={"epoch": report.epoch})


class _Overflow(Exception):
    """The outputs of an epoch's tasks are larger than an epoch may have."""


def _standing(drafts: list[tuple[int, int, str]], task: int, run: EpochRun) -> list[RoundOutput]:
    """Return a task's drafts, each with the positions that later rounds have run again."""
    return [
        RoundOutput(path, pack_positions(run.superseded(number)))
        for number, of, path in drafts
        if of == task
    ]


def _slowest(reports: list[TaskResult]) -> float:
    return max(report.phases_ms.get("files", 0.0) for report in reports)
