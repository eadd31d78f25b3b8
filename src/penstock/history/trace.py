"""The trace of one request, and the history of one entity, computed from the journal.

Epochs are executed again, within the limits, to find out which calls a request made, which entities
it changed, and which request changed each of them next. The result says whether the request came out
as recorded. Only the data directory is read.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
"""How many later epochs are searched for the next change of an entity."""

_REPLAYED_MAX: Final = 3
"""How many of these are executed again to find the request of that change."""


@dataclass(frozen=True, slots=True)
class TracedEntity:
    """An entity that a request has read or written.

    Attributes:
        written: Whether the request changed the entity.
        undone: Whether the request changed the entity and the change was undone. Then `after` holds
            the undone values.
        before, after: The attributes by name; None if the entity did not exist.
        next: The next change of the entity.
    """

    entity: EntityKey
    written: bool
    undone: bool
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    next: NextChange | None


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a request.

    Attributes:
        row: The recorded request.
        epoch: Its epoch.
        position: Its position in the epoch, from 0.
        report: The driver's report of the epoch, while it is kept.
        as_recorded: Whether the outcome equals the recorded one.
        taken_as_recorded: Whether the request was not executed, because it had exceeded a limit.
        root: The handler's call, with all calls inside it; None if the request was not executed.
        entities: The entities that the request has read or written.
        refused: By request id, the first call to the outside, of all executed requests.
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
    """A change of an entity: its request, and the attributes by name before and after it."""

    epoch: Epoch
    time_us: int
    row: RequestRow
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class EntityHistory(NamedTuple):
    """The changes of an entity.

    Attributes:
        changes: The newest changes, in order.
        more: Whether there are older changes.
        refused: As in `Trace`.
    """

    changes: list[EntityChange]
    more: bool
    refused: Mapping[RequestId, OutsideCall]


def trace(history: HistoryReader, app: App, data: Path, request_id: str, limits: Limits) -> Trace:
    """Return the trace of a request.

    Args:
        history: The journal.
        app: The application.
        data: The data directory, for the driver's reports.
        request_id: The request.
        limits: The limits of one transaction.

    Raises:
        RequestError: No epoch holds the request.
        Diverged: The state before its epoch is not held.
        Corrupt: The journal is damaged.
    """
    number = history.find(request_id)
    recorded = history.epoch(number)
    position = position_of(recorded, request_id)
    row = recorded.rows[position]
    rerun = Rerun(app, history.state_before(number), limits, history.secret)
    is_skipped = row.error in DECIDED
    rerun.run_all(recorded.rows[:position])
    written, state = dict(rerun.replayer.written), rerun.replayer.state

    def before(key: EntityKey) -> bytes | None:
        return written[key] if key in written else state.get(key)

    if is_skipped:
        traced = RequestTrace(Outcome(row.error, row.reply, (), {}), None, {})
    else:
        traced = rerun.trace(row, time.perf_counter)
    entities = _entities_of(app, before, traced)
    later = rerun.run_all(recorded.rows[position + 1 :])
    keys = [entity.entity for entity in entities]
    next_changes = _next_changes(history, rerun, recorded, position, later, keys)
    outcome = traced.outcome
    return Trace(
        row,
        recorded,
        position,
        _report_of(data, number),
        (outcome.error, outcome.reply) == (row.error, row.reply),
        is_skipped,
        traced.root,
        tuple(replace(entity, next=next_changes.get(entity.entity)) for entity in entities),
        rerun.refused,
    )


def entity_history(
    history: HistoryReader,
    app: App,
    key: EntityKey,
    span: tuple[Epoch, Epoch],
    changes_max: int,
    limits: Limits,
) -> EntityHistory:
    """Return the newest changes of an entity.

    Args:
        history: The journal.
        app: The application.
        key: The entity.
        span: The first and the last epoch to search.
        changes_max: How many changes are returned.
        limits: The limits of one transaction.

    Raises:
        NoSuchEntity: No epoch of the span changed the entity.
        Diverged: The state before the changes is not held.
        Corrupt: The journal is damaged.
    """
    first, last = span
    epochs = history.changes_of(key, Epoch(first - 1), last)
    if not epochs:
        raise NoSuchEntity(f"{key} was not changed in the epochs {first} to {last}")
    chosen = epochs[-changes_max:]
    rerun = Rerun(app, history.state_before(chosen[0]), limits, history.secret)
    changes: list[EntityChange] = []
    for recorded, outcomes in _run_epochs(history, rerun, Epoch(chosen[0] - 1), chosen):
        before = rerun.replayer.state.get(key)
        for row, outcome in zip(recorded.rows, outcomes, strict=True):
            if outcome is not None and key in outcome.writes:
                after = outcome.writes[key]
                states = attributes_of(app, key, before), attributes_of(app, key, after)
                changes.append(EntityChange(recorded.epoch, recorded.time_us, row, *states))
                before = after
    more = len(epochs) > len(chosen) or len(changes) > changes_max
    return EntityHistory(changes[-changes_max:], more, rerun.refused)


def _run_epochs(
    history: HistoryReader, rerun: Rerun, reached: Epoch, epochs: Sequence[Epoch]
) -> Iterator[tuple[RecordedEpoch, list[Outcome | None]]]:
    """Execute epochs again, each over the recorded state before it.

    `reached` is the epoch after which the rerun's state is now.
    """
    for epoch in epochs:
        history.roll(rerun.replayer.state, reached, Epoch(epoch - 1))
        recorded = history.epoch(epoch)
        outcomes = rerun.run_all(recorded.rows)
        rerun.replayer.written.clear()
        yield recorded, outcomes
        reached = Epoch(epoch - 1)


def _entities_of(
    app: App, before: Callable[[EntityKey], bytes | None], traced: RequestTrace
) -> list[TracedEntity]:
    """Return the entities that a request has read or written, in order of first access.

    `before` returns an entity as it was before the request.
    """
    entities: list[TracedEntity] = []
    writes = traced.outcome.writes
    for key in dict.fromkeys([*traced.outcome.reads, *traced.undone, *writes]):
        old = before(key)
        written = key in writes
        undone = not written and key in traced.undone
        new = writes[key] if written else traced.undone[key] if undone else old
        undone = undone and new != old
        values = attributes_of(app, key, old), attributes_of(app, key, new)
        entities.append(TracedEntity(key, written, undone, *values, None))
    return entities


def _next_changes(
    history: HistoryReader,
    rerun: Rerun,
    recorded: RecordedEpoch,
    position: int,
    later: Sequence[Outcome | None],
    keys: Sequence[EntityKey],
) -> dict[EntityKey, NextChange]:
    """Return the next change of each entity after a request, if there is one.

    `later` has the outcomes of the requests after `position` in the same epoch.
    """
    epoch = recorded.epoch
    changes = _first_writers(epoch, recorded.rows[position + 1 :], later, keys)
    ahead: dict[Epoch, list[EntityKey]] = {}
    upto = Epoch(min(history.last, epoch + AHEAD_EPOCHS))
    for key in keys:
        if key not in changes and (epochs := history.changes_of(key, epoch, upto)):
            changes[key] = NextChange(None, None, epochs[0])
            ahead.setdefault(epochs[0], []).append(key)
    rerun.replayer.written.clear()
    chosen = sorted(ahead)[:_REPLAYED_MAX]
    for next_epoch, outcomes in _run_epochs(history, rerun, Epoch(epoch - 1), chosen):
        number, rows = next_epoch.epoch, next_epoch.rows
        changes.update(_first_writers(number, rows, outcomes, ahead[number]))
    return changes


def _first_writers(
    epoch: Epoch,
    rows: Sequence[RequestRow],
    outcomes: Sequence[Outcome | None],
    keys: Sequence[EntityKey],
) -> dict[EntityKey, NextChange]:
    """Return, for each entity, the first of some requests of an epoch that changed it."""
    wanted = set(keys)
    changes: dict[EntityKey, NextChange] = {}
    for row, outcome in zip(rows, outcomes, strict=True):
        for key in wanted.intersection(() if outcome is None else outcome.writes):
            changes[key] = NextChange(row.request_id, call_text(row.body), epoch)
            wanted.discard(key)
    return changes


def _report_of(data: Path, epoch: Epoch) -> StoredReport | None:
    reader = ReportReader(data)
    return next(
        (report for report in reader.after(Epoch(epoch - 1)) if report.epoch == epoch), None
    )


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
            changes=[_change_of(change) for change in changes.changes],
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
