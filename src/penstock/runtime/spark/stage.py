"""The code that Spark's Python workers run: one command in, one result out.

A worker keeps the application and the open stores between tasks. They cannot become stale: log records never change,
and a store knows its epoch. Files have names that no other attempt uses, and only those that a commit lists count.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.base.ids import (
    BEFORE_FIRST,
    EntityKey,
    Epoch,
    LogPartition,
    Lsn,
    RequestId,
    split_entity_key,
)
from penstock.deployment.code_in_force import is_unpacked, unpacked_here
from penstock.deployment.isolated_upcasts import isolated_upcasts
from penstock.deployment.loading import lines_of, load, locate
from penstock.deployment.prepared_indexes import DeployedRows
from penstock.deployment.side_modules import LoadedCode, load_aside
from penstock.engine.access import AccessSet, TaskAccess
from penstock.engine.built_indexes import BUILD, REMOVED_MAX, ended_build, index_updates
from penstock.engine.calls import CallMemory, CallSampler, Member, Sample, Site, members_of
from penstock.engine.execute import Outcome
from penstock.engine.forecast import Forecast
from penstock.engine.mentions import MentionCollector
from penstock.engine.streams.cascade import Cascade, PublishedAtom, cascade_of
from penstock.engine.streams.cascade_runner import SHARE_S, CascadeTime
from penstock.engine.streams.derived_ids import MARK
from penstock.engine.streams.key_shares import KeyShare
from penstock.engine.streams.late_flows import subscriptions
from penstock.engine.streams.published_rows import first_pieces
from penstock.engine.task import Task
from penstock.errors import ConfigError, Corrupt, PenstockError
from penstock.files.durable import storage
from penstock.files.layout import HELD_STATE, STATE
from penstock.journal.api import PartKind
from penstock.journal.delta import DeltaJournal, WrittenChanges
from penstock.journal.shapes import Shapes
from penstock.journal.staged import StagedRows
from penstock.log.api import Log, Record
from penstock.model.index import left_indexes
from penstock.model.request import NOT_CUT, Cut, cut_of, decode_failure, encode_failure
from penstock.model.schema_version import Versions
from penstock.model.versions.waiting_types import waiting_types
from penstock.process.data_directory import DataDirectory
from penstock.process.fault import Fault
from penstock.process.guard import Guard, TamperedWith
from penstock.process.held_lines import line_holder
from penstock.process.presence import host_id
from penstock.retention.maintenance_process import run_maintenance
from penstock.runtime.spark import messages
from penstock.runtime.spark.cascade_columns import atoms_of
from penstock.runtime.spark.holders import FarRows
from penstock.runtime.spark.importing import changes_part, import_rows, prepare_rows
from penstock.runtime.spark.large_atoms import run_share, use_shares
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    BuildIndexes,
    Code,
    ImportRows,
    LeaveIndexes,
    LoadCode,
    LogRange,
    Peers,
    PrepareRows,
    RunMaintenance,
    RunShare,
    RunSteps,
    RunTransactions,
    TaskResult,
    WorkerCommand,
    WorkerSettings,
)
from penstock.runtime.spark.publishing import publish
from penstock.runtime.spark.quarantine import STEPS_OF, NextNote, Quarantine
from penstock.runtime.spark.round_files import RoundFiles, far_files
from penstock.runtime.spark.rows import RoundRows, Tables
from penstock.runtime.spark.step_relay import ProcessedRecord, RelayLost, RelayReader, RelayWriter
from penstock.state.stores import ComesLate, PartitionedReader, remove_former_stores

PlacedRecord = tuple[LogPartition, Record]
"""A record, with its partition of the log."""

Records = Sequence[PlacedRecord]
"""The records of an epoch."""


class RecordsOfRange(Records):
    """The records of a range of the log; a task makes pairs of its own records only."""

    def __init__(self, partition: LogPartition, records: Sequence[Record]) -> None:
        self._partition = partition
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: Any) -> Any:  # of an index; no task takes slices
        return self._partition, self._records[position]


def read_epoch(log: Log, ranges: Sequence[LogRange]) -> Records:
    """Return the records of an epoch in its order: (LSN, partition).

    Raises:
        Corrupt: A record is damaged.
    """
    read = [
        RecordsOfRange(part.partition, log.read(part.start, part.end, part.partition))
        for part in ranges
    ]
    return read[0] if len(read) == 1 else sorted(chain(*read), key=_order)


def _order(placed: PlacedRecord) -> tuple[Lsn, LogPartition]:
    partition, record = placed
    return record.lsn, partition


# Code that was unpacked from an archive has modules of its own (`deployment.side_modules`), so that two versions fit into one
# process: the code of a deployment is loaded while the present code is in use, and then takes its place. The former code is
# dropped: after a rollback it is loaded again, because it must read the rows of the versions that came between.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCode(LoadedCode):
    """One version of the code.

    Attributes:
        members: Its members, for the count of calls.
    """

    members: dict[Site, Member]
    journal: DeltaJournal


class Place(NamedTuple):
    """Where a worker has the files of its host.

    Attributes:
        root: The root of the host.
        notes: The directory for notes.
        driver: The root of the driver's host, below which the driver has unpacked code; None on that host.
        credentials: Those of the run, where the host holds a part of the state (`holders`); else empty.
    """

    root: Path
    notes: Path
    driver: Path | None = None
    credentials: bytes = b""

    def spec_of(self, spec: str, data: Path) -> str:
        """Return the name of an application whose code is unpacked on this host.

        Args:
            data: The data directory, with the archives.
        """
        return spec if self.driver is None else unpacked_here(spec, self.driver, data, self.root)


class WorkerCodes:
    """The versions that a worker has loaded, one of which is in use.

    Args:
        place: As for `Worker`.

    Raises:
        PenstockError: The code cannot be loaded, or does not fit the journal.
    """

    def __init__(self, directory: DataDirectory, code: Code, place: Place | None = None) -> None:
        self._directory = directory
        self._place = place or Place(directory.path, directory.path)
        self._code = code
        # One for the journals of all versions: stores are fed from that of the first.
        self._written = WrittenChanges()
        self.present = self._load(code[0])
        self._loaded = {code: self.present}
        self._enter()

    def use(self, code: Code) -> None:
        """Let all later work use a version, which is loaded first if `prepare` has not loaded it."""
        if code == self._code:  # the version of nearly all commands
            return
        loaded = self.prepare(code)
        self._leave()
        self._loaded = {code: loaded}
        self._code, self.present = code, loaded
        self._enter()

    def prepare(self, code: Code, dropped: Collection[str] = ()) -> WorkerCode:
        """Load a version, and keep the present one in use.

        Args:
            code: The version; it is loaded again if this deployment of it is not the one that is loaded.
            dropped: The stored classes that it may lack; those that a deployment has dropped need no mention.
        """
        if code not in self._loaded:
            self._loaded = {self._code: self.present}  # earlier prepared code was refused
            self._leave()
            try:
                self._loaded[code] = self._load(code[0], dropped)
            finally:
                self._enter()
        return self._loaded[code]

    def schemas(
        self, code: WorkerCode, since: Epoch, dropped: Collection[str]
    ) -> dict[str, Versions]:
        """Return the schema versions of each stored class if some code were deployed; nothing is written.

        Args:
            since: The first epoch that may have rows of new versions.
            dropped: The stored classes that it may lack.

        Raises:
            Corrupt: The file of shapes is missing or damaged.
        """
        with storage("read how classes are stored"):
            return Shapes(self._directory.journal_root, code.app.stored, dropped).planned(since)

    def close(self) -> None:
        """Close the journals, and put the modules of the process back."""
        self._leave()
        for code in self._loaded.values():
            code.journal.close()

    def _load(self, spec: str, dropped: Collection[str] = ()) -> WorkerCode:
        location = locate(self._place.spec_of(spec, self._directory.path))
        is_archive = is_unpacked(self._place.root, location)
        code = load_aside(location) if is_archive else LoadedCode(load(location), location)
        # The journal compares classes, and an annotation that is text is looked up in the modules of its class.
        with code.active():
            journal = self._directory.open_journal(code.app, dropped=dropped)
        journal.written = self._written
        journal.is_for_other_hosts = self._place.driver is not None
        members = members_of(code.app)
        return WorkerCode(code.app, location, code.modules, members=members, journal=journal)

    def _enter(self) -> None:
        if self.present.modules is not None:
            self.present.modules.enter()

    def _leave(self) -> None:
        if self.present.modules is not None:
            self.present.modules.leave()


# The first pass runs the requests of the records. The second pass takes the atoms that they have published, and their
# replies. Where several tasks run the requests, they come from the round outputs. Where one task runs them, they come
# from its relay, at the same time (`step_relay`). Tasks of workflows are rows that no request reads or writes, so the
# second pass begins with the state before the epoch.


_COLUMNS: Final = (
    "position",
    "partition",
    "lsn",
    "request_id",
    "request",
    "time_us",
    "error",
    "reply",
)


def processed_records(outputs: Sequence[Tables]) -> Iterator[ProcessedRecord]:
    """Yield the records that may have workflow steps, in order.

    Args:
        outputs: The valid rows of the round outputs of all tasks.
    """
    published: dict[int, list[PublishedAtom]] = {}
    for output in outputs:
        if PartKind.EVENTS in output:
            for position, atom in atoms_of(output[PartKind.EVENTS]):
                published.setdefault(position, []).append(atom)
    cuts = _cuts(outputs)
    transactions = pa.concat_tables(
        output[PartKind.TRANSACTIONS] for output in outputs if PartKind.TRANSACTIONS in output
    )
    emitting = pc.is_in(transactions["position"], pa.array(published, pa.uint32()))
    derived = pc.match_substring(transactions["request_id"], MARK)
    rows = transactions.filter(pc.or_(emitting, derived)).select(_COLUMNS).sort_by("position")
    for position, partition, lsn, request_id, body, time_us, error, reply in zip(
        *(column.to_pylist() for column in rows.columns), strict=True
    ):
        cascade = cascade_of(RequestId(request_id), body, time_us)
        cascade.published = published.get(position, [])
        cascade.cut = cuts.get(position, NOT_CUT)
        yield ProcessedRecord(
            position,
            LogPartition(partition),
            Record(Lsn(lsn), RequestId(request_id), body, time_us),
            None if error is None else decode_failure(reply),
            reply,
            cascade,
        )


def _cuts(outputs: Sequence[Tables]) -> dict[int, Cut]:
    """Return where the requests of cascades were cut, by the positions of their records."""
    later = [output[PartKind.APPENDS] for output in outputs if PartKind.APPENDS in output]
    return {
        position: cut
        for rows in later
        for position, body in zip(
            rows["position"].to_pylist(), rows["request"].to_pylist(), strict=True
        )
        if (cut := cut_of(body)) != NOT_CUT
    }


def note_parts(task: Task, quarantine: Quarantine) -> None:
    """Let a task note each sent request and each workflow step before it runs, and refuse those that kill."""
    cascades = task.cascades
    if cascades is not None:
        cascades.before_request = quarantine.refusal_of_request
        cascades.before_step = quarantine.refusal_of_step


def run_steps(task: Task, rows: RoundRows, quarantine: Quarantine, work: ProcessedRecord) -> int:
    """Run the workflow steps of one record; note its position before they run.

    Args:
        quarantine: Takes the notes.

    Returns:
        The bytes of the results.
    """
    assert task.cascades is not None, "the application has streams"
    began = time.perf_counter()
    position = work.position
    quarantine.now[0] = position + STEPS_OF
    task.run_steps(work.cascade, work.failure, work.reply)
    if quarantine.careful:
        quarantine.measure()
    rows.wrote(position, task.wrote)
    size = rows.cascades.add(position, work.partition, work.record, work.cascade)
    rows.steps_s += time.perf_counter() - began
    return size


_log = logging.getLogger(__name__)

_PHASES: Final = ("log", "state", "run", "files")
_LEAVE_PAUSE_S: Final = 5.0
CASCADE_SHARE_S = SHARE_S
"""The time of a cascade in each pass of an epoch."""

_REBUILDS: Final = 2  # a damaged store is rebuilt, and the command is run again


_Control = BuildIndexes | PrepareRows | LeaveIndexes | ImportRows
_Partial = RunTransactions | RunShare | RunSteps | _Control


class Worker:
    """The long-lived part of a Python worker: the application, the log, the journal, the stores.

    Args:
        place: The files of this host; None on the driver's host, whose files are those of the data directory.
    """

    def __init__(self, settings: WorkerSettings, place: Place | None = None) -> None:
        data, scratch = Path(settings.data), Path(settings.scratch)
        place = place or Place(data, scratch)
        directory = DataDirectory(data)
        self._settings = settings
        self._codes = WorkerCodes(directory, settings.code, place)
        # The log is a file of the driver's host. On another host the records come with the commands.
        self._log = directory.open_log(settings) if place.driver is None else None
        self._leaves_at: float | None = None
        self._far: FarRows | None = None
        if place.credentials:
            self._far = FarRows(place.credentials, host_id(place.root), self._references)
        self._feed = self._code.journal
        self._stores = directory.open_stores(self._feed, folder=place.root, elsewhere=self._far)
        self._forecast = Forecast(self._code.app)
        self._notes, self._place = place.notes, place
        self._next_note = NextNote()
        self._files = RoundFiles(scratch, None if place.driver is None else far_files(data))
        self._fault = Fault(settings.fault)
        self._calls = CallMemory(time.monotonic)
        self._records: tuple[list[LogRange], Records] = ([], [])
        self._lines = line_holder()

    def perform(self, command: WorkerCommand) -> TaskResult:
        """Run a command of the driver."""
        match command:
            case ApplyEpoch(owned, epoch, partitions, former):
                self._fault.reached("in-apply")
                self._stores.use(partitions)
                self._is_durable(epoch)
                for partition in owned:
                    with suppress(ComesLate):  # a later command has brought it further
                        self._stores.catch_up_one(partition, epoch, former)
                if len(owned) == partitions:  # so no other worker prepares for the next epoch
                    self._next_note.make(self._notes / f"{_task_name(epoch + 1, 1, 0)}.running")
                return TaskResult()
            case RunMaintenance(work, nice):
                return TaskResult(maintenance=run_maintenance(work, nice))
            case LoadCode():
                return self._load_code(command)
            case _:
                if command.partitions != self._stores.partitions:
                    self._use_stores(command.partitions)
                # The driver begins an epoch after the commit of the epoch before it.
                self._is_durable(Epoch(command.epoch - 1))
                self._lines.begin_task()
                return self._on_sound_stores(partial(self._execute_any, command))

    def _is_durable(self, epoch: Epoch) -> None:
        """Take note that the driver knows an epoch to be durable."""
        if epoch != BEFORE_FIRST:
            self._feed.committed(epoch)
            self._code.journal.committed(epoch)

    def _execute_any(self, command: _Partial) -> TaskResult:
        """Run a part of an epoch."""
        match command:
            case RunTransactions():
                return self._execute(command)
            case RunShare():
                return self._execute_share(command)
            case RunSteps():
                return self._execute_steps(command)
            case _:
                return self._execute_control(command)

    def _execute_control(self, command: _Control) -> TaskResult:
        """Do the work that a control record leaves to a task."""
        match command:
            case BuildIndexes():
                return self._build_indexes(command)
            case PrepareRows():
                journal, data = self._code.journal, Path(self._settings.data)
                with self._stores.at(Epoch(command.epoch - 1)) as stores:
                    return prepare_rows(command, journal, stores.items_of, data)
            case LeaveIndexes():
                return self._leave_indexes(command)
            case ImportRows():
                return self._import_rows(command)

    def _use_stores(self, partitions: int) -> None:
        """Use another number of stores; maintenance removes those of former numbers on the driver's host only."""
        self._stores.use(partitions)
        if self._place.driver is not None:
            folder = STATE if self._far is None else HELD_STATE
            remove_former_stores(self._place.root / folder, partitions)

    @property
    def _code(self) -> WorkerCode:
        """The code in use."""
        return self._codes.present

    def use(self, settings: WorkerSettings) -> None:
        """Go on with other code; the other settings are the same."""
        self._codes.use(settings.code)
        self._settings = settings
        self._calls = CallMemory(time.monotonic)
        self._forecast = Forecast(self._code.app)

    def use_peers(self, peers: Peers) -> None:
        """Hold the part of the state that falls to this host among others."""
        if self._far is None:
            return
        now = time.monotonic()
        if self._far.use(peers):
            self._stores.forget_taken()
            self._leaves_at = now
        if self._leaves_at is not None and now >= self._leaves_at:
            # Other processes of this host may have them open for a while.
            self._leaves_at = None if self._stores.leave_others() else now + _LEAVE_PAUSE_S

    def _references(self, key: EntityKey, row: bytes) -> list[EntityKey]:
        return self._forecast.of_row(key, row)

    def _prefetch(
        self, stores: PartitionedReader, bodies: Iterable[bytes], *, every: bool = False
    ) -> None:
        """Ask other hosts for the rows that some requests name.

        Args:
            every: Whether to ask for a row of each partition, too: the driver wants to know whether all rows can be had.
        """
        if self._far is not None:
            named = (key for body in bodies for key in self._forecast.of_request(body))
            self._far.prefetch(named, stores.get)
            if every:
                self._far.reach()

    def _load_code(self, command: LoadCode) -> TaskResult:
        """Load the code of a deployment, and compare its classes with the stored ones."""
        with Quarantine(self._notes / f"e{command.epoch}-r0-t0.running") as quarantine:
            if quarantine.poisoned:
                raise ConfigError("the code ends the process that imports it; it did so twice")
            quarantine.now[0] = 0
            since = Epoch(command.epoch + 1)
            try:
                code = self._codes.prepare((command.spec, since), command.dropped)
            except PenstockError:
                raise
            except BaseException as error:
                _log.warning("a deployment cannot be loaded", exc_info=True)
                raise ConfigError(f"its code cannot be loaded:\n{lines_of(error)}") from error
        tags = {name: shape.tag for name, shape in code.app.shapes.items()}
        late = subscriptions(code.app.topology)
        schemas = self._codes.schemas(code, since, command.dropped)
        loaded = messages.LoadedClasses(
            schemas,
            tags,
            late,
            waiting_types(code.app),
            tuple(code.app.views),
            tuple(code.app.effects),
            first_pieces(code.app.topology, since),
            list(code.app.schedules.values()),
            tuple(code.app.topology.captures),
            code.app.indexes,
        )
        return TaskResult(loaded=messages.encode(loaded))

    def _build_indexes(self, command: BuildIndexes) -> TaskResult:
        """Write the rows of the indexes that the code of a deployment adds, and remove those that it lacks."""
        with Quarantine(self._notes / f"e{command.epoch}-r1-t0.running") as quarantine:
            if quarantine.poisoned:
                raise ConfigError(
                    "the code ends the process that builds its indexes; it did so twice"
                )
            quarantine.now[0] = 0
            code = self._codes.prepare((command.spec, Epoch(command.epoch + 1)), command.dropped)
            before = Epoch(command.epoch - 1)
            with self._stores.at(before) as stores:
                prepared = None
                if command.prepared is not None:
                    staged = StagedRows(Path(self._settings.data))
                    prepared = DeployedRows(
                        command.prepared, staged, self._code.journal, stores.get, before
                    )
                rows = command.former, stores.items_of, prepared, REMOVED_MAX
                updates = index_updates(code.app, *rows)
        is_more = updates.get(BUILD) is not None
        return TaskResult(
            parts=changes_part(self._code.journal, command.epoch, updates, "indexes"),
            loaded=messages.encode((is_more, len(updates))),
        )

    def _leave_indexes(self, command: LeaveIndexes) -> TaskResult:
        """Return the rows of indexes that change when an entity is deleted, and its own row if it exists."""
        with self._stores.at(Epoch(command.epoch - 1)) as stores:
            rows = left_indexes(self._code.app.indexed, [command.entity], stores.get)
            rows |= ended_build(split_entity_key(command.entity)[0], stores.items_of)
            if stores.get(command.entity) is not None:
                rows[command.entity] = None
        return TaskResult(loaded=messages.encode(rows))

    def _import_rows(self, command: ImportRows) -> TaskResult:
        """Write the changes of staged rows of an import."""
        app, journal, data = self._code.app, self._code.journal, Path(self._settings.data)
        state_bytes = self._settings.limits.state_bytes
        # A function of `@migrate` that never returns must not hold up the epochs.
        with self._stores.at(Epoch(command.epoch - 1)) as stores, isolated_upcasts():
            return import_rows(
                command, app, journal, stores, data, state_bytes, self._fault.reached
            )

    def _on_sound_stores(self, execute: Callable[[], TaskResult]) -> TaskResult:
        for _ in range(_REBUILDS):
            with suppress(Corrupt):
                return execute()
            self._stores.examine()  # deletes damaged stores; the next attempt rebuilds
        return execute()

    def _execute(self, command: RunTransactions) -> TaskResult:
        clock, busy_s = [time.perf_counter()], 0.0
        records, positions = self._records_of(command)
        clock.append(time.perf_counter())
        name = _task_name(command.epoch, command.round, command.task)
        own: Tables | None = None
        stopped_at: int | None = None
        sampler = CallSampler(self._code.members, self._calls)
        access = TaskAccess(AccessSet.empty(), np.empty(0, np.uint32))
        relay = RelayWriter(command.relay) if command.relay else None
        rows = RoundRows(command.epoch, relay)
        collector = MentionCollector()
        if positions:
            with self._stores.at(Epoch(command.epoch - 1)) as stores:
                self._prefetch(
                    stores,
                    (records[position][1].body for position in positions),
                    every=bool(command.decided),
                )
                clock.append(time.perf_counter())
                task = self._task(stores, tracked=command.tracked)
                task.executor.sampler = sampler
                with (
                    Quarantine(
                        self._notes / f"{name}.running", ready=self._next_note
                    ) as quarantine,
                    collector,
                ):
                    busy_s = time.thread_time()
                    stopped_at = self._run(task, command, records, positions, quarantine, rows)
                    busy_s = time.thread_time() - busy_s
            own = rows.tables(task.written, command.atoms)
            access = task.access()
        else:
            clock.append(clock[-1])
        clock.append(time.perf_counter())
        unique = f"{name}-a{_attempt()}"
        output = self._files.write(command.epoch, unique, own) if command.keep and own else ""
        published = self._published(command, own, unique)
        clock.append(time.perf_counter())
        return msgspec.structs.replace(
            published,
            position=access.accesses.position.tobytes(),
            entity=access.accesses.entity.tobytes(),
            wrote=access.accesses.wrote.tobytes(),
            escaped=access.escaped.tobytes(),
            mentioned=collector.mentions().tobytes(),
            output=output,
            relay="" if relay is None else str(relay.path),
            stopped_at=stopped_at,
            largest=rows.cascades.largest,
            flows=bool(positions) and rows.cascades.have_steps and not command.with_steps,
            samples=_samples_of(sampler),
            phases_ms=_phases_ms(clock, rows) | {"busy": busy_s * 1e3},
        )

    def _records_of(
        self, command: RunTransactions
    ) -> tuple[Records | dict[int, PlacedRecord], Sequence[int]]:
        """Return the records of a command by their positions, and the positions that it runs."""
        sent = command.records
        records = self._read(command.ranges) if sent is None else sent
        positions: Sequence[int] = (
            range(len(records))
            if command.positions is None
            else np.frombuffer(command.positions, np.uint32).tolist()
        )
        return records if sent is None else dict(zip(positions, sent, strict=True)), positions

    def _read(self, ranges: list[LogRange]) -> Records:
        """Return an epoch's records in its order, (LSN, partition); keep them for its next round."""
        if self._log is not None and self._records[0] != ranges:  # else nothing runs
            self._records = (ranges, read_epoch(self._log, ranges))
        return self._records[1]

    def _run(
        self,
        task: Task,
        command: RunTransactions,
        records: Records | dict[int, PlacedRecord],
        positions: Sequence[int],
        quarantine: Quarantine,
        rows: RoundRows,
    ) -> int | None:
        """Execute transactions in order; note each position before it runs.

        Args:
            positions: The positions to execute, ascending.
            quarantine: Takes the notes, and knows the positions that must not run again.

        Returns:
            The first position that did not run, because the outputs of those before it take more
            than `output_bytes_max`; None if all ran.
        """
        now, middle = quarantine.now, positions[len(positions) // 2]
        note_parts(task, quarantine)
        _limit_time(task)
        poisoned = {at: encode_failure(why) for at, why in quarantine.poisoned.items()}
        decided = {**poisoned, **command.decided}
        left = command.output_bytes_max
        with self._guard(task, quarantine) as guard, rows.relay or nullcontext():
            for position in guard.each(positions):
                if position == middle:
                    self._fault.reached("in-round")
                partition, record = records[position]
                if left < 0:
                    return position
                now[0] = position
                place, failure = (position, partition, record), decided.get(position)
                left -= self._run_record(
                    task, rows, quarantine, place, failure, with_steps=command.with_steps
                )
        return None

    def _run_record(
        self,
        task: Task,
        rows: RoundRows,
        quarantine: Quarantine,
        place: tuple[int, LogPartition, Record],
        decided: bytes | None,
        *,
        with_steps: bool,
    ) -> int:
        """Run a record's requests, and its workflow steps if they run with them; return the bytes of the output.

        Args:
            quarantine: Takes the notes.
            place: The position of the record, its partition, and the record.
            decided: The failure of the record, which then does not run; a handler may wait for its outcome.
            with_steps: Whether the workflow steps run with the requests.
        """
        position, partition, record = place
        request = (position, record.request_id, record.body, record.time_us)
        outcome = task.set_aside(*request, decided) if decided else task.run(*request)
        if quarantine.careful and decided is None:
            quarantine.measure()
        if outcome is None:
            self._lines.take({})
            return 0
        rows.add(position, partition, record, outcome, task.root)
        rows.wrote(position, task.wrote)
        cascade = task.cascade
        if cascade is None:
            if self._lines.wrote:
                failed = {str(record.request_id): outcome.error} if outcome.error else {}
                rows.take_lines(position, self._lines, failed)
            return _size_of(outcome)
        if with_steps and cascade.has_steps:
            failure = None if outcome.error is None else decode_failure(outcome.reply)
            work = ProcessedRecord(*place, failure, outcome.reply, cascade)
            size = run_steps(task, rows, quarantine, work)
        else:
            if rows.relay is not None and cascade.has_steps:
                rows.relay.add(position, partition, record, outcome, cascade)
            size = rows.cascades.add(position, partition, record, cascade)
        if self._lines.wrote:
            rows.take_lines(position, self._lines, _failures(record, outcome, cascade))
        return _size_of(outcome) + size

    def _task(self, stores: PartitionedReader, *, tracked: bool) -> Task:
        task = Task(
            self._code.app, stores.get, self._settings.limits, tracked=tracked, keys=stores.keys
        )
        task.executor.secret = self._code.journal.secret
        return task

    def _guard(self, task: Task, quarantine: Quarantine) -> Guard:
        limits, note_due = self._settings.limits, quarantine.note_due
        return Guard(task.executor, limits, batched=True, note_due=note_due)

    def _published(self, command: RunTransactions, own: Tables | None, name: str) -> TaskResult:
        """Write the parts that a command asks for."""
        if not command.publish:
            return TaskResult()
        outputs = [*self._files.read(command.outputs), *([] if own is None else [own])]
        return publish(
            self._code.journal, self._fault, outputs, name, with_steps=command.with_steps
        )

    def _execute_share(self, command: RunShare) -> TaskResult:
        """Run a share of the keys of large atoms, and write a file for the task that does the rest."""
        share = KeyShare(command.share, command.shares)
        works = processed_records(self._files.read(command.outputs))
        name = f"e{command.epoch}-share{command.share}"
        with (
            self._stores.at(Epoch(command.epoch - 1)) as stores,
            Quarantine(self._notes / f"{name}.running") as quarantine,
        ):
            task = self._task(stores, tracked=False)
            if not quarantine.careful:  # after a death of the worker, a single task finds the cause
                try:
                    with self._guard(task, quarantine) as guard:
                        limits = self._settings.limits.cascade_steps, command.output_bytes_max
                        run_share(task, guard.each(works), share, quarantine, self._fault, *limits)
                except (
                    TamperedWith
                ):  # the second pass runs the records alone, and finds which one it is
                    share.steps.clear()
        return TaskResult(output=self._files.write_share(f"{name}-a{_attempt()}", share))

    def _execute_steps(self, command: RunSteps) -> TaskResult:
        """Run the second pass of an epoch, and write its parts; nothing if its relay is lost."""
        relay = RelayReader(command.relay) if command.relay else None
        works = relay.records() if relay else processed_records(self._files.read(command.outputs))
        rows = RoundRows(command.epoch)
        left = command.output_bytes_max
        with self._stores.at(Epoch(command.epoch - 1)) as stores, suppress(RelayLost):
            task = self._task(stores, tracked=False)
            if command.shares:
                assert task.cascades is not None, "the application has streams"
                use_shares(task.cascades, self._files.turns(command.shares))
            with (
                Quarantine(self._notes / f"e{command.epoch}-steps.running") as quarantine,
                self._guard(task, quarantine) as guard,
            ):
                note_parts(task, quarantine)
                _limit_time(task)
                for work in guard.each(works):
                    self._fault.reached("in-steps")
                    left -= run_steps(task, rows, quarantine, work)
                    if self._lines.wrote:
                        rows.take_lines(work.position, self._lines, {})
                    if left < 0:
                        return TaskResult(stopped_at=work.position)
            own = rows.tables(task.written, command.atoms)
            name = f"e{command.epoch}-steps-a{_attempt()}"
            published = publish(self._code.journal, self._fault, [own], name, with_steps=True)
            return msgspec.structs.replace(
                published,
                relay=str(relay.path) if relay else "",
                phases_ms={"steps": rows.steps_s * 1e3},
                lines=list(rows.lines.values()),
            )
        return TaskResult()


def _limit_time(task: Task) -> None:
    """Let a clock cut the cascades of a task; the records that continue them have the places."""
    if task.cascades is not None:
        task.cascades.time = CascadeTime(time.perf_counter, CASCADE_SHARE_S)


def _task_name(epoch: int, number: int, task: int) -> str:
    """Return the name of a task of a round."""
    return f"e{epoch}-r{number}-t{task}"


def _attempt() -> int:
    """Return a number that no other attempt at a task has."""
    attempt = TaskContext.get()
    return attempt.taskAttemptId() if attempt else os.getpid()


def _failures(record: Record, outcome: Outcome, cascade: Cascade) -> dict[str, str]:
    """Return the codes of the failures of a record's request and of those that it has sent, by request id."""
    sent = ((request.request_id, request.outcome.error) for request in cascade.completed)
    every = ((record.request_id, outcome.error), *sent)
    return {str(request_id): error for request_id, error in every if error is not None}


def _size_of(outcome: Outcome) -> int:
    """Return the bytes of the reply and of the written states."""
    size = len(outcome.reply)
    for data in outcome.writes.values():  # a loop, because this runs for every transaction
        if data is not None:
            size += len(data)
    return size


def _phases_ms(clock: Sequence[float], rows: RoundRows) -> dict[str, float]:
    """Return the milliseconds between the times of a clock; `steps` are a part of `run`."""
    between = zip(_PHASES, clock, clock[1:], strict=False)
    return {phase: (end - begin) * 1e3 for phase, begin, end in between} | {
        "steps": rows.steps_s * 1e3
    }


def _samples_of(sampler: CallSampler) -> dict[str, Sample]:
    """Return the observed calls; nothing after an error, because statistics stop no epoch."""
    try:
        return sampler.samples()
    except Exception:  # noqa: BLE001 -- the epoch continues
        _log.exception("statistics of calls are dropped")
        return {}
