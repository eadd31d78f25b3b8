"""What runs in Spark's Python workers: one order in, one report out.

A worker keeps the application and the open stores between tasks. Nothing that it keeps can be
wrong: log records never change, and a store says which epoch it is at. Files are written under
names that no other attempt uses, and only what the commit lists exists.
"""

import gc
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
from pyspark import TaskContext

from penstock.base.ids import EntityKey, LogPartition
from penstock.engine.conflicts import Positions
from penstock.engine.execute import Escape, Executor, Outcome
from penstock.errors import Corrupt, LimitExceeded, PenstockError
from penstock.journal.api import PartKind
from penstock.journal.delta import DeltaJournal
from penstock.log.api import Record
from penstock.log.sqlite import SqliteLog
from penstock.model.context import Read
from penstock.model.request import Failure, encode_failure
from penstock.runtime.fault import Fault
from penstock.runtime.guard import Guard
from penstock.runtime.loading import load_app
from penstock.runtime.spark import orders
from penstock.runtime.spark.boot import boot_id
from penstock.runtime.spark.orders import Apply, Execute, Range, Report, Settings, Written
from penstock.runtime.spark.quarantine import Quarantine
from penstock.runtime.spark.rows import Rows, Tables, merge, read_draft, write_draft
from penstock.state.stores import Stores

_MISSING: Final = object()
_ATTEMPTS: Final = 3  # a store found damaged is rebuilt, and the task tried again
_POISONED: Final = Outcome(
    LimitExceeded.code,
    encode_failure(
        Failure(
            LimitExceeded.code,
            "LimitExceeded",
            "quarantined: its worker process died twice while it ran",
        )
    ),
    (),
    {},
)
_WORKERS: dict[bytes, "Worker"] = {}


def perform(settings: bytes, _index: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """Run the orders of a Spark partition; the function of every job."""
    for payload in payloads:  # drained to the end, else Spark would not use this process again
        worker = _WORKERS.get(settings)
        if worker is None:
            worker = _WORKERS[settings] = Worker(orders.decode_settings(settings))
            gc.collect()
            gc.freeze()  # Spark collects after every task; what lives on need not be walked
        yield orders.encode(worker.perform(orders.decode_order(bytes(payload))))


class Overlay:
    """What a run has changed, over what was committed before."""

    __slots__ = ("_base", "broken", "escaped", "written")

    def __init__(self, base: Read) -> None:
        self._base = base
        self.written: dict[EntityKey, bytes | None] = {}
        self.broken: PenstockError | None = None

    def read(self, key: EntityKey) -> bytes | None:
        """Return what an entity is now.

        Raises:
            Escape: The store is broken (see `broken`): no business of the handler.
        """
        found = self.written.get(key, _MISSING)
        if found is not _MISSING:
            return found  # type: ignore[return-value]
        try:
            return self._base(key)
        except PenstockError as error:
            self.broken = error
            raise Escape(key) from error


class Tracker:
    """Columns of `Touches`, while they grow."""

    def __init__(self) -> None:
        self.position = array("I")
        self.entity = array("Q")
        self.wrote = bytearray()
        self.escaped = array("I")

    def note(self, position: int, reads: Sequence[EntityKey], writes: dict[EntityKey, bytes | None]) -> None:
        """Add what a transaction touched."""
        digest = xxhash.xxh3_64_intdigest
        for key in reads:
            self.position.append(position)
            self.entity.append(digest(key.encode()))
            self.wrote.append(key in writes)


class Worker:
    """One Python worker's long-lived part: the application, the log, the journal, the stores."""

    def __init__(self, settings: Settings) -> None:
        data = Path(settings.data)
        self._settings = settings
        self._app = load_app(settings.spec)
        self._log = SqliteLog(
            data / "log.sqlite",
            record_bytes_max=settings.record_bytes_max,
            retention_s=settings.retention_s,
        )
        self._journal = DeltaJournal(data / "journal", self._app.name)
        self._stores = Stores(
            data / "state", self._journal, settings.partitions, boot_id=boot_id()
        )
        self._scratch = data / "scratch"
        self._fault = Fault(settings.fault)
        self._records: tuple[list[Range], list[tuple[LogPartition, Record]]] = ([], [])

    def perform(self, order: orders.Order) -> Report:
        """Do what the driver says."""
        match order:
            case Apply(partition, epoch):
                self._fault.reached("in-apply")
                self._stores.catch_up_one(partition, epoch)
                return Report()
            case Execute():
                for attempt in range(_ATTEMPTS):
                    try:
                        return self._execute(order)
                    except Corrupt as error:
                        if attempt + 1 == _ATTEMPTS:
                            raise
                        for partition in range(self._settings.partitions):
                            self._stores.rebuild(partition, str(error))
        raise AssertionError("every order is handled")

    def _execute(self, order: Execute) -> Report:
        began = time.perf_counter()
        records = self._read(order.ranges)
        positions: Sequence[int] = (
            range(len(records))
            if order.positions is None
            else np.frombuffer(order.positions, np.uint32).tolist()
        )
        read_done = time.perf_counter()
        name = f"e{order.epoch}-r{order.round}-t{order.task}"
        rows, tracker, overlay = Rows(order.epoch), Tracker(), None
        own: Tables | None = None
        if positions:
            with self._stores.at(order.epoch - 1) as stores:  # type: ignore[arg-type]
                opened = time.perf_counter()
                overlay = Overlay(stores.get)
                with Quarantine(self._scratch / f"{name}.running") as quarantine:
                    self._run(order, records, positions, overlay, quarantine, rows, tracker)
            own = rows.tables(overlay.written)
        else:
            opened = read_done
        ran = time.perf_counter()
        attempt = TaskContext.get()
        unique = f"{name}-a{attempt.taskAttemptId() if attempt else os.getpid()}"
        draft = str(self._scratch / unique) if order.keep and own else ""
        if own and draft:
            write_draft(own, Path(draft))
        parts, aborts = self._publish(order, own, unique) if order.publish else ([], 0)
        wrote = time.perf_counter()
        return Report(
            touched=tracker.position.tobytes(),
            entities=tracker.entity.tobytes(),
            wrote=bytes(tracker.wrote),
            escaped=tracker.escaped.tobytes(),
            draft=draft,
            parts=parts,
            records=len(positions),
            aborts=aborts,
            phases_ms={
                "log": (read_done - began) * 1e3,
                "state": (opened - read_done) * 1e3,
                "run": (ran - opened) * 1e3,
                "files": (wrote - ran) * 1e3,
            },
        )

    def _read(self, ranges: list[Range]) -> list[tuple[LogPartition, Record]]:
        """Return an epoch's records in its order: (LSN, partition)."""
        if self._records[0] != ranges:
            every = [
                [(one.partition, record) for record in self._log.read(one.start, one.end, one.partition)]
                for one in ranges
            ]
            merged = every[0] if len(every) == 1 else sorted(
                chain(*every), key=lambda pair: (pair[1].lsn, pair[0])
            )
            self._records = (ranges, merged)
        return self._records[1]

    def _run(
        self,
        order: Execute,
        records: list[tuple[LogPartition, Record]],
        positions: Sequence[int],
        overlay: Overlay,
        quarantine: Quarantine,
        rows: Rows,
        tracker: Tracker,
    ) -> None:
        """Execute transactions in order."""
        executor = Executor(self._app, overlay.read, self._settings.limits)
        written, now, poisoned = overlay.written, quarantine.now, quarantine.poisoned
        middle = positions[len(positions) // 2]
        with Guard(executor, self._settings.limits):
            for position in positions:
                if position == middle:
                    self._fault.reached("in-round")
                partition, record = records[position]
                now[0] = position
                if position in poisoned:
                    outcome = _POISONED
                else:
                    try:
                        outcome = executor.run(record.request_id, record.body, record.time_us)
                    except Escape as escape:
                        if overlay.broken is not None:
                            raise overlay.broken from None
                        tracker.escaped.append(position)
                        tracker.note(position, (*executor.touched, escape.key), {})
                        continue
                if outcome.writes:
                    written.update(outcome.writes)
                rows.add(position, partition, record, outcome)
                if order.tracked:
                    tracker.note(position, outcome.reads, outcome.writes)

    def _publish(
        self, order: Execute, own: Tables | None, name: str
    ) -> tuple[list[Written], int]:
        """Write the parts of what stands: of earlier drafts, and of this run; count its aborts."""
        several = [
            read_draft(Path(draft.path), _positions(draft.superseded)) for draft in order.drafts
        ]
        if own is not None:
            several.append(own)
        parts: list[Written] = []
        if not several:
            return parts, 0
        merged = merge(several)
        errors = merged[PartKind.TRANSACTIONS]["error"]
        for kind, table in merged.items():
            if table.num_rows:
                part = self._journal.write(PartKind(kind), table, name)
                parts.append(Written(part.kind, part.path, part.rows, part.size, part.checksum))
                self._fault.reached("between-parts")
        return parts, len(errors) - errors.null_count


def _positions(packed: bytes) -> Positions:
    return np.frombuffer(packed, np.uint32)
