"""Traces and histories as documents: the JSON of `penstock trace --json` and of the HTTP paths.

The OpenAPI document describes the answers by these structs.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.base.difference import ElementDifference
from penstock.base.http import EPOCH_SCHEMA, ErrorBody
from penstock.base.ids import Epoch

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


EpochNumber = Annotated[Epoch, EPOCH_SCHEMA]
Differences = Annotated[
    list[ElementDifference],
    Meta(description="The elements of attributes that the change has changed, the first 100."),
]
Deviations = Annotated[
    list[ElementDifference],
    Meta(
        description="The elements that running again gives otherwise: `before` is the stored value at the end of the epoch, "
        "`after` that of this run. Where nothing is stored, between two requests of an epoch, the value of this run is shown."
    ),
]
LeftOut = Annotated[int, Meta(description="The number of differences that are not listed.")]


class RefusedCall(Struct, frozen=True):
    """A call to the outside that was refused while a request ran again."""

    request_id: str
    what: str
    where: str


class TracedCall(Struct, frozen=True):
    """One call of a request, with the calls inside it."""

    call: str
    where: str
    took_us: float
    value: str | None
    error: str | None
    undone: bool
    calls: list["TracedCall"]


class NextChange(Struct, frozen=True):
    """The request that changed an entity next; the request is null if only the epoch is known."""

    request_id: str | None
    call: str | None
    epoch: EpochNumber


class TracedEntity(Struct, frozen=True):
    """An entity that a request read or wrote; `before` and `after` are its attributes.

    If a change was undone, `after` holds the undone values.
    """

    entity: str
    key: str
    written: bool
    undone: bool
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    next: NextChange | None
    differences: Differences = []
    differences_left_out: LeftOut = 0
    deviations: Deviations = []


class TraceDocument(Struct, frozen=True):
    """The calls, entities and reply of a request; names that end in `_us` are microseconds."""

    request_id: str
    call: str
    epoch: EpochNumber
    lsn: int
    position: Annotated[int, Meta(description="The request's position in its epoch, from 0.")]
    requests_in_epoch: int
    appended_us: int
    appended: datetime
    committed_us: int
    committed: datetime
    rounds: int | None
    reran: int | None
    tasks: int | None
    reply: RecordedReply
    as_recorded: Annotated[
        bool, Meta(description="Whether the request gave the recorded reply, cascade and states.")
    ]
    taken_as_recorded: Annotated[
        bool,
        Meta(
            description="Whether the request did not run again, because it exceeded a limit, is a control record, or "
            "concerns an erased person."
        ),
    ]
    root: TracedCall | None
    entities: list[TracedEntity]
    outside: Annotated[
        list[RefusedCall], Meta(description="Calls to the outside, which are refused in a trace.")
    ]
    cascade: Annotated[
        TracedCascade | None,
        Meta(description="The cascade of the request; null if it has caused nothing."),
    ] = None


class AttributeChange(Struct, frozen=True):
    """The value of an attribute before and after a change."""

    name: str
    before: Any
    after: Any


class EntityChange(Struct, frozen=True):
    """One change of an entity and the request that made it; both are null if running again shows no request that does."""

    epoch: EpochNumber
    time_us: int
    time: datetime
    request_id: str | None
    call: str | None
    kind: Literal["create", "update", "delete"]
    attributes: list[AttributeChange]
    differences: Differences
    differences_left_out: LeftOut
    deviations: Deviations = []


class HistoryDocument(Struct, frozen=True):
    """Changes of one entity; `more` says whether there are older ones."""

    entity: str
    key: str
    changes: list[EntityChange]
    more: bool
    outside: Annotated[
        list[RefusedCall], Meta(description="Calls to the outside, which are refused in a history.")
    ]
    erased: Annotated[
        int,
        Meta(
            description="How many epochs changed the entity by requests about erased persons; their changes cannot be shown."
        ),
    ] = 0
