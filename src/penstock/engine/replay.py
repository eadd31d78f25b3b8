"""Replay: runs the records of an epoch again, and compares the results with the recorded epoch.

A record is run with its whole cascade: the requests that handlers send, and the steps of workflows.

This module does no I/O: the caller reads the journal, supplies the state before the epoch, and enforces
the limits of handlers. Results are compared as bytes; values are decoded only to show a difference.

A transaction that exceeded a limit, or was set aside, does not run again, because time and memory
depend on the machine. Its recorded outcome is used, and it is counted. The same is true for sent requests and
workflow steps, which are not counted, and for control records, which run no handler.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.ids import (
    EntityKey,
    Epoch,
    Lsn,
    RequestId,
    is_system,
    split_entity_key,
)
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import DECIDED
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.observed_cascades import ObservedCascades
from penstock.engine.streams.recorded_cascade import NOTHING, RecordedCascade, cascade_differences
from penstock.errors import Diverged
from penstock.model.application import App
from penstock.model.control import is_control
from penstock.model.request import decode_failure
from penstock.model.versions.former_class import are_equal, plain_attributes

REPLY: Final = "reply"
"""The `place` of a difference that is about a reply; entity keys contain a slash."""

_encode: Final = msgspec.msgpack.Encoder().encode


class RequestRow(NamedTuple):
    """A request of an epoch, with its recorded outcome."""

    lsn: Lsn
    request_id: RequestId
    time_us: int
    body: bytes
    error: str | None
    reply: bytes


@dataclass(frozen=True, slots=True)
class RecordedEpoch:
    """An epoch as the journal has it.

    Attributes:
        time_us: When it was committed, microseconds since the Unix epoch.
        rows: Its requests, in order.
        changes: Every entity that it changed, with the state afterwards (None: deleted).
        cascades: The cascades of its records, by position in the log; records that caused nothing are left out.
    """

    epoch: Epoch
    time_us: int
    rows: Sequence[RequestRow]
    changes: dict[EntityKey, bytes | None]
    cascades: Mapping[Lsn, RecordedCascade] = field(default_factory=dict)

    def cascade(self, row: RequestRow) -> RecordedCascade:
        """Return the cascade of a record of the epoch."""
        return self.cascades.get(row.lsn, NOTHING)


class ValueDifference(NamedTuple):
    """One value that differs from the recorded value.

    Attributes:
        place: `reply`, or the entity.
        attribute: Empty for a reply, and where the entity did not exist on one side.
    """

    place: str
    attribute: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first request of an epoch after which a value differs from the recorded value.

    Attributes:
        position: The position of the request in its epoch, from 0.
        findings: The differences of its reply, and of the entities that it was the last to change.
        suspects: Positions of all requests that may be the cause: those that wrote a value that
            differs, and the first request whose reply differs.
    """

    position: int
    findings: tuple[ValueDifference, ...]
    suspects: tuple[int, ...]


class Replayer:
    """Runs the records of epochs, one by one, over a state of its own.

    Attributes:
        state: The state before the epoch that runs.
        written: The states that the requests of this epoch have written so far.
        executor: Runs the handlers; a guard uses it to enforce limits.
        cascade: The cascade of the last record; None if it has caused nothing.
        ran: The cascades of the records that `run_all` has run last, in order.
        step_reads: The rows that the workflow steps of this epoch's records have read, by the id of the record.
    """

    def __init__(self, app: App, state: dict[EntityKey, bytes], limits: Limits) -> None:
        self.app = app
        self.state = state
        self.written: dict[EntityKey, bytes | None] = {}
        written = self.written

        def read(key: EntityKey) -> bytes | None:
            return written[key] if key in written else state.get(key)

        def read_row(key: EntityKey) -> bytes | None:
            self._noted[key] = None
            return read(key)

        self.read = read
        self.executor = Executor(app, read, limits)
        self.executor.delivers = True
        self.cascades = ObservedCascades(
            app, self.executor, read_row, self._keys, self._apply, limits
        )
        self.cascade: Cascade | None = None
        self.ran: list[Cascade | None] = []
        self._noted: dict[EntityKey, None] = {}
        self.step_reads: dict[RequestId, dict[EntityKey, None]] = {}
        self._wrote: dict[EntityKey, bytes | None] = {}

    def run(self, row: RequestRow) -> Outcome:
        """Process one record; later records see its writes.

        Returns:
            The outcome of its request, with the reads of the requests that it sent, and all writes of its cascade.
        """
        return self.conclude(row, self.execute(row))

    def execute(self, row: RequestRow) -> Outcome:
        """Run the request of a record; `conclude` must follow."""
        return self.executor.run(row.request_id, row.body, row.time_us)

    def conclude(self, row: RequestRow, outcome: Outcome) -> Outcome:
        """Apply the writes of a record's request, and run its cascade; see `run`."""
        if outcome.writes:
            self.written.update(outcome.writes)
        self._wrote, self._noted = {}, {}
        self.cascade = cascade = self.cascades.run_requests(
            row.request_id, row.body, row.time_us, outcome
        )
        if cascade is None:
            return outcome
        failure = None if outcome.error is None else decode_failure(outcome.reply)
        self.cascades.run_steps(cascade, failure, outcome.reply)
        self.step_reads[row.request_id] = self._noted
        sent = [request.outcome.reads for request in cascade.completed]
        reads = tuple(dict.fromkeys(chain(outcome.reads, *sent)))
        writes = {**outcome.writes, **self._wrote}
        return msgspec.structs.replace(outcome, reads=reads, writes=writes)

    def run_all(self, rows: Iterable[RequestRow]) -> list[Outcome | None]:
        """Process records in order; None means that the recorded outcome is used."""
        outcomes: list[Outcome | None] = []
        self.ran = []
        for row in rows:
            if not runs_again(row):
                self.conclude(row, Outcome(row.error, row.reply, (), {}))
                outcomes.append(None)
            else:
                outcomes.append(self.run(row))
            self.ran.append(self.cascade)
        return outcomes

    def _apply(self, writes: dict[EntityKey, bytes | None]) -> None:
        self.written.update(writes)
        self._wrote.update(writes)

    def _keys(self, prefix: str) -> list[EntityKey]:
        """Return the keys that begin with a prefix, in order."""
        known = {key for key in chain(self.state, self.written) if key.startswith(prefix)}
        present = sorted(key for key in known if self.read(key) is not None)
        self._noted.update(dict.fromkeys(present))
        return present

    def take(self, changes: dict[EntityKey, bytes | None]) -> None:
        """Apply the recorded changes of an epoch, without running a request."""
        self.written.update(changes)

    def finish(self) -> None:
        """End the epoch: add its writes to the state."""
        apply_changes(self.state, self.written)
        self.written.clear()
        self.step_reads.clear()


def runs_again(row: RequestRow) -> bool:
    """Say whether a record runs again; otherwise its recorded outcome is used."""
    return row.error not in DECIDED and not is_control(row.body)


def apply_changes(state: dict[EntityKey, bytes], changes: dict[EntityKey, bytes | None]) -> None:
    """Apply an epoch's changes to a state."""
    for key, data in changes.items():
        if data is None:
            state.pop(key, None)
        else:
            state[key] = data


def first_difference(
    replayer: Replayer, recorded: RecordedEpoch, outcomes: Sequence[Outcome | None]
) -> ReplayDifference | None:
    """Compare an epoch that has run, before `finish`, with the recorded epoch.

    The findings have the reply and the entities of the record, and not its cascade.
    """
    keys = _differing_entities(replayer, recorded)
    reply = first_differing_reply(recorded, outcomes)
    cascade = first_differing_cascade(replayer, recorded)
    wrong = [position for position in (reply, cascade) if position is not None]
    if not wrong and not keys:
        return None
    last = {key: _last_at(outcomes, key) for key in keys}
    position = min([*last.values(), *wrong])
    findings: list[ValueDifference] = []
    if position == reply:
        findings.append(reply_difference(recorded.rows[position], outcomes[position]))
    mine = [key for key in keys if last[key] == position]
    for key in mine:
        before = recorded.changes.get(key, replayer.state.get(key))
        findings += compare(replayer.app, key, before, replayer.read(key))
    suspects = {position, *wrong}
    for key in mine:
        suspects.update(
            at for at, outcome in enumerate(outcomes) if outcome and key in outcome.writes
        )
    return ReplayDifference(position, tuple(findings), tuple(sorted(suspects)))


def first_differing_cascade(replayer: Replayer, recorded: RecordedEpoch) -> int | None:
    """Return the position of the first record whose cascade differs from the recorded cascade."""
    for position, (row, cascade) in enumerate(zip(recorded.rows, replayer.ran, strict=True)):
        was = recorded.cascade(row)
        if cascade is None and was is NOTHING:
            continue
        if any(True for _ in cascade_differences(was, cascade, replayer.app.keys)):
            return position
    return None


def first_differing_reply(
    recorded: RecordedEpoch, outcomes: Sequence[Outcome | None]
) -> int | None:
    """Return the position of the first request whose reply differs from the recorded reply."""
    for position, (row, outcome) in enumerate(zip(recorded.rows, outcomes, strict=True)):
        if outcome is not None and (outcome.reply != row.reply or outcome.error != row.error):
            return position
    return None


def _differing_entities(replayer: Replayer, recorded: RecordedEpoch) -> list[EntityKey]:
    """Return the entities whose state after the epoch differs.

    A row that an earlier schema version has written is compared as the version of the code that runs.
    """
    written, changes, state = replayer.written, recorded.changes, replayer.state
    if written == changes:
        return []
    keys = sorted(written.keys() | changes.keys())
    rows = [(written.get(key, state.get(key)), changes.get(key, state.get(key))) for key in keys]
    classes = replayer.app.readable
    return [key for key, pair in zip(keys, rows, strict=True) if not are_equal(classes, key, *pair)]


def _last_at(outcomes: Sequence[Outcome | None], key: EntityKey) -> int:
    """Return the last request that wrote an entity, or else read it, or else the last request."""
    for effect in ("writes", "reads"):
        for position in range(len(outcomes) - 1, -1, -1):
            outcome = outcomes[position]
            if outcome is not None and key in getattr(outcome, effect):
                return position
    return len(outcomes) - 1


def reply_difference(row: RequestRow, outcome: Outcome | None) -> ValueDifference:
    """Return the difference of the reply of a request that has run."""
    assert outcome is not None, "a recorded outcome does not differ from itself"
    now = reply_of(outcome.error, outcome.reply)
    return ValueDifference(REPLY, "", reply_of(row.error, row.reply), now)


def compare(
    app: App, key: EntityKey, recorded: bytes | None, replayed: bytes | None
) -> list[ValueDifference]:
    """Return the attributes of an entity that differ; one difference if it exists on one side only."""
    before, after = attributes_of(app, key, recorded), attributes_of(app, key, replayed)
    return compare_attributes(key, before, after)


def compare_attributes(
    key: EntityKey, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> list[ValueDifference]:
    """Return the attributes that differ, as `compare` does, from attributes by name.

    Attributes are compared as encoded bytes: 1 differs from 1.0 and from true, and NaN equals NaN.
    """
    if before is None or after is None:
        return [] if before == after else [ValueDifference(key, "", before, after)]
    names = [*before, *(name for name in after if name not in before)]
    return [
        ValueDifference(key, name, before.get(name), after.get(name))
        for name in names
        if _encode(before.get(name)) != _encode(after.get(name))
    ]


def attributes_of(app: App, key: EntityKey, data: bytes | None) -> dict[str, Any] | None:
    """Return stored attributes by name, as plain data; a row of the engine has the single name `row`.

    A row of an earlier schema version has the present attributes, or its own attributes if its migration fails.
    """
    if data is None:
        return None
    name, text = split_entity_key(key)
    if is_system(name):
        return {"row": msgspec.msgpack.decode(data)}
    entity = app.readable.get(name)
    if entity is None:
        raise Diverged(f"the application has no class of the stored entity {key}")
    return plain_attributes(entity, text, data)


def reply_of(error: str | None, data: bytes) -> Any:
    """Return a recorded reply as plain data: the value, or the failure's code, kind and message."""
    if error is None:
        return msgspec.msgpack.decode(data)
    failure = decode_failure(data)
    return {"error": failure.code, "kind": failure.kind, "message": failure.message}
