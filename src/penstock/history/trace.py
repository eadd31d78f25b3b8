"""The trace of one request, and the history of one entity, computed from the journal.

Epochs are executed again, within the limits, to find out which calls a request made, which entities
it changed, and which request changed each of them next. The result says whether the request came out
as recorded. Only the data directory is read.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from penstock.base.difference import attribute_differences
from penstock.base.http import ErrorBody
from penstock.base.ids import EntityKey, Epoch, epochs_text, is_system, split_entity_key
from penstock.base.instants import instant_of
from penstock.engine import tracing
from penstock.engine.execute import Limits, Outcome
from penstock.engine.failure import DECIDED
from penstock.engine.replay import (
    RecordedEpoch,
    RequestRow,
    attributes_of,
    call_text,
    reply_of,
)
from penstock.engine.tracing import RequestTrace
from penstock.errors import NoSuchEntity
from penstock.history.cascade_document import RecordedReply, TracedCascade
from penstock.history.cascade_trace import cascade_document
from penstock.history.reader import HistoryReader, position_of
from penstock.history.rerun import Rerun, outside_calls_json
from penstock.history.trace_document import (
    AttributeChange,
    EntityChange,
    HistoryDocument,
    NextChange,
    RefusedCall,
    TracedCall,
    TracedEntity,
    TraceDocument,
)
from penstock.model.application import App
from penstock.process.epoch_report import EpochReport
from penstock.process.reports import ReportReader

AHEAD_EPOCHS: Final = 1_000
"""How many later epochs are searched for the next change of an entity."""

_REPLAYED_MAX: Final = 3
"""How many of these are executed again to find the request of that change."""


def trace(
    history: HistoryReader, app: App, data: Path, request_id: str, limits: Limits
) -> TraceDocument:
    """Return the trace of a request.

    Args:
        history: The journal.
        app: The application.
        data: The data directory, for the driver's reports.
        request_id: The request, or a sent request or workflow step of its cascade.
        limits: The limits of one transaction.

    Raises:
        RequestError: No epoch holds the request.
        Diverged: The state before its epoch is not held.
        Corrupt: The journal is damaged.
    """
    request_id = history.record_of(request_id)
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

    traced = rerun.trace_recorded(row) if is_skipped else rerun.trace(row, time.perf_counter)
    entities = _entities_of(app, before, traced)
    later = rerun.run_all(recorded.rows[position + 1 :])
    next_changes = _next_changes(history, rerun, recorded, position, later, list(entities))
    report = _report_of(data, number)
    cascade = _cascade_of(history, recorded, row, traced)
    return TraceDocument(
        request_id=row.request_id,
        call=call_text(row.body),
        epoch=number,
        lsn=row.lsn,
        position=position,
        requests_in_epoch=len(recorded.rows),
        appended_us=row.time_us,
        appended=instant_of(row.time_us),
        committed_us=recorded.time_us,
        committed=instant_of(recorded.time_us),
        rounds=None if report is None else report.rounds,
        reran=None if report is None else report.reran,
        tasks=None if report is None else report.tasks,
        reply=_reply_of(row),
        as_recorded=_is_as_recorded(row, traced, cascade),
        taken_as_recorded=is_skipped,
        root=None if traced.root is None else _call_of(traced.root),
        entities=[
            msgspec.structs.replace(entity, next=next_changes.get(key))
            for key, entity in entities.items()
        ],
        outside=_refused_calls(rerun),
        cascade=cascade,
    )


def _cascade_of(
    history: HistoryReader, recorded: RecordedEpoch, row: RequestRow, traced: RequestTrace
) -> TracedCascade | None:
    """Return the cascade of a record, compared with the journal."""

    def outcomes_of(ids: Collection[str]) -> dict[str, tuple[Epoch, str | None]]:
        return history.outcomes_among(ids, recorded.epoch)

    return cascade_document(row.request_id, recorded.cascade(row), traced, outcomes_of)


def _is_as_recorded(row: RequestRow, traced: RequestTrace, cascade: TracedCascade | None) -> bool:
    same = (traced.outcome.error, traced.outcome.reply) == (row.error, row.reply)
    return same and not (cascade and cascade.differences)


def entity_history(
    history: HistoryReader,
    app: App,
    key: EntityKey,
    span: tuple[Epoch, Epoch],
    changes_max: int,
    limits: Limits,
) -> HistoryDocument:
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
        raise NoSuchEntity(f"{key} was not changed in {epochs_text(first, last)}")
    chosen = epochs[-changes_max:]
    rerun = Rerun(app, history.state_before(chosen[0]), limits, history.secret)
    changes: list[EntityChange] = []
    for recorded, outcomes in _run_epochs(history, rerun, Epoch(chosen[0] - 1), chosen):
        before = rerun.replayer.state.get(key)
        for row, outcome in zip(recorded.rows, outcomes, strict=True):
            if outcome is not None and key in outcome.writes:
                after = outcome.writes[key]
                states = attributes_of(app, key, before), attributes_of(app, key, after)
                changes.append(_change_of(recorded, row, *states))
                before = after
    more = len(epochs) > len(chosen) or len(changes) > changes_max
    name, text = split_entity_key(key)
    newest = changes[-changes_max:]
    return HistoryDocument(name, text, newest, more, _refused_calls(rerun))


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
) -> dict[EntityKey, TracedEntity]:
    """Return the entities that a request has read or written, in order of first access.

    `before` returns an entity as it was before the request.
    """
    entities: dict[EntityKey, TracedEntity] = {}
    writes = traced.outcome.writes
    for key in dict.fromkeys([*traced.outcome.reads, *traced.undone, *writes]):
        if is_system(split_entity_key(key)[0]):
            continue
        old = before(key)
        written = key in writes
        undone = not written and key in traced.undone
        new = writes[key] if written else traced.undone[key] if undone else old
        undone = undone and new != old
        values = attributes_of(app, key, old), attributes_of(app, key, new)
        parts = attribute_differences(*values)
        entities[key] = TracedEntity(
            *split_entity_key(key), written, undone, *values, None, parts.shown, parts.left_out
        )
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


def _report_of(data: Path, epoch: Epoch) -> EpochReport | None:
    reader = ReportReader(data)
    return next(
        (report for report in reader.after(Epoch(epoch - 1)) if report.epoch == epoch), None
    )


def document_json(document: TraceDocument | HistoryDocument) -> dict[str, Any]:
    """Return a document as a JSON object; values without JSON become text."""
    plain: dict[str, Any] = msgspec.to_builtins(document, str_keys=True, enc_hook=str)
    return plain


def _refused_calls(rerun: Rerun) -> list[RefusedCall]:
    return [RefusedCall(**call) for call in outside_calls_json(rerun.refused)]


def _reply_of(row: RequestRow) -> RecordedReply:
    reply = reply_of(row.error, row.reply)
    if row.error is None:
        return RecordedReply(value=reply)
    return RecordedReply(error=ErrorBody(reply["error"], reply["kind"], reply["message"]))


def _call_of(call: tracing.CallTrace) -> TracedCall:
    return TracedCall(
        call=call.call,
        where=call.where,
        took_us=round(call.took_us, 1),
        value=call.value,
        error=call.error,
        undone=call.undone,
        calls=[_call_of(inner) for inner in call.calls],
    )


def _change_of(
    epoch: RecordedEpoch,
    row: RequestRow,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> EntityChange:
    change: Literal["create", "update", "delete"] = "update"
    if before is None:
        change = "create"
    elif after is None:
        change = "delete"
    parts = attribute_differences(before, after)
    before, after = before or {}, after or {}
    attributes = [
        AttributeChange(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    call, times = call_text(row.body), (epoch.time_us, instant_of(epoch.time_us))
    return EntityChange(
        epoch.epoch, *times, row.request_id, call, change, attributes, parts.shown, parts.left_out
    )
