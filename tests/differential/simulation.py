"""The engine without Spark, disk and processes: one loop that plays driver and workers.

Rounds and tasks are the engine's own, drafts and their filtering are the runtime's own files; what
is simulated is only who runs where. Everything that the layout of an epoch may depend on is a
parameter, so that a test can choose the worst.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import event
from hypothesis import strategies as st

from penstock.base.ids import (
    BUCKETS,
    EntityKey,
    Epoch,
    Fingerprint,
    LogPartition,
    Lsn,
    RequestId,
    bucket_of,
    entity_key,
    fingerprint_of,
)
from penstock.engine.access import Positions
from penstock.engine.access_memory import FirstRounds
from penstock.engine.calls import CallSampler, members_of
from penstock.engine.execute import Limits
from penstock.engine.order import Hosts
from penstock.engine.step import EpochRun, Round
from penstock.engine.streams.cascade import LaterRecord
from penstock.engine.streams.cascade_runner import CascadeTime
from penstock.engine.task import Task
from penstock.journal.api import SCHEMAS, PartKind
from penstock.journal.atoms import decode_atom
from penstock.log.api import Record
from penstock.model.application import App
from penstock.model.request import cut_of, decode_failure, is_continuation
from penstock.model.streams.stream import Atom
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark.rows import (
    RoundRows,
    Tables,
    merge,
    read_output,
    roots_of,
    write_output,
)
from penstock.runtime.spark.stage import processed_records
from penstock.runtime.spark.step_relay import ProcessedRecord

LIMITS = Limits(cascade_steps=40)
_KNOWN = 30  # entities that a history can name, generously


@dataclass(frozen=True)
class Layout:
    """Assigns positions to tasks.

    `scatter` says how the first round is assigned: "touches" as the driver does it, "apart" puts
    transactions that are related by what they are known to touch into different tasks, a number
    is the seed of a random assignment. With several hosts a task sees its own host's entities
    only; which those are is drawn from `scatter` too.
    """

    tasks: int
    hosts: int = 1
    scatter: str | int = "touches"

    def first(self, hints: Sequence[bytes], rounds: FirstRounds) -> list[Positions]:
        together = rounds.spread(list(hints), self.tasks)
        match self.scatter:
            case "touches":
                return together
            case "apart":
                related = np.concatenate(together)  # a component's members are neighbours here
                task_of = np.empty(related.size, np.int64)
                task_of[related] = np.arange(related.size) % self.tasks
            case seed:
                chance = np.random.default_rng(int(seed))
                task_of = chance.integers(0, self.tasks, len(hints))
        return [np.flatnonzero(task_of == task).astype(np.uint32) for task in range(self.tasks)]

    def of_hosts(self) -> Hosts | None:
        if self.hosts == 1:
            return None
        chance = np.random.default_rng(self.scatter if isinstance(self.scatter, int) else 0)
        of_task = tuple(task % self.hosts for task in range(self.tasks))
        return Hosts(of_task, chance.integers(0, min(self.hosts, self.tasks), BUCKETS))


@dataclass(frozen=True)
class Program:
    """Bodies of records, the places where epochs end, and what a clock says: it cuts cascades at any place."""

    bodies: tuple[bytes, ...]
    layout: Layout
    epoch: int
    clock: tuple[float, ...]

    def clock_of(self) -> Callable[[], float] | None:
        """Return a clock whose steps repeat; None if there are no steps."""
        seconds = accumulate(cycle(self.clock))
        return (lambda: next(seconds)) if self.clock else None


def programs_of(bodies: st.SearchStrategy[bytes], most: int) -> st.SearchStrategy[Program]:
    """Draw programs of at most so many records, on one host."""
    scatter = st.sampled_from(["touches", "apart"]) | st.integers(0, 99)
    return st.builds(
        Program,
        st.lists(bodies, min_size=1, max_size=most).map(tuple),
        st.builds(Layout, st.integers(1, 3), st.just(1), scatter),
        st.integers(1, 8),
        st.lists(st.sampled_from([0.0, 0.02, 0.06]), max_size=7).map(tuple),
    )


@dataclass(frozen=True)
class Answer:
    """The recorded reply to a request."""

    request_id: str
    error: str | None
    data: bytes


LOG_MAX = 250


class Simulation:
    """Runs epochs of an application over a state that is a dictionary.

    Attributes:
        state: The encoded attributes of every entity, after the last epoch.
        rounds: Rounds that the last epoch took.
        streams: The atoms of each stream.
        sent: The replies to the requests that handlers have sent.
        later: The records that the last epoch appends to the log.
    """

    def __init__(
        self,
        app: App,
        layout: Layout,
        state: dict[EntityKey, bytes],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Begin; with a clock, cascades are cut when it says that their time is over."""
        self._app = app
        self._clock = clock
        self._members = members_of(app)
        self._layout = layout
        self._hosts = layout.of_hosts()
        self._epoch = Epoch(-1)
        self._first_rounds = FirstRounds()
        self.state = dict(state)
        self.rounds = 0
        self.streams: dict[str, list[Atom]] = {name: [] for name in app.topology.streams}
        self.sent: list[Answer] = []
        self.later: list[LaterRecord] = []

    def epoch(self, records: Sequence[Record], hints: Sequence[bytes]) -> list[Answer]:
        """Process an epoch and commit it; return its replies in log order."""
        self._epoch = Epoch(self._epoch + 1)
        run = EpochRun(len(records), self._layout.first(hints, self._first_rounds), self._hosts)
        drafts: list[tuple[int, Path]] = []
        names: dict[Fingerprint, EntityKey] = {}
        with tempfile.TemporaryDirectory() as folder:
            while (now := run.next_round()) is not None:
                assert now.number <= self._rounds_most(len(records)), "rounds do not end"
                tasks = [self._task(now, number, names) for number in range(len(now.tasks))]
                for number, task in enumerate(tasks):
                    path = Path(folder, f"r{now.number}-t{number}")
                    rows = self._run(task, now.tasks[number], records)
                    write_output(rows.tables(task.written, self._atoms()), path)
                    drafts.append((now.number, path))
                    names |= {fingerprint_of(key): key for key in task.wanted}
                run.absorb([task.access() for task in tasks])
            several = [read_output(path, run.superseded(number)) for number, path in drafts]
            parts, roots = [merge(several)], roots_of(several)
            if run.tasks > 1:
                parts[0].pop(PartKind.EVENTS, None)
                parts.append(self._second_pass(several))
        counted = sum(not is_continuation(record.body) for record in records)
        assert sum(roots.values()) == counted, "each record counts once, however often it ran"
        self.rounds = run.rounds
        if run.tasks > 1:
            self._first_rounds.learn(run)
        return self._commit(parts, records)

    def _rounds_most(self, count: int) -> int:
        """Each round joins two components at least, or finds an entity that was not shipped."""
        return count + 2 + (_KNOWN + count if self._hosts else 0)

    def _task(self, now: Round, number: int, names: dict[Fingerprint, EntityKey]) -> Task:
        hosts = self._hosts
        if hosts is None:
            return self._whole_task()
        needed = [Fingerprint(one) for one in now.ships[number].tolist()]
        wanted = [names[one] for one in needed if one in names]

        def is_local(key: EntityKey) -> bool:
            return bool(hosts.of_bucket[bucket_of(key)] == hosts.of_task[number])

        def base(key: EntityKey) -> bytes | None:
            assert is_local(key), f"{key} was read where it is not"
            return self.state.get(key)

        shipped = {key: self.state.get(key) for key in wanted}
        return Task(self._app, base, Limits(), is_local=is_local, shipped=shipped)

    def _whole_task(self) -> Task:
        task = Task(self._app, self.state.get, LIMITS, keys=self._keys)
        if self._clock is not None and task.cascades is not None:
            task.cascades.time = CascadeTime(self._clock, short=1)
        return task

    def _keys(self, prefix: str) -> list[EntityKey]:
        return sorted(key for key in self.state if key.startswith(prefix))

    def _atoms(self) -> dict[str, int]:
        return {name: len(atoms) for name, atoms in self.streams.items()}

    def _second_pass(self, several: list[Tables]) -> Tables:
        task, rows = self._whole_task(), RoundRows(self._epoch)
        for work in processed_records(several):
            self._steps(task, rows, work)
        return merge([rows.tables(task.written, self._atoms())])

    @staticmethod
    def _steps(task: Task, rows: RoundRows, work: ProcessedRecord) -> None:
        task.run_steps(work.cascade, work.failure, work.reply)
        rows.wrote(work.position, task.wrote)
        rows.cascades.add(work.position, work.partition, work.record, work.cascade)

    def _run(self, task: Task, positions: Positions, records: Sequence[Record]) -> RoundRows:
        rows = RoundRows(self._epoch)
        task.executor.sampler = CallSampler(self._members)  # which must not show in any outcome
        for position in positions.tolist():
            record = records[position]
            outcome = task.run(position, record.request_id, record.body, record.time_us)
            if outcome is None:
                continue
            rows.add(position, LogPartition(0), record, outcome, task.root)
            rows.wrote(position, task.wrote)
            if (cascade := task.cascade) is None:
                continue
            if self._layout.tasks == 1 and cascade.has_steps:
                failure = None if outcome.error is None else decode_failure(outcome.reply)
                place = position, LogPartition(0), record
                self._steps(task, rows, ProcessedRecord(*place, failure, outcome.reply, cascade))
            else:
                rows.cascades.add(position, LogPartition(0), record, cascade)
        return rows

    def _commit(self, parts: list[Tables], records: Sequence[Record]) -> list[Answer]:
        apply(self.state, rows_of(parts, PartKind.CHANGES))
        for row in rows_of(parts, PartKind.EVENTS).to_pylist():
            assert row["atom"] == len(self.streams[row["stream"]]), "numbers have no gaps"
            atom = decode_atom(row["events"])
            assert row["count"] == len(atom)
            self.streams[row["stream"]].append(atom)
        self.sent += answers_of(rows_of(parts, PartKind.SENT))
        appends = rows_of(parts, PartKind.APPENDS).to_pylist()
        later = {row["request_id"]: row for row in sorted(appends, key=lambda row: row["lsn"])}
        self.later = [
            LaterRecord(name, row["request"], row["delay_us"]) for name, row in later.items()
        ]
        rows = rows_of(parts, PartKind.TRANSACTIONS)
        lsns = rows["lsn"].to_pylist()
        assert lsns == [record.lsn for record in records], "one reply each"
        return answers_of(rows)

    def equals(
        self, serial: LocalRuntime, bodies: Sequence[bytes], size: int
    ) -> tuple[list[Record], int]:
        """Process a log in epochs of `size` records, and compare each with one thread, in replies, state and streams.

        Returns:
            The log, with the records that epochs have appended, and the number of records that were processed: a cascade
            that goes on for ever ends with `LOG_MAX` records.
        """
        first = len(serial._known)
        log = [
            Record(Lsn(first + index), RequestId(f"r{index}"), body, 1_000 * index)
            for index, body in enumerate(bodies)
        ]
        done = 0
        while done < len(log) < LOG_MAX:
            records = log[done : done + size]
            answers = self.epoch(records, [b""] * len(records))
            done += len(records)
            cuts = {later.request_id: cut_of(later.body) for later in self.later}
            expected = serial.replay(records, cuts=cuts)
            assert answers == [Answer(one.request_id, one.error, one.data) for one in expected]
            assert self.state == serial.state
            assert self.streams == serial.streams
            log += [
                Record(Lsn(first + len(log) + index), later.request_id, later.body, 1_000_000)
                for index, later in enumerate(self.later)
            ]
            event("rounds", self.rounds)
        for answer in self.sent:
            _, reply = serial._known[RequestId(answer.request_id)]
            assert answer == Answer(reply.request_id, reply.error, reply.data)
        return log, done


def rows_of(parts: list[Tables], part_kind: PartKind) -> pa.Table:
    """Return the rows of all parts of a kind."""
    tables = [tables[part_kind] for tables in parts if part_kind in tables]
    return pa.concat_tables(tables) if tables else SCHEMAS[part_kind].empty_table()


def answers_of(rows: pa.Table) -> list[Answer]:
    """Return the replies in rows of transactions."""
    return [Answer(row["request_id"], row["error"], row["reply"]) for row in rows.to_pylist()]


def apply(state: dict[EntityKey, bytes], changes: pa.Table) -> None:
    """Fold an epoch's changes into a state; an entity occurs once at most."""
    rows = changes.to_pylist()
    named = [entity_key(row["entity"], row["key"]) for row in rows]
    assert len(set(named)) == len(named), f"changed twice: {sorted(named)}"
    for key, row in zip(named, rows, strict=True):
        if row["state"] is None:
            state.pop(key, None)
        else:
            state[key] = row["state"]
