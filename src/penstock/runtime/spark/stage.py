"""What runs in Spark's Python workers: one order in, one report out.

A worker keeps the application and the open stores between tasks. Nothing that it keeps can be
wrong: log records never change, and a store says which epoch it is at. Files are written under
names that no other attempt uses, and only what the commit lists exists.
"""

import gc
import logging
import os
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from pyspark import TaskContext

from penstock.base.ids import Epoch, LogPartition
from penstock.engine.access import AccessSet, Positions, TaskAccess
from penstock.engine.calls import CallSampler, Sample, members_of
from penstock.engine.execute import Outcome
from penstock.engine.failure import exceeded
from penstock.engine.task import Task
from penstock.errors import (
    ClassChanged,
    Corrupt,
    EpochFailed,
    IntegrityError,
    Internal,
    OperationalError,
    PenstockError,
    StateUnavailable,
)
from penstock.journal.api import Part, PartKind
from penstock.log.api import Record
from penstock.model.request import decode_failure, encode_failure
from penstock.process import logs
from penstock.process.data_directory import DataDirectory
from penstock.process.fault import Fault
from penstock.process.guard import Guard
from penstock.process.loading import load_app
from penstock.retention.maintenance_process import in_child
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    LogRange,
    RunMaintenance,
    RunTransactions,
    TaskCommand,
    TaskResult,
    WorkerSettings,
)
from penstock.runtime.spark.quarantine import Quarantine
from penstock.runtime.spark.rows import Rows, Tables, merge, read_draft, roots_of, write_draft

_log = logging.getLogger(__name__)

_PHASES: Final = ("log", "state", "run", "files")
_ATTEMPTS: Final = 3  # a store found damaged is rebuilt, and the task tried again
_POISONED: Final = encode_failure(
    exceeded("quarantined: its worker process died twice while it ran")
)
_EXPENDABLE: Final = "500"
"""Of 1,000, how much of the machine's memory a worker seems to hold on top of what it does hold."""

_TRACE_MAX: Final = 8_000
"""Characters of a traceback that a report carries."""

_GARBAGE: Final = 50_000
"""Objects between two collections; transactions leave few cycles, and Spark collects anyway."""

_WORKERS: dict[bytes, "Worker"] = {}


def perform(settings: bytes, _index: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """Run the orders of a Spark partition; the function of every job.

    A worker that has failed may be the work of a handler, which has closed its files or replaced its
    functions. Nothing of it is trusted again: it leaves its input undrained, and Spark ends a worker
    that does so.
    """
    for payload in payloads:  # drained to the end, else Spark would not use this process again
        report = _perform(settings, bytes(payload))
        yield messages.encode(report)
        if report.failure is not None:
            return


def _perform(settings: bytes, payload: bytes) -> TaskResult:
    """Run one order; whatever goes wrong is the report, because Spark would hand on a text only."""
    loaded = False
    try:
        worker = _worker(settings)
        loaded = True
        return worker.perform(messages.decode_command(payload))
    except (OperationalError, IntegrityError, ClassChanged) as error:
        return _failed(type(error), str(error))
    except OSError as error:  # of drafts and notes; handlers' own never come this far
        return _failed(StateUnavailable, str(error))
    except BaseException as error:  # noqa: BLE001 -- the driver finds the request that causes it
        if loaded:
            return _failed(Internal, _trace_of(error))
        return _failed(EpochFailed, f"a worker cannot load the application: {_trace_of(error)}")


def _failed(kind: type[PenstockError], why: str) -> TaskResult:
    return TaskResult(failure=(kind.code, kind.__name__, why))


def _trace_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-_TRACE_MAX:]
    except BaseException as another:  # noqa: BLE001 -- its text is user code
        return f"{type(error).__qualname__}, whose traceback raised {type(another).__qualname__}"


def _worker(settings: bytes) -> "Worker":
    worker = _WORKERS.get(settings)
    if worker is None:
        decoded = messages.decode_settings(settings)
        logs.configure("worker", decoded.log_format, decoded.log_level)
        _offer_to_memory_killer()
        os.register_at_fork(after_in_child=_end_child)
        worker = _WORKERS[settings] = Worker(decoded)
        gc.collect()
        gc.freeze()  # Spark collects after every task; what lives on need not be walked
        gc.set_threshold(_GARBAGE)
    return worker


def _offer_to_memory_killer() -> None:
    """Let the system end a worker first where memory runs out: Spark starts another one."""
    with suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text(_EXPENDABLE)


def _end_child() -> None:
    """End a process that a handler has forked: it would go on with the task, on the same socket."""
    os._exit(os.EX_OK)


class Worker:
    """One Python worker's long-lived part: the application, the log, the journal, the stores."""

    def __init__(self, settings: WorkerSettings) -> None:
        data = Path(settings.data)
        self._settings = settings
        self._app = load_app(settings.spec)
        self._members = members_of(self._app)
        self._journal = DataDirectory(data).open_journal(self._app)
        self._log = DataDirectory(data).open_log(settings)
        self._stores = DataDirectory(data).open_stores(self._journal, settings.partitions)
        self._scratch = Path(settings.scratch)
        self._fault = Fault(settings.fault)
        self._heavy: set[str] = set()
        self._records: tuple[list[LogRange], list[tuple[LogPartition, Record]]] = ([], [])

    def perform(self, order: TaskCommand) -> TaskResult:
        """Do what the driver says."""
        match order:
            case ApplyEpoch(partition, epoch):
                self._fault.reached("in-apply")
                self._stores.catch_up_one(partition, epoch)
                return TaskResult()
            case RunMaintenance(work, nice):
                return TaskResult(upkeep=in_child(work, nice))
            case RunTransactions():
                for attempt in range(_ATTEMPTS):
                    try:
                        return self._execute(order)
                    except Corrupt:
                        if attempt + 1 == _ATTEMPTS:
                            raise
                        self._stores.examine()  # deletes what is damaged; the next try builds it
        raise AssertionError("every order is handled")

    def _execute(self, order: RunTransactions) -> TaskResult:
        clock = [time.perf_counter()]
        records = self._read(order.ranges)
        positions: Sequence[int] = (
            range(len(records))
            if order.positions is None
            else np.frombuffer(order.positions, np.uint32).tolist()
        )
        clock.append(time.perf_counter())
        name = f"e{order.epoch}-r{order.round}-t{order.task}"
        own: Tables | None = None
        cut: int | None = None
        sampler = CallSampler(self._members, self._heavy)
        access = TaskAccess(AccessSet.empty(), np.empty(0, np.uint32))
        if positions:
            rows = Rows(order.epoch)
            with self._stores.at(Epoch(order.epoch - 1)) as stores:
                clock.append(time.perf_counter())
                task = Task(self._app, stores.get, self._settings.limits, tracked=order.tracked)
                task.executor.sampler = sampler
                task.executor.secret = self._journal.secret
                with Quarantine(self._scratch / f"{name}.running") as quarantine:
                    cut = self._run(task, order, records, positions, quarantine, rows)
            own = rows.tables(task.written)
            access = task.access()
        else:
            clock.append(clock[-1])
        clock.append(time.perf_counter())
        attempt = TaskContext.get()
        unique = f"{name}-a{attempt.taskAttemptId() if attempt else os.getpid()}"
        draft = str(self._scratch / unique) if order.keep and own else ""
        if own and draft:
            write_draft(own, Path(draft))
        published = self._publish(order, own, unique) if order.publish else TaskResult()
        clock.append(time.perf_counter())
        return msgspec.structs.replace(
            published,
            touched=access.accesses.position.tobytes(),
            entities=access.accesses.entity.tobytes(),
            wrote=access.accesses.wrote.tobytes(),
            escaped=access.escaped.tobytes(),
            draft=draft,
            cut=cut,
            samples=_samples_of(sampler),
            phases_ms={
                phase: (end - begin) * 1e3
                for phase, begin, end in zip(_PHASES, clock, clock[1:], strict=False)
            },
        )

    def _read(self, ranges: list[LogRange]) -> list[tuple[LogPartition, Record]]:
        """Return an epoch's records in its order: (LSN, partition)."""
        if self._records[0] != ranges:
            every = [
                [
                    (one.partition, record)
                    for record in self._log.read(one.start, one.end, one.partition)
                ]
                for one in ranges
            ]
            merged = (
                every[0]
                if len(every) == 1
                else sorted(chain(*every), key=lambda pair: (pair[1].lsn, pair[0]))
            )
            self._records = (ranges, merged)
        return self._records[1]

    def _run(
        self,
        task: Task,
        order: RunTransactions,
        records: list[tuple[LogPartition, Record]],
        positions: Sequence[int],
        quarantine: Quarantine,
        rows: Rows,
    ) -> int | None:
        """Execute transactions in order, each noted before it runs.

        Returns:
            The first position that did not run, because the outputs of those before it take more
            than `output_bytes_max`; None where all ran.
        """
        now, middle = quarantine.now, positions[len(positions) // 2]
        decided = {**dict.fromkeys(quarantine.poisoned, _POISONED), **order.decided}
        left = order.output_bytes_max
        with Guard(task.executor, self._settings.limits, batched=True) as guard:
            for position in guard.each(positions):
                if position == middle:
                    self._fault.reached("in-round")
                partition, record = records[position]
                if left < 0:
                    return position
                now[0] = position
                if (failure := decided.get(position)) is not None:
                    outcome: Outcome | None = Outcome(decode_failure(failure).code, failure, (), {})
                else:
                    outcome = task.run(position, record.request_id, record.body, record.time_us)
                if quarantine.careful:
                    quarantine.measured(position)
                if outcome is not None:
                    rows.add(position, partition, record, outcome, task.executor.root)
                    left -= _size_of(outcome)
        return None

    def _publish(self, order: RunTransactions, own: Tables | None, name: str) -> TaskResult:
        """Write the parts of what stands: of earlier drafts, and of this run; report of them."""
        several = [
            read_draft(Path(draft.path), _positions(draft.superseded)) for draft in order.drafts
        ]
        if own is not None:
            several.append(own)
        parts: list[Part] = []
        if not several:
            return TaskResult()
        merged = merge(several)
        errors = merged[PartKind.TRANSACTIONS]["error"]
        for kind, table in merged.items():
            if table.num_rows:
                parts.append(self._journal.write(PartKind(kind), table, name))
                self._fault.reached("between-parts")
        aborts = len(errors) - errors.null_count
        return TaskResult(parts=parts, aborts=aborts, roots=roots_of(several))


def _size_of(outcome: Outcome) -> int:
    """Return the bytes of a reply and of what its transaction wrote."""
    size = len(outcome.reply)
    for data in outcome.writes.values():
        if data is not None:
            size += len(data)
    return size


def _samples_of(sampler: CallSampler) -> dict[str, Sample]:
    """Return what was seen of calls; nothing where that fails, since statistics stop no epoch."""
    try:
        return sampler.samples()
    except Exception:  # noqa: BLE001 -- the epoch goes on
        _log.exception("statistics of calls are dropped")
        return {}


def _positions(packed: bytes) -> Positions:
    return np.frombuffer(packed, np.uint32)
