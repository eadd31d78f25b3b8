"""The local runtime: one thread processes the requests one by one. It defines the guarantee.

The Spark runtime must answer each log with the same bytes as this runtime. There are no epochs,
rounds or recovery here, only dictionaries. It serves unit tests, debugging with `pdb`, and the tests
of the engine as the oracle.

A failure raises the same error as any other runtime: `Aborted`, with the name of the handler's
exception in `kind`. Only here the exception itself is its `__cause__`, so that the report of a test
shows the line of the handler that raised it.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import filterfalse, groupby, islice, takewhile
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from penstock.base.ids import (
    PRINCIPAL_SEPARATOR,
    EntityKey,
    Epoch,
    Lsn,
    RequestId,
    split_entity_key,
)
from penstock.base.subject_keys import MemoryKeys, new_tree
from penstock.engine.built_indexes import index_updates, settle_places
from penstock.engine.effect_call import record_id
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.imported import ImportedIndexes, ImportResult, imported, refusal_of, result_of
from penstock.engine.replay import apply_changes
from penstock.engine.rows import RowsFound, RowsWanted, decode_rows, find_rows
from penstock.engine.streams import late_flows
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.cascade_runner import CascadeRunner
from penstock.engine.streams.paused_flows import PausedFlow, resuming_id
from penstock.engine.streams.published_rows import (
    ended_scan,
    first_pieces,
    lacking_piece,
    progress_key,
)
from penstock.errors import (
    ClassChanged,
    ConfigError,
    NotUnique,
    PenstockError,
    RequestConflict,
    RequestError,
    UserError,
)
from penstock.log.api import Record
from penstock.model.application import App, unknown
from penstock.model.application_set import combined
from penstock.model.call import Call, append_of, encoded
from penstock.model.catch_up import encode_catch_up, filled, recorded_cut
from penstock.model.context import active
from penstock.model.control import (
    Deploy,
    Erase,
    Import,
    Subscribe,
    decode_control,
    is_control,
)
from penstock.model.reply import Reply, caller_of, failure_of, raised_by
from penstock.model.request import (
    RECORD_BYTES_MAX,
    Cut,
    Failure,
    call_in,
    check_size,
    decode_failure,
    encode_continuation,
    encode_failure,
    is_continuation,
    with_caller,
)
from penstock.model.schema_version import Versions
from penstock.model.streams.packed_atom import plain_atom
from penstock.model.streams.stream import Atom, Stream
from penstock.model.table_scan import ScannedKey, encode_scan, with_keys
from penstock.model.versions.schema_change import compare_classes, with_first_versions
from penstock.model.versions.waiting_types import WaitingTypes, misread_types, waiting_types
from penstock.model.waiting_effect import EFFECT, Settlement, WaitingEffect, decode_waiting_effect
from penstock.process.guard import Guard
from penstock.runtime.generators.run import GeneratorRun, GeneratorState
from penstock.runtime.generators.runner import Appended, GeneratorRunner
from penstock.runtime.local.erasing import erase

T = TypeVar("T")

LATER_RECORDS: Final = 1_000
"""The most records that follow a request before `submit` returns and leaves the others for `settle`."""

TICKS_MAX: Final = 500
"""The most ticks of schedules that one move of the clock may make due."""

LATER_CASCADES: Final = 20
"""The most continuations of cascades among these records."""

_BEFORE_SCANS: Final = -2
"""The number of a scan before that of any deployment."""


class LocalRuntime:
    """Runs an application in this thread, without Spark and without disk.

    Attributes:
        app: The application.
        state: The encoded attributes of every entity, and of every key of a task; names that begin with `$` are those of
            handlers that wait for a reply.
        streams: The published atoms of each stream, in order, by the name of the stream.
        failures: The failures of workflow steps and of generators, each with its exception as `__cause__`.
        call: Calls entities: `runtime.call.Item("i1").update_stock(5)`.
    """

    def __init__(
        self,
        app: App,
        *others: App,
        limits: Limits | None = None,
        clock: Callable[[], int] = lambda: 0,
        secret: bytes = b"",
        durable_waits: bool = False,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        """Start with no entities.

        Args:
            app: The application.
            others: Further applications, which run together with it; see `penstock.registry`.
            limits: The limits of one transaction, and of one cascade.
            clock: Returns microseconds since the Unix epoch.
            secret: The secret of a journal, which `random()` and `uuid()` use, to agree with it.
            durable_waits: Let each wait for a reply go through the state, as a wait that is longer than a record does:
                the handler is stored, and runs again from its start when the reply arrives. The outcome is the same;
                a test finds handlers that are not deterministic.
            record_bytes_max: The most bytes of a request or an append, as the setting of this name.

        Raises:
            DefinitionError: The applications do not fit together.
        """
        self.state: dict[EntityKey, bytes] = {}
        self._limits = limits or Limits()
        self._record_bytes_max = record_bytes_max
        self._raised: BaseException | None = None
        self._clock = clock
        self._secret = secret
        self._durable_waits = durable_waits
        self._versions: dict[str, Versions] = {}  # of stored classes, at the last deployment
        self._written: set[str] = (
            set()
        )  # classes that ever had a row, as the journal's shapes know them
        self._waiting: WaitingTypes = {}  # the types of waiting values, at the last deployment
        self._effects: dict[
            EntityKey, None
        ] = {}  # the rows of effects, in the order of their sends
        self.streams: dict[str, list[Atom]] = {}
        self._later: deque[Record] = deque()
        self._cuts: Mapping[RequestId, Cut] = {}
        self._scheduled: list[Record] = []
        self._ticked_us = clock()
        self.failures: list[PenstockError] = []
        self._known: dict[RequestId, tuple[bytes, Reply]] = {}
        self._scans = 0
        self._use(combined((app, *others)))
        self._subscribe_late()
        # Nothing is there yet; a log that is replayed has scans of its own.
        self._unscanned = {
            progress_key(first.subject): ended_scan(first)
            for first in first_pieces(self.app.topology, _BEFORE_SCANS)
        }
        self.state.update(self._unscanned)

    def _use(self, app: App) -> None:
        """Let all later records run with an application."""
        self.app = app
        self.call = caller_of(self)
        if app.is_personal and app.keys is None:  # else a data directory has given the keys
            app.use_keys(MemoryKeys(new_tree(self._secret)))
        self._executor = Executor(app, self.state.get, self._limits)
        self._executor.secret = self._secret
        self._executor.keeps_raised = self._executor.delivers = True
        for name in app.topology.streams:
            self.streams.setdefault(name, [])
        self._runner = CascadeRunner(
            app,
            self._executor,
            self.state.get,
            self._keys,
            self._apply,
            self._limits,
            durable_waits=self._durable_waits,
        )
        self._runner.on_failure = self._note_failure
        self._runner.cuts = self._cuts
        self._generators = GeneratorRunner(app, self)
        self._generators.on_failure = self._note_generator

    def deploy(self, app: App, *others: App, drop: Collection[str] = ()) -> list[str]:
        """Let all later requests run with other code over the present state, as a deployment does.

        So a test finds out whether stored entities fit changed classes, and what a function with `@migrate` makes of them.

        Args:
            app: The application with the other code.
            others: Further applications, as for a new runtime.
            drop: The classes that have entities and that the other code lacks; their entities stay in the state.

        Returns:
            The changes of the classes that have entities, a sentence for each.

        Raises:
            ClassChanged: A class cannot read its stored entities; the present code stays.
            ConfigError: It is another application.
            NotUnique: Stored entities have the same value of an attribute that is unique now.
        """
        changes = self._deploy(combined((app, *others)), drop)
        self._subscribe_late()
        self._scan()
        self.settle()
        return changes

    def _deploy(self, app: App, drop: Collection[str], *, is_recorded: bool = False) -> list[str]:
        """Let all later records run with an application; see `deploy`.

        Args:
            is_recorded: Whether the rows of indexes have the places that a driver gives them.
        """
        if app.name != self.app.name:
            raise ConfigError(f"application {self.app.name} runs here; {app.name} is another")
        versions = with_first_versions(self._versions, self._written, self.app.stored)
        comparison = compare_classes(versions, app.stored, 0, drop)
        waiting = waiting_types(app)
        known = {**waiting_types(self.app), **self._waiting}
        refusals = comparison.refusals + misread_types(known, waiting)
        if refusals:
            raise ClassChanged("\n".join(refusals))
        if (
            is_recorded
        ):  # another runtime of this process may have the application in its first places
            settle_places(app, self.app.indexes)
        updates = self._index_updates(app)
        self._waiting = {**known, **waiting}
        self._versions = comparison.after
        self._use(app)
        apply_changes(self.state, updates)
        changes = ((change.name, line) for change in comparison.changes for line in change.changes)
        return [f"{name}: {line}" for name, line in changes]

    def _index_updates(self, app: App) -> dict[EntityKey, bytes | None]:
        """Return the changes of the state that give it the indexes of other code; raises `NotUnique`."""
        if app.is_personal and app.keys is None:
            app.use_keys(self.app.keys or MemoryKeys(new_tree(self._secret)))
        return index_updates(
            app,
            self.app.indexes,
            lambda prefix: [(key, self.state[key]) for key in self._keys(prefix)],
        )

    def submit(self, call: Call[Any], rights: bytes = b"") -> Reply:
        """Process a call as one request; see `penstock.model.reply.Runtime`.

        Args:
            rights: The rights of the caller that the request id names; see `model.principal`.
        """
        if active() is not None:
            raise RequestError("a handler calls entities itself; it cannot wait for a request")
        body, _ = encoded(self.app, call)
        body = with_caller(body, rights)
        check_size(body, self._record_bytes_max, call.request_id or "")
        return self._submit(body, call.request_id)

    def rows(self, wanted: RowsWanted, principal: str) -> RowsFound:
        """Return rows as a gateway shows them to a caller.

        Args:
            principal: The id of the caller; empty: the right of the class is not asked.

        Raises:
            NoSuchEntity: The entity does not exist.
            Forbidden: The caller may not use it.
            RequestError: A filter does not fit the class.
        """

        def items_of(prefix: str, after: str) -> list[tuple[EntityKey, bytes]]:
            first = prefix + after
            keys = sorted(key for key in self.state if key.startswith(prefix))
            return [(key, self.state[key]) for key in keys if not after or key > first]

        asked = RequestId(f"{principal}{PRINCIPAL_SEPARATOR}rows" if principal else "rows")
        with self._guard():
            outcome = find_rows(
                self.app, self._executor, asked, self._clock(), wanted, self.state.get, items_of
            )
        if outcome.error is not None:
            raise raised_by(decode_failure(outcome.reply))
        return decode_rows(outcome.reply)

    def append(
        self, stream: Stream[T] | str, events: Iterable[T], *, request_id: str | None = None
    ) -> Reply:
        """Publish events on a stream, as one atom, and run their cascade.

        Args:
            stream: The stream, or its name.
            events: The events of the atom.
            request_id: The id of the append; an append with a known id has no effect.

        Raises:
            RequestError: The stream does not exist or takes no appends, or an event does not fit its type.
        """
        body, _ = encoded(self.app, append_of(stream, events))
        check_size(body, self._record_bytes_max, request_id or "")
        return self._submit(body, request_id)

    def append_atom(self, stream: str, events: Sequence[Any], request_id: str) -> int:
        """Append an atom of a generator; see `penstock.runtime.generators.runner.AppendPort`."""
        self.append(stream, events, request_id=request_id)
        return 0

    def appended(self, request_id: str) -> Appended:
        """Say whether a request or an append with this id is known."""
        return Appended.KNOWN if request_id in self._known else Appended.NEVER

    def generate(self, generator: str | None = None, *, early: bool = False) -> bool:
        """Append the next atom of a generator, and run its cascade.

        Args:
            generator: The name of a generator; without it, the generator whose atom is due first.
            early: Append the atom before its time, too.

        Returns:
            Whether an atom was appended. No atom is due, or the generator is finished or has failed: see `generators`.

        Raises:
            RequestError: The generator does not exist.
        """
        return self._generators.step(generator, self._clock(), early=early) is not None

    def generators(self) -> list[GeneratorState]:
        """Return the state of each generator, in the order of the application."""
        return self._generators.states(self._clock())

    def paused(self) -> dict[str, PausedFlow]:
        """Return the workflows that are paused, by name, each with its failure and the number of held steps."""
        states = {name: self._runner.paused.state_of(name) for name in self.app.topology.workflows}
        return {name: state for name, state in states.items() if state.failure is not None}

    def resume(self, flow: str, *, skip: bool = False) -> None:
        """Let a paused workflow take the atoms that it holds, in order, the failed atom first.

        Args:
            flow: The name of the workflow.
            skip: Set the failed atom aside, and begin with the next one.

        Raises:
            RequestError: The workflow does not exist, or it is not paused.
        """
        paused = self.paused()
        if flow not in self.app.topology.workflows:
            raise RequestError(unknown("workflow", flow, self.app.topology.workflows))
        if flow not in paused:
            raise RequestError(f"workflow {flow} is not paused")
        request_id = resuming_id(flow, paused[flow].number, skip=skip)
        self._submit(encode_continuation(), request_id)

    def _submit(self, body: bytes, chosen_id: str | None) -> Reply:
        request_id = RequestId(f"local-{len(self._known)}" if chosen_id is None else chosen_id)
        fresh = request_id not in self._known
        with self._guard():
            reply = self._process(self._record(request_id, body, self._clock()))
            raised = self._raised
            self._settle()
        return replace(reply, cause=raised) if fresh and raised is not None else reply

    def replay(
        self,
        records: Iterable[Record],
        codes: Mapping[str, App] = MappingProxyType({}),
        cuts: Mapping[RequestId, Cut] | None = None,
        staged: Mapping[str, tuple[Sequence[str], Sequence[bytes]]] = MappingProxyType({}),
    ) -> list[Reply]:
        """Process the records of a log, in order, and return their replies.

        The requests that cascades append to the log are among the records, so the runtime appends none.

        Args:
            records: The records. A move changes nothing here; an erasure destroys keys that are in memory.
            codes: The application of each deployment, by the name of its archive.
            staged: The rows of imports by the names of their files: texts of keys, and states.
            cuts: The places where cascades were cut, by the id of the record that continues each; None: as these records say.
        """
        replies: list[Reply] = []
        every = list(records)
        if cuts is None:
            cuts = {record.request_id: recorded_cut(record.body) for record in every}
        self._cuts = self._runner.cuts = cuts
        for control in late_flows.subscriptions(self.app.topology):
            self.state.pop(late_flows.late_key(control.flow), None)  # the log has the subscriptions
        for key, row in self._unscanned.items():
            if self.state.get(key) == row:
                del self.state[key]
        for are_controls, group in groupby(every, lambda record: is_control(record.body)):
            if are_controls:
                replies += [self._control(record, codes, staged) for record in group]
                continue
            with self._guard() as guard:
                replies += [self._process(record) for record in guard.each(group)]
        self._later.clear()
        self._cuts = self._runner.cuts = {}
        return replies

    def waiting_effects(self) -> list[WaitingEffect]:
        """Return the effects that wait, in the order in which they were sent. This runtime calls none; see `settle_effect`."""
        rows = [decode_waiting_effect(self.state[key]) for key in self._effects]
        return [row for row in rows if row.state != "dead"]

    def settle_effect(self, settlement: Settlement) -> Reply:
        """Record the outcome of an effect, and run everything that it causes; only the first outcome counts."""
        return self._submit(settlement.body(), record_id(settlement))

    def _guard(self) -> Guard:
        """Return the limits of handlers; this process is the user's, so no handler ends it."""
        return Guard(self._executor, self._limits, may_end_process=False)

    def _control(
        self,
        record: Record,
        codes: Mapping[str, App],
        staged: Mapping[str, tuple[Sequence[str], Sequence[bytes]]],
    ) -> Reply:
        """Execute a control record, or answer one that changes nothing here."""
        control, outcome = decode_control(record.body), Outcome(None, b"\xc0", (), {})
        try:
            if isinstance(control, Deploy):
                self._deploy(codes[control.code.archive], control.dropped, is_recorded=True)
            elif isinstance(control, Erase):
                erase(self.app, self.state, control)
            elif isinstance(control, Subscribe):
                first = self._subscribe(control)
                outcome = Outcome(None, msgspec.msgpack.encode(first), (), {})
            elif isinstance(control, Import):
                rows = [staged[piece] for piece in control.pieces]
                made = self._import(control, rows, Epoch(record.lsn))
                outcome = Outcome(None, msgspec.msgpack.encode(made), (), {})
        except (ClassChanged, ConfigError, NotUnique, RequestError) as error:
            failure = failure_of(error)
            outcome = Outcome(failure.code, encode_failure(failure), (), {})
        return self._answer(record, outcome)

    def _import(
        self,
        control: Import,
        pieces: Sequence[tuple[Sequence[str], Sequence[bytes]]],
        epoch: Epoch,
    ) -> ImportResult:
        entity_type = self.app.readable[control.entity]
        prefix = entity_type.prefix
        every = [
            imported(entity_type, rows, self.state.get, control.existing, self._limits.state_bytes)
            for rows in pieces
        ]
        if refused := sum(each.refused for each in every):
            named = [name for each in every for name in each.named]
            raise RequestError(refusal_of(control.entity, refused, named, control.existing))
        indexes = ImportedIndexes(entity_type, self.state.get)
        for each in every:
            indexes.note(each)
        updates = indexes.rows()
        for each in every:
            keys = (EntityKey(prefix + text) for text in each.texts)
            self._apply(dict(zip(keys, each.states, strict=True)))
        self._apply(updates)
        return result_of(control.entity, every, epoch)

    def settle(self) -> bool:
        """Process the requests that are due, and those that cascades have appended to the log.

        Returns:
            Whether nothing is left; something is after many records, such as an endless cycle of workflows.
        """
        with self._guard():
            now_us = self._clock()
            self._scheduled += self._ticks(now_us)
            due = [record for record in self._scheduled if record.time_us <= now_us]
            self._scheduled = [record for record in self._scheduled if record.time_us > now_us]
            self._later += sorted(due, key=lambda record: record.time_us)
            return self._settle()

    def _ticks(self, now_us: int) -> list[Record]:
        """Return the ticks of schedules that have become due since the last call, whatever is missed elsewhere."""
        last, now = _moment(self._ticked_us), _moment(now_us)
        self._ticked_us = now_us
        records: list[Record] = []
        for schedule in self.app.schedules.values():
            every = takewhile(now.__ge__, schedule.after(last))
            records += [
                Record(Lsn(0), schedule.tick_id(due), schedule.body(due), _us_of(due))
                for due in islice(every, TICKS_MAX + 1)
            ]
            if len(records) > TICKS_MAX:
                raise UserError(
                    f"the clock has moved by more than {TICKS_MAX} ticks of schedules, the last ones of {schedule.name}; move "
                    "it in smaller steps"
                )
        return records

    def _settle(self) -> bool:
        continuations = 0
        for _ in range(LATER_RECORDS):
            if not self._later or continuations == LATER_CASCADES:
                break
            record = self._later.popleft()
            continuations += is_continuation(record.body)
            # Its position is known now, and was not when it was sent.
            self._process(msgspec.structs.replace(record, lsn=Lsn(len(self._known))))
        return not self._later

    def _record(self, request_id: RequestId, body: bytes, time_us: int) -> Record:
        return Record(Lsn(len(self._known)), request_id, body, time_us)

    def _process(self, record: Record) -> Reply:
        known = self._known.get(record.request_id)
        if known is not None:
            if call_in(known[0]) != call_in(record.body):
                raise RequestConflict(f"request id {record.request_id} has another body already")
            return known[1]
        outcome = self._executor.run(record.request_id, record.body, record.time_us)
        self._raised = self._executor.raised
        self._apply(outcome.writes)
        reply = self._answer(record, outcome)
        cascade = self._runner.run_requests(record.request_id, record.body, record.time_us, outcome)
        if cascade is not None:
            failure = None if outcome.error is None else decode_failure(outcome.reply)
            self._runner.run_steps(cascade, failure, outcome.reply)
            self._take_over(cascade)
        return reply

    def _answer(self, record: Record, outcome: Outcome) -> Reply:
        place = record.request_id, record.lsn, Epoch(record.lsn)
        reply = Reply(*place, outcome.error, outcome.reply)
        self._known[record.request_id] = (record.body, reply)
        return reply

    def _take_over(self, cascade: Cascade) -> None:
        """Keep the atoms and replies of a cascade, and the records that it appends to the log."""
        for atom in cascade.published:
            self.streams[atom.stream].append(plain_atom(atom.events))
        for request_id, body, outcome in cascade.completed:
            self._answer(self._record(request_id, body, cascade.time_us), outcome)
        for request_id, body, delay_us in cascade.later:
            record = self._record(request_id, body, cascade.time_us + delay_us)
            if delay_us:
                self._scheduled.append(record)
            else:
                self._later.append(msgspec.structs.replace(record, body=self._filled(body)))

    def _subscribe_late(self) -> None:
        """Subscribe the workflows that begin with earlier atoms, and are new."""
        for control in late_flows.subscriptions(self.app.topology):
            if late_flows.late_key(control.flow) not in self.state:
                self._subscribe(control)

    def _subscribe(self, control: Subscribe) -> int:
        """Subscribe a workflow; its first piece is a later record. Return the number of its first atom."""
        row = late_flows.subscription(control, len(self.streams[control.stream]))
        self.state[late_flows.late_key(control.flow)] = row
        state = late_flows.decode_progress(row)
        if not state.is_live:
            piece = late_flows.next_piece(control.flow, control.stream, state)
            body = self._filled(encode_catch_up(piece))
            self._later.append(self._record(piece.record, body, self._clock()))
        return state.first

    def _filled(self, body: bytes) -> bytes:
        body = filled(body, lambda stream, first: enumerate(self.streams[stream][first:], first))
        return with_keys(body, self._keys_after)

    def _keys_after(self, prefix: str, after: str) -> Iterator[ScannedKey]:
        for key in self._keys(prefix):
            text = key.removeprefix(prefix)
            if text > after:
                yield ScannedKey(text, len(self.state[key]))

    def _scan(self) -> None:
        """Begin the scans for published tables that the present code needs."""
        self._scans += 1
        for first in first_pieces(self.app.topology, self._scans):
            piece = lacking_piece(first, self.state.get(progress_key(first.subject)))
            if piece is not None:
                body = self._filled(encode_scan(piece))
                self._later.append(self._record(piece.record, body, self._clock()))

    def _apply(self, writes: dict[EntityKey, bytes | None]) -> None:
        for key in filterfalse(self.state.__contains__, writes):
            self._written.add(split_entity_key(key)[0])
        apply_changes(self.state, writes)
        for key in filter(_is_effect, writes) if self.app.effects else ():
            if writes[key] is None:
                self._effects.pop(key, None)
            else:
                self._effects[key] = None

    def _note_failure(self, failure: Failure) -> None:
        error = raised_by(failure)
        error.__cause__ = self._executor.raised
        self.failures.append(error)

    def _note_generator(self, run: GeneratorRun) -> None:
        error = UserError(run.reason)
        error.__cause__ = run.cause
        self.failures.append(error)

    def _keys(self, prefix: str) -> list[EntityKey]:
        return sorted(key for key in self.state if key.startswith(prefix))


def _is_effect(key: EntityKey) -> bool:
    return key.startswith(f"{EFFECT}/")


_UNIX_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def _moment(time_us: int) -> datetime:
    return _UNIX_EPOCH + timedelta(microseconds=time_us)


def _us_of(moment: datetime) -> int:
    return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)
