"""The cascade of a request that has run again, as a document.

The document shows the results of this run, with the numbers of atoms and the later outcomes that the journal has. It
names each result that differs from the journal.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from penstock.base.http import ErrorBody
from penstock.base.ids import Epoch, RequestId
from penstock.base.json_keys import as_text, json_bytes
from penstock.base.subject_keys import SubjectKeys
from penstock.engine.replay import ValueDifference, reply_of
from penstock.engine.request_text import call_text
from penstock.engine.streams.cascade import (
    Delivered,
    Delivery,
    Inquiry,
    LaterRecord,
    NextInLine,
    PublishedAtom,
    Step,
)
from penstock.engine.streams.derived_ids import step_id, timed_question
from penstock.engine.streams.observed_cascades import TakenStep
from penstock.engine.streams.recorded_cascade import (
    AtomDifference,
    CascadeDifference,
    LaterDifference,
    RecordedCascade,
    SentDifference,
    SentRequest,
    cascade_differences,
    sent_of,
)
from penstock.engine.streams.waiting import Answer
from penstock.engine.tracing import RequestTrace
from penstock.history.trace_document import (
    CascadeDifferenceTrace,
    LaterRecordTrace,
    RecordedReply,
    SentRequestTrace,
    TracedAtom,
    TracedCascade,
    TracedMessage,
    TracedStep,
)
from penstock.model.sealed_value import decode_shown
from penstock.model.streams.flow import Workflow
from penstock.model.streams.task_type import flow_of

SHOWN_MAX: Final = 200
"""How many steps, sent requests, atoms and later records of a cascade are listed."""

_PART_MAX: Final = 20
_EVENTS_MAX: Final = 5
_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode
_TEXT_MAX: Final = 80

Outcomes = Mapping[str, tuple[Epoch, str | None]]
"""By request id: the epoch of a later record, and the code of its failure."""


def cascade_document(
    root: RequestId,
    recorded: RecordedCascade,
    traced: RequestTrace,
    outcomes_of: Callable[[Collection[str]], Outcomes],
    keys: SubjectKeys | None,
) -> TracedCascade | None:
    """Return a cascade as a document; None if it has caused nothing and the journal has nothing of it.

    Args:
        outcomes_of: Returns the outcomes of those later records that the journal has.
        keys: The keys of the persons; None for an application without personal classes.
    """
    cascade = traced.cascade
    differences = [*map(described, cascade_differences(recorded, cascade, keys))]
    if cascade is None and not differences:
        return None
    sent = sent_of(cascade)
    later = [] if cascade is None else cascade.later
    outcomes = outcomes_of([record.request_id for record in later])
    numbers = _numbers_of(recorded)
    of_steps = {id(record) for step in traced.steps for record in step.later}
    own_later = [record for record in later if id(record) not in of_steps]
    published = [] if cascade is None else cascade.published
    first = traced.steps[0].number if traced.steps else 1
    own_atoms = _atoms([atom for atom in published if atom.step < first], numbers)
    steps = [_step(root, step, numbers, outcomes) for step in traced.steps[:SHOWN_MAX]]
    return TracedCascade(
        sent=[_sent(request) for request in sent[:SHOWN_MAX]],
        sent_left_out=_left_out(sent, SHOWN_MAX),
        atoms=own_atoms[:SHOWN_MAX],
        atoms_left_out=_left_out(own_atoms, SHOWN_MAX),
        steps=steps,
        steps_left_out=_left_out(traced.steps, SHOWN_MAX),
        later=_later(own_later[:SHOWN_MAX], outcomes),
        later_left_out=_left_out(own_later, SHOWN_MAX),
        differences=[CascadeDifferenceTrace(*difference) for difference in differences[:SHOWN_MAX]],
        differences_left_out=_left_out(differences, SHOWN_MAX),
    )


def described(difference: CascadeDifference) -> ValueDifference:
    """Return a difference as plain data; a value is None if one side does not have it."""
    match difference:
        case AtomDifference(stream, number, event, recorded, replayed):
            atom = "a further atom" if number is None else f"atom {number}"
            place = f"{atom} of stream {stream}"
            part = "atom" if event is None else f"event {event}"
            return ValueDifference(place, part, _plain(recorded), _plain(replayed))
        case SentDifference(request_id, was, now):
            place = f"sent request {request_id}"
            return ValueDifference(place, "request", _plain_sent(was), _plain_sent(now))
        case LaterDifference(request_id, before, after):
            place = f"later record {request_id}"
            return ValueDifference(place, "record", _plain_later(before), _plain_later(after))


def _numbers_of(recorded: RecordedCascade) -> dict[str, Iterator[int]]:
    """Return the numbers of the recorded atoms of each stream, in order."""
    numbers: dict[str, list[int]] = {}
    for number, atom in recorded.atoms:
        numbers.setdefault(atom.stream, []).append(number)
    return {stream: iter(each) for stream, each in numbers.items()}


def _step(
    root: RequestId, step: TakenStep, numbers: dict[str, Iterator[int]], outcomes: Outcomes
) -> TracedStep:
    consumer, takes, source, count = _taken(step.step)
    questions = [
        TracedMessage(question.id, question.portal, _text(question.data))
        for queued in step.queued
        if isinstance(queued, Inquiry)
        for question in queued.questions
    ]
    answers = [
        TracedMessage(answer.id, queued.task, _answer_text(answer))
        for queued in step.queued
        if isinstance(queued, Delivered)
        for answer in queued.answers
    ]
    failure = step.failure
    is_workflow = not isinstance(step.step, Delivery) or isinstance(step.step.subscriber, Workflow)
    return TracedStep(
        step_id=step_id(root, step.number),
        number=step.number,
        parent=step.parent,
        consumer=consumer,
        takes=takes,
        source=source,
        count=count,
        held=is_workflow and failure is None and not (step.published or step.queued or step.later),
        failure=None if failure is None else ErrorBody(failure.code, failure.kind, failure.message),
        atoms=_atoms(step.published, numbers),
        questions=questions[:_PART_MAX],
        questions_left_out=_left_out(questions, _PART_MAX),
        answers=answers[:_PART_MAX],
        answers_left_out=_left_out(answers, _PART_MAX),
        later=_later(step.later[:_PART_MAX], outcomes),
        later_left_out=_left_out(step.later, _PART_MAX),
    )


def _taken(step: Step) -> tuple[str, Literal["events", "questions", "answers"], str, int]:
    """Return the consumer of a step, the kind of its items, their source, and their number."""
    match step:
        case Delivery(Workflow() as workflow, stream, atom):
            return workflow.flow_name, "events", stream, len(atom)
        case Delivery(subscriber, stream, atom):
            return subscriber.name, "events", stream, len(atom)
        case Inquiry(portal, questions):
            return (
                f"portal {portal}",
                "questions",
                questions[0].task if questions else "",
                len(questions),
            )
        case Delivered(workflow, task, answers):
            return workflow, "answers", task, len(answers)
        case NextInLine(task, _):
            return flow_of(task), "events", f"the line of {task}", 1


def _atoms(atoms: Iterable[PublishedAtom], numbers: dict[str, Iterator[int]]) -> list[TracedAtom]:
    return [
        TracedAtom(
            atom.stream,
            next(numbers.get(atom.stream, iter(())), None),
            len(atom.events),
            [_text(event) for event in atom.events[:_EVENTS_MAX]],
        )
        for atom in atoms
    ]


def _sent(request: SentRequest) -> SentRequestTrace:
    reply = reply_of(request.error, request.reply)
    shown = RecordedReply(value=reply)
    if request.error is not None:
        shown = RecordedReply(error=ErrorBody(reply["error"], reply["kind"], reply["message"]))
    return SentRequestTrace(request.request_id, call_text(request.body), shown)


def _later(records: Iterable[LaterRecord], outcomes: Outcomes) -> list[LaterRecordTrace]:
    traces = []
    for request_id, body, delay_us in records:
        epoch, error = outcomes.get(request_id, (None, None))
        question = timed_question(request_id)
        call = f"the end of the time of question {question}" if question else call_text(body)
        traces.append(LaterRecordTrace(request_id, call, delay_us, epoch, error))
    return traces


def _plain(data: bytes | PublishedAtom | None) -> Any:
    if isinstance(data, PublishedAtom):
        events = [decode_shown(event) for event in data.events[:_EVENTS_MAX]]
        return {"step": data.step, "count": len(data.events), "events": events}
    return None if data is None else decode_shown(data)


def _plain_sent(request: SentRequest | None) -> Any:
    if request is None:
        return None
    reply = reply_of(request.error, request.reply)
    return {"id": request.request_id, "call": call_text(request.body), "reply": reply}


def _plain_later(record: LaterRecord | None) -> Any:
    if record is None:
        return None
    return {"call": call_text(record.body), "delay_us": record.delay_us}


def _answer_text(answer: Answer) -> str:
    if answer.failure is not None:
        return f"failed: {answer.failure.kind}: {answer.failure.message}"[:_TEXT_MAX]
    return "" if answer.data is None else _text(answer.data)


def _text(data: bytes) -> str:
    """Return an encoded value as JSON; a long text is cut."""
    text = json_bytes(_encode, decode_shown(data)).decode()
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _left_out(items: Sequence[Any], shown_max: int) -> int:
    return max(0, len(items) - shown_max)
