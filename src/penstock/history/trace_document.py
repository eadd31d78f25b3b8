"""Traces and histories as documents: the JSON of `penstock trace --json` and of the HTTP paths.

The OpenAPI document describes the answers by these structs.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from penstock.base.difference import ElementDifference
from penstock.base.http import EPOCH_SCHEMA
from penstock.base.ids import Epoch
from penstock.history.cascade_document import RecordedReply, TracedCascade

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
