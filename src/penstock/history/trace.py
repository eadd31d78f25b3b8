"""The trace of one request, and the history of one entity, computed from the journal.

Epochs are executed again, within the limits, to find out which calls a request made, which entities
it changed, and which request changed each of them next. The result says whether the request came out
as recorded. A handler that reads a clock gives other values than the stored ones: the stored value is
shown, and the deviation is named. Only the data directory is read.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from penstock.base.difference import ElementDifference, attribute_differences, is_same
from penstock.base.http import ErrorBody
from penstock.base.ids import (
    PRINCIPAL_SEPARATOR,
    EntityKey,
    Epoch,
    RequestId,
    entity_key,
    epochs_text,
    is_system,
    split_entity_key,
)
from penstock.base.instants import instant_of
from penstock.base.json_keys import as_text, json_bytes, with_texts
from penstock.base.subject_keys import SubjectKeys
from penstock.deployment.loading import load_app
from penstock.engine import tracing
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import RecordedEpoch, RequestRow, attributes_of, reply_of, runs_again
from penstock.engine.request_text import call_text, is_erased
from penstock.engine.tracing import RequestTrace
from penstock.errors import NoSuchEntity
from penstock.history.cascade_trace import cascade_document
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader, position_of
from penstock.history.rerun import Rerun, outside_calls_json
from penstock.history.sandbox import OutsideCall
from penstock.history.trace_document import (
    AttributeChange,
    EntityChange,
    HistoryDocument,
    NextChange,
    RecordedReply,
    RefusedCall,
    TracedCall,
    TracedCascade,
    TracedEntity,
    TraceDocument,
)
from penstock.model.application import App
from penstock.model.control import Erase, decode_control, is_control
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.process.question import answer_question
from penstock.process.reports import ReportReader

AHEAD_EPOCHS: Final = 1_000
"""How many later epochs are searched for the next change of an entity."""

_REPLAYED_MAX: Final = 3
"""How many of these are executed again to find the request of that change."""


def trace(
    history: HistoryReader, versions: CodeVersions, request_id: str, limits: Limits
) -> TraceDocument:
    """Return the trace of a request, which runs with the code of its epoch.

    Args:
        request_id: The request, or a sent request or workflow step of its cascade.
    """
    # A sent request runs in the cascade of its record, so the record is traced.
    request_id = history.record_of(request_id)
    recorded = history.epoch(history.find(request_id))
    position = position_of(recorded, request_id)
    version = versions.at(recorded.epoch)
    with version.active():
        rerun = Rerun(version.app, history.state_before(recorded.epoch), limits, history.secret)
        document = _trace(history, rerun, recorded, position)
        reached = dict(rerun.replayer.written)
        # The rest of the epoch, too: the journal has only the state behind all of its requests.
        outcomes = rerun.run_all(recorded.rows[position + 1 :])
        meets_erased = rerun.meets_erased(outcomes)
        lost = recorded.changes.items() - reached.items() if meets_erased else ()
        ended = dict(rerun.replayer.written)
    stored_name = version.app.stored_name
    names = {
        entity_key(stored_name(entity.entity), entity.key): entity for entity in document.entities
    }
    changes = _first_writers(recorded.epoch, recorded.rows[position + 1 :], outcomes, list(names))
    changes.update((key, NextChange(None, None, recorded.epoch)) for key, _ in lost if key in names)
    state = rerun.replayer.state
    later = _LaterEpochs(history, versions, state, Epoch(recorded.epoch - 1), limits)
    missing = [key for key in names if key not in changes]
    # An erased person's requests cannot run, so a difference would say nothing of the handler.
    compared = [] if meets_erased else [key for key in names if key in recorded.changes]
    for key in compared:
        names[key] = _with_stored(
            version.app,
            key,
            names[key],
            recorded.changes[key],
            ended.get(key, state.get(key)),
            is_last=key not in changes,
        )
    changes.update(_later_changes(history, later, recorded.epoch, missing))
    entities = [
        msgspec.structs.replace(entity, next=changes.get(key)) for key, entity in names.items()
    ]
    same = document.as_recorded and not any(entity.deviations for entity in entities)
    return msgspec.structs.replace(document, entities=entities, as_recorded=same)


def _with_stored(
    app: App,
    key: EntityKey,
    entity: TracedEntity,
    stored: bytes | None,
    reached: bytes | None,
    *,
    is_last: bool,
) -> TracedEntity:
    """Return a traced entity with its stored values, and with the deviations of this run.

    Args:
        stored: The state that the epoch has stored.
        reached: The state that this run reached at the end of the epoch.
        is_last: Whether no later request of the epoch changes the entity, so that the stored state is that
            behind the request.
    """
    if stored == reached:
        return entity
    values = attributes_of(app, key, stored), attributes_of(app, key, reached)
    deviations = attribute_differences(*values).shown
    if not (is_last and entity.written):
        return msgspec.structs.replace(entity, deviations=deviations)
    parts = attribute_differences(entity.before, values[0])
    return msgspec.structs.replace(
        entity,
        after=values[0],
        differences=parts.shown,
        differences_left_out=parts.left_out,
        deviations=deviations,
    )


def _trace(
    history: HistoryReader, rerun: Rerun, recorded: RecordedEpoch, position: int
) -> TraceDocument:
    """Return the trace of the request at a position of an epoch, without the next changes of its entities."""
    number, row = recorded.epoch, recorded.rows[position]
    is_skipped = not runs_again(row) or is_erased(rerun.replayer.app, row.body)
    rerun.begin(recorded)
    rerun.run_all(recorded.rows[:position])
    written, state = dict(rerun.replayer.written), rerun.replayer.state

    def before(key: EntityKey) -> bytes | None:
        return written[key] if key in written else state.get(key)

    traced = rerun.trace_recorded(row) if is_skipped else rerun.trace(row, time.perf_counter)
    entities = _entities_of(rerun.replayer.app, before, traced)
    report = _report_of(history.data, number)
    cascade = _cascade_of(history, recorded, row, traced, rerun.replayer.app.keys)
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
        entities=list(entities.values()),
        outside=_refused_calls(rerun.refused),
        cascade=cascade,
    )


def _cascade_of(
    history: HistoryReader,
    recorded: RecordedEpoch,
    row: RequestRow,
    traced: RequestTrace,
    keys: SubjectKeys | None,
) -> TracedCascade | None:
    """Return the cascade of a record, compared with the journal."""

    def outcomes_of(ids: Collection[str]) -> dict[str, tuple[Epoch, str | None]]:
        return history.outcomes_among(ids, recorded.epoch)

    return cascade_document(row.request_id, recorded.cascade(row), traced, outcomes_of, keys)


def _is_as_recorded(row: RequestRow, traced: RequestTrace, cascade: TracedCascade | None) -> bool:
    same = (traced.outcome.error, traced.outcome.reply) == (row.error, row.reply)
    return same and not (cascade and cascade.differences)


def entity_history(
    history: HistoryReader,
    versions: CodeVersions,
    key: EntityKey,
    span: tuple[Epoch, Epoch],
    changes_max: int,
    limits: Limits,
) -> HistoryDocument:
    """Return the newest changes of an entity.

    Args:
        span: The first and the last epoch to search.
        changes_max: How many changes are returned.
    """
    first, last = span
    epochs = history.changes_of(key, Epoch(first - 1), last, changes_max + 1)
    if not epochs:
        raise NoSuchEntity(f"{key} was not changed in {epochs_text(first, last)}")
    chosen = epochs[-changes_max:]
    state = history.state_before(chosen[0])
    later = _LaterEpochs(history, versions, state, Epoch(chosen[0] - 1), limits)
    changes: list[EntityChange] = []
    erased = 0
    for app, recorded, outcomes in later.run(chosen):
        writes = [
            (row, outcome.writes[key])
            for row, outcome in zip(recorded.rows, outcomes, strict=True)
            if outcome is not None and key in outcome.writes
        ]
        before = state.get(key)
        reached = writes[-1][1] if writes else before
        if later.meets_erased and reached != recorded.changes[key]:
            erased += 1
            continue
        stored = attributes_of(app, key, recorded.changes[key])
        deviations: list[ElementDifference] = []
        if reached != recorded.changes[key]:
            deviations = attribute_differences(stored, attributes_of(app, key, reached)).shown
        states = [attributes_of(app, key, after) for _, after in writes[:-1]] + [stored]
        former = attributes_of(app, key, before)
        writers: list[RequestRow | None] = [row for row, _ in writes]
        for row, after in zip(writers or [None], states, strict=True):
            changes.append(_change_of(recorded, row, former, after, deviations))
            former = after
    more = len(epochs) > len(chosen) or len(changes) > changes_max
    name, text = split_entity_key(key)
    newest = changes[-changes_max:]
    return HistoryDocument(name, text, newest, more, _refused_calls(later.refused), erased)


class _LaterEpochs:
    """Executes some epochs again, each with its code and over the recorded state before it.

    Attributes:
        refused: By request id, the first call to the outside.
        meets_erased: Whether the newest epoch concerns an erased person, or is an erasure.

    Args:
        state: The state after the epoch `reached`; it is changed.
    """

    def __init__(
        self,
        history: HistoryReader,
        versions: CodeVersions,
        state: dict[EntityKey, bytes],
        reached: Epoch,
        limits: Limits,
    ) -> None:
        self._history = history
        self._versions = versions
        self._state = state
        self._reached = reached
        self._limits = limits
        self.refused: dict[RequestId, OutsideCall] = {}
        self.meets_erased = False

    def run(
        self, epochs: Sequence[Epoch]
    ) -> Iterator[tuple[App, RecordedEpoch, list[Outcome | None]]]:
        """Yield each epoch with its application and its outcomes; the state is that before the epoch."""
        history = self._history
        for epoch in epochs:
            version = self._versions.at(epoch)
            # The recorded state, so that a difference in one epoch does not reach the next.
            history.roll(self._state, self._reached, Epoch(epoch - 1))
            self._reached = Epoch(epoch - 1)
            recorded = history.epoch(epoch)
            with version.active():
                rerun = Rerun(version.app, self._state, self._limits, history.secret)
                rerun.begin(recorded)
                outcomes = rerun.run_all(recorded.rows)
            self.meets_erased = rerun.meets_erased(outcomes)
            # A control record runs no handler, and all changes of its epoch are its own.
            for order in (row for row in recorded.rows[:1] if is_control(row.body)):
                if isinstance(decode_control(order.body), Erase):
                    self.meets_erased = True
                else:
                    outcomes = [Outcome(order.error, order.reply, (), recorded.changes)]
            self.refused.update(rerun.refused)
            yield version.app, recorded, outcomes


def _entities_of(
    app: App, before: Callable[[EntityKey], bytes | None], traced: RequestTrace
) -> dict[EntityKey, TracedEntity]:
    """Return the entities that a request has read or written, in order of first access.

    `before` returns an entity as it was before the request.
    """
    entities: dict[EntityKey, TracedEntity] = {}
    writes = traced.outcome.writes
    for key in dict.fromkeys([*traced.outcome.reads, *traced.undone, *writes]):
        name, text = split_entity_key(key)
        if is_system(name):
            continue
        old = before(key)
        written = key in writes
        undone = not written and key in traced.undone
        new = writes[key] if written else traced.undone[key] if undone else old
        undone = undone and new != old
        values = attributes_of(app, key, old), attributes_of(app, key, new)
        parts = attribute_differences(*values)
        entities[key] = TracedEntity(
            app.readable[name].name,
            text,
            written,
            undone,
            *values,
            None,
            parts.shown,
            parts.left_out,
        )
    return entities


def _later_changes(
    history: HistoryReader, later: "_LaterEpochs", epoch: Epoch, keys: Sequence[EntityKey]
) -> dict[EntityKey, NextChange]:
    """Return the next change of each entity after an epoch, if there is one."""
    changes: dict[EntityKey, NextChange] = {}
    ahead: dict[Epoch, list[EntityKey]] = {}
    upto = Epoch(min(history.last, epoch + AHEAD_EPOCHS))
    for key in keys:
        if epochs := history.changes_of(key, epoch, upto):
            changes[key] = NextChange(None, None, epochs[0])
            ahead.setdefault(epochs[0], []).append(key)
    for _, recorded, outcomes in later.run(sorted(ahead)[:_REPLAYED_MAX]):
        keys = () if later.meets_erased else ahead[recorded.epoch]  # else the writers are unknown
        changes.update(_first_writers(recorded.epoch, recorded.rows, outcomes, keys))
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
    """Return a document as a JSON object; values and keys without JSON become text."""
    try:
        plain: dict[str, Any] = msgspec.to_builtins(document, str_keys=True, enc_hook=str)
    except TypeError:  # a key is a tuple or null
        plain = msgspec.to_builtins(with_texts(document), enc_hook=str)
    return plain


def _refused_calls(refused: Mapping[RequestId, OutsideCall]) -> list[RefusedCall]:
    return [RefusedCall(**call) for call in outside_calls_json(refused)]


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
    row: RequestRow | None,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    deviations: list[ElementDifference],
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
        if not is_same(before.get(name), after.get(name))
    ]
    return EntityChange(
        epoch.epoch,
        epoch.time_us,
        instant_of(epoch.time_us),
        None if row is None else row.request_id,
        None if row is None else call_text(row.body),
        change,
        attributes,
        parts.shown,
        parts.left_out,
        deviations,
    )


_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode


class TraceQuery(msgspec.Struct, frozen=True, tag="trace"):
    """A question for the trace of one request: its id, or the unique beginning of its id."""

    request_id: str


class HistoryQuery(msgspec.Struct, frozen=True, tag="history"):
    """A question for the newest changes of one entity.

    Attributes:
        key: The text of the entity's key.
        first: The first epoch; None is the oldest that is held.
        last: The last epoch; None is the newest.
        changes_max: How many changes are listed.
    """

    entity: str
    key: str
    first: int | None
    last: int | None
    changes_max: int


class Lookup(msgspec.Struct, frozen=True):
    """The question to the process.

    Attributes:
        spec: The application, as on the command line.
        config: Its configuration; handlers run within its limits.
        query: The request or the entity to look up.
    """

    spec: str
    config: Config
    query: TraceQuery | HistoryQuery


def _look_up(lookup: Lookup, _: BinaryIO) -> bytes:
    return json_bytes(_encode, _found(lookup))


def _found(lookup: Lookup) -> dict[str, Any]:
    app, data, limits = load_app(lookup.spec), lookup.config.data, lookup.config.limits
    match lookup.query:
        case TraceQuery(request_id):
            with (
                HistoryReader(data, app, "trace") as history,
                CodeVersions(history, app, lookup.spec) as versions,
            ):
                named = _own(history.complete(request_id), request_id)
                return document_json(trace(history, versions, named, limits))
        case HistoryQuery(entity, key, first, last, changes_max):
            name = entity_key(app.stored_name(entity), key)
            with (
                HistoryReader(data, app, "history") as history,
                CodeVersions(history, app, lookup.spec) as versions,
            ):
                span = history.span(first, last)
                changes = entity_history(history, versions, name, span, changes_max, limits)
                return document_json(changes)


def _own(completed: str, text: str) -> str:
    """Return a completed id, unless it belongs to a principal that the text does not name."""
    is_own = (PRINCIPAL_SEPARATOR in completed) == (PRINCIPAL_SEPARATOR in text)
    return completed if is_own else text


if __name__ == "__main__":
    answer_question(Lookup, _look_up)
