"""What one request did, and what happened to one entity: recomputed from the journal.

Promises what the journal says, made readable by running epochs again: who called whom, what each
request made of an entity, and which request changed it next. It says so where a request comes out
otherwise than it was recorded. Reads only, and holds handlers to their limits.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from penstock.base.http import ErrorBody
from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.engine.execute import Limits, Outcome
from penstock.engine.failure import DECIDED
from penstock.engine.replay import (
    RecordedEpoch,
    RequestRow,
    attributes_of,
    call_text,
    reply_of,
)
from penstock.engine.tracing import RequestTrace, TracedCall
from penstock.errors import NoSuchEntity
from penstock.history import trace_document
from penstock.history.reader import HistoryReader, position_of
from penstock.history.rerun import Rerun, outside_calls_json
from penstock.history.sandbox import OutsideCall
from penstock.history.trace_document import (
    AttributeChange,
    HistoryDocument,
    NextChange,
    RecordedReply,
    RefusedCall,
    TraceDocument,
)
from penstock.model.application import App
from penstock.process.reports import ReportReader, StoredReport

AHEAD_EPOCHS: Final = 1_000
"""So far it is looked for who changed an entity next."""

_REPLAYED_MAX: Final = 3
"""Later epochs that are run again to find that out."""


@dataclass(frozen=True, slots=True)
class TracedEntity:
    """An entity that a request read or wrote.

    Attributes:
        written: Whether the request changed it.
        undone: Whether what it did to it was undone; `after` is what it had become, then.
        before, after: Attributes by name, None where it did not exist.
    """

    entity: EntityKey
    written: bool
    undone: bool
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    next: NextChange | None


@dataclass(frozen=True, slots=True)
class Trace:
    """What one request did.

    Attributes:
        position: In its epoch, from 0.
        report: What was noted of its epoch, as long as that is kept.
        as_recorded: Whether it came out as it was recorded.
        taken_as_recorded: Whether it was not run, because it had exceeded a limit.
        refused: By id, the requests that reached outside: this one, or others that ran for it.
    """

    row: RequestRow
    epoch: RecordedEpoch
    position: int
    report: StoredReport | None
    as_recorded: bool
    taken_as_recorded: bool
    root: TracedCall | None
    entities: tuple[TracedEntity, ...]
    refused: Mapping[RequestId, OutsideCall]


class EntityChange(NamedTuple):
    """One change of an entity: the request behind it, and attributes by name."""

    epoch: Epoch
    time_us: int
    row: RequestRow
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class EntityHistory(NamedTuple):
    """Changes of an entity, in order; `more`: there are older ones; `refused` as in a trace."""

    found: list[EntityChange]
    more: bool
    refused: Mapping[RequestId, OutsideCall]


def trace(past: HistoryReader, app: App, data: Path, request_id: str, limits: Limits) -> Trace:
    """Return what a request did.

    Raises:
        RequestError: No epoch that is held has it.
        Diverged: The state before it is not held any more.
        Corrupt: The journal is damaged.
    """
    number = past.find(request_id)
    recorded = past.epoch(number)
    position = position_of(recorded, request_id)
    row = recorded.rows[position]
    rerun = Rerun(app, past.state_before(number), limits, past.secret)
    skipped = row.error in DECIDED
    rerun.run_all(recorded.rows[:position])
    before = _Before(rerun)
    if skipped:
        traced = RequestTrace(Outcome(row.error, row.reply, (), {}), None, {})
    else:
        traced = rerun.trace(row, time.perf_counter)
    entities = _touched(app, before, traced)
    later = rerun.run_all(recorded.rows[position + 1 :])
    following = _Following(past, rerun)
    nexts = following.after(recorded, position, later, [one.entity for one in entities])
    outcome = traced.outcome
    return Trace(
        row,
        recorded,
        position,
        _report_of(data, number),
        (outcome.error, outcome.reply) == (row.error, row.reply),
        skipped,
        traced.root,
        tuple(_with_next(one, nexts.get(one.entity)) for one in entities),
        rerun.refused,
    )


def history(
    past: HistoryReader,
    app: App,
    key: EntityKey,
    span: tuple[Epoch, Epoch],
    most: int,
    limits: Limits,
) -> EntityHistory:
    """Return the newest changes of an entity.

    Raises:
        NoSuchEntity: Nothing in the span changed it.
        Diverged: The state before is not held any more.
        Corrupt: The journal is damaged.
    """
    first, last = span
    epochs = past.changes_of(key, Epoch(first - 1), last)
    if not epochs:
        raise NoSuchEntity(f"{key} was not changed in the epochs {first} to {last}")
    chosen = epochs[-most:]
    rerun = Rerun(app, past.state_before(chosen[0]), limits, past.secret)
    found: list[EntityChange] = []
    for recorded, outcomes in _again(past, rerun, Epoch(chosen[0] - 1), chosen):
        before = rerun.replayer.state.get(key)
        for row, outcome in zip(recorded.rows, outcomes, strict=True):
            if outcome is not None and key in outcome.writes:
                after = outcome.writes[key]
                states = attributes_of(app, key, before), attributes_of(app, key, after)
                found.append(EntityChange(recorded.epoch, recorded.time_us, row, *states))
                before = after
    more = len(epochs) > len(chosen) or len(found) > most
    return EntityHistory(found[-most:], more, rerun.refused)


def _again(
    past: HistoryReader, rerun: Rerun, reached: Epoch, epochs: Sequence[Epoch]
) -> Iterator[tuple[RecordedEpoch, list[Outcome | None]]]:
    """Run some epochs again, each over the state before it, as the journal has it."""
    for epoch in epochs:
        past.roll(rerun.replayer.state, reached, Epoch(epoch - 1))
        recorded = past.epoch(epoch)
        outcomes = rerun.run_all(recorded.rows)
        rerun.replayer.written.clear()
        yield recorded, outcomes
        reached = Epoch(epoch - 1)


class _Before:
    """What entities are before a request, whatever it makes of them."""

    def __init__(self, rerun: Rerun) -> None:
        self._state = rerun.replayer.state
        self._written = dict(rerun.replayer.written)

    def get(self, key: EntityKey) -> bytes | None:
        return self._written[key] if key in self._written else self._state.get(key)


def _touched(app: App, before: _Before, traced: RequestTrace) -> list[TracedEntity]:
    """Return the entities that a request looked at, in that order."""
    found: list[TracedEntity] = []
    writes = traced.outcome.writes
    for key in dict.fromkeys([*traced.outcome.reads, *traced.undone, *writes]):
        written = key in writes
        undone = not written and key in traced.undone
        was = before.get(key)
        now = writes[key] if written else traced.undone[key] if undone else was
        if undone and now == was:
            undone = False
        states = attributes_of(app, key, was), attributes_of(app, key, now)
        found.append(TracedEntity(key, written, undone, *states, None))
    return found


def _with_next(one: TracedEntity, following: NextChange | None) -> TracedEntity:
    return TracedEntity(one.entity, one.written, one.undone, one.before, one.after, following)


class _Following:
    """Finds the requests that changed entities next."""

    def __init__(self, past: HistoryReader, rerun: Rerun) -> None:
        self._past = past
        self._rerun = rerun

    def after(
        self,
        recorded: RecordedEpoch,
        position: int,
        later: Sequence[Outcome | None],
        keys: Sequence[EntityKey],
    ) -> dict[EntityKey, NextChange]:
        """Return the next writers, first in the rest of the epoch, then in those after it."""
        rows = recorded.rows[position + 1 :]
        found = _writers(recorded.epoch, rows, later, keys)
        epoch = recorded.epoch
        ahead: dict[Epoch, list[EntityKey]] = {}
        upto = Epoch(min(self._past.last, epoch + AHEAD_EPOCHS))
        for key in keys:
            if key not in found and (epochs := self._past.changes_of(key, epoch, upto)):
                found[key] = NextChange(None, None, epochs[0])
                ahead.setdefault(epochs[0], []).append(key)
        self._rerun.replayer.written.clear()
        chosen = sorted(ahead)[:_REPLAYED_MAX]
        before = Epoch(epoch - 1)
        for one, outcomes in _again(self._past, self._rerun, before, chosen):
            found.update(_writers(one.epoch, one.rows, outcomes, ahead[one.epoch]))
        return found


def _writers(
    epoch: Epoch,
    rows: Sequence[RequestRow],
    outcomes: Sequence[Outcome | None],
    keys: Sequence[EntityKey],
) -> dict[EntityKey, NextChange]:
    wanted, found = set(keys), dict[EntityKey, NextChange]()
    for row, outcome in zip(rows, outcomes, strict=True):
        written = () if outcome is None else outcome.writes
        for key in [one for one in written if one in wanted]:
            found[key] = NextChange(row.request_id, call_text(row.body), epoch)
            wanted.discard(key)
    return found


def _report_of(data: Path, epoch: Epoch) -> StoredReport | None:
    reader = ReportReader(data)
    return next((one for one in reader.after(Epoch(epoch - 1)) if one.epoch == epoch), None)


def trace_json(found: Trace) -> dict[str, Any]:
    """Return a `TraceDocument` as plain data."""
    row, report = found.row, found.report
    return _plain(
        TraceDocument(
            request_id=row.request_id,
            call=call_text(row.body),
            epoch=found.epoch.epoch,
            lsn=row.lsn,
            position=found.position,
            requests_in_epoch=len(found.epoch.rows),
            appended_us=row.time_us,
            committed_us=found.epoch.time_us,
            rounds=None if report is None else report.rounds,
            reran=None if report is None else report.reran,
            tasks=None if report is None else report.tasks,
            reply=_reply_of(row),
            as_recorded=found.as_recorded,
            taken_as_recorded=found.taken_as_recorded,
            root=None if found.root is None else _traced(found.root),
            entities=[_described(entity) for entity in found.entities],
            outside=[RefusedCall(**call) for call in outside_calls_json(found.refused)],
        )
    )


def entity_history_json(key: EntityKey, changes: EntityHistory) -> dict[str, Any]:
    """Return a `HistoryDocument` as plain data."""
    entity, _, text = key.partition("/")
    return _plain(
        HistoryDocument(
            entity=entity,
            key=text,
            changes=[_change_of(change) for change in changes.found],
            more=changes.more,
            outside=[RefusedCall(**call) for call in outside_calls_json(changes.refused)],
        )
    )


def _plain(document: TraceDocument | HistoryDocument) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(document, str_keys=True, enc_hook=str)
    return plain


def _reply_of(row: RequestRow) -> RecordedReply:
    reply = reply_of(row.error, row.reply)
    if row.error is None:
        return RecordedReply(value=reply)
    return RecordedReply(error=ErrorBody(reply["error"], reply["kind"], reply["message"]))


def _traced(call: TracedCall) -> trace_document.TracedCall:
    return trace_document.TracedCall(
        call=call.call,
        where=call.where,
        took_us=round(call.took_us, 1),
        value=call.value,
        error=call.error,
        undone=call.undone,
        calls=[_traced(inner) for inner in call.calls],
    )


def _described(traced: TracedEntity) -> trace_document.TracedEntity:
    entity, _, key = traced.entity.partition("/")
    return trace_document.TracedEntity(
        entity, key, traced.written, traced.undone, traced.before, traced.after, traced.next
    )


def _change_of(change: EntityChange) -> trace_document.EntityChange:
    kind: Literal["create", "update", "delete"] = "update"
    if change.before is None:
        kind = "create"
    elif change.after is None:
        kind = "delete"
    before, after = change.before or {}, change.after or {}
    attributes = [
        AttributeChange(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    row = change.row
    return trace_document.EntityChange(
        change.epoch, change.time_us, row.request_id, call_text(row.body), kind, attributes
    )
