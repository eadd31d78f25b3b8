"""The cascade of a request as a document: a part of its trace in JSON."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.base.http import ErrorBody

_LeftOut = Annotated[int, Meta(description="The number of further ones that are not listed.")]


class RecordedReply(Struct, frozen=True):
    """A reply as the journal has it: the value, or the error."""

    value: Any | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


class TracedAtom(Struct, frozen=True):
    """An atom that a cascade has published.

    `atom` is its number in the stream, as the journal has it; null if the journal does not have the atom. `events`
    has the first events as JSON text, which is cut if it is long.
    """

    stream: str
    atom: int | None
    count: int
    events: list[str]


class SentRequestTrace(Struct, frozen=True):
    """A request that a handler has sent, and that the cascade has processed."""

    request_id: str
    call: str
    reply: RecordedReply


class LaterRecordTrace(Struct, frozen=True):
    """A record that the cascade appends to the log, and its outcome.

    `epoch` is null if the journal does not have the record; `error` is the code of its failure.
    """

    request_id: str
    call: str
    delay_us: int
    epoch: int | None
    error: str | None


class TracedMessage(Struct, frozen=True):
    """A question of a handler, or the answer to it; `to` is the portal, or the task that asked."""

    id: str
    to: str
    text: str


class TracedStep(Struct, frozen=True):
    """A workflow step of a cascade.

    `parent` is the number of the step that caused it; 0 is the record itself. `source` is the stream, the portal or the
    task from which the step takes `count` events, questions or answers. A step that is `held` waits for its paused
    workflow.
    """

    step_id: str
    number: int
    parent: int
    consumer: str
    takes: Literal["events", "questions", "answers"]
    source: str
    count: int
    held: bool
    failure: ErrorBody | None
    atoms: list[TracedAtom]
    questions: list[TracedMessage]
    questions_left_out: _LeftOut
    answers: list[TracedMessage]
    answers_left_out: _LeftOut
    later: list[LaterRecordTrace]
    later_left_out: _LeftOut


class CascadeDifferenceTrace(Struct, frozen=True):
    """A part of a cascade that came out differently in this run; null on the side that does not have it.

    `part` is `event 2` (from 0), `atom`, `request` or `record`.
    """

    place: str
    part: str
    recorded: Any
    replayed: Any


class TracedCascade(Struct, frozen=True):
    """The cascade of a request: requests, atoms, workflow steps, and records for the log.

    `atoms` and `later` are those of the request and of the requests that it has sent; each step has its own.
    """

    sent: list[SentRequestTrace]
    sent_left_out: _LeftOut
    atoms: list[TracedAtom]
    atoms_left_out: _LeftOut
    steps: list[TracedStep]
    steps_left_out: _LeftOut
    later: list[LaterRecordTrace]
    later_left_out: _LeftOut
    differences: list[CascadeDifferenceTrace]
    differences_left_out: _LeftOut
