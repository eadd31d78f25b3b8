"""The JSON bodies of the gateway's own responses. The OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.base.http import ErrorBody
from penstock.process.load_history import LoadPoint


class Sent(Struct, frozen=True):
    """The answer to `POST /send/…`: the request is durable."""

    request_id: str


class CancelledRequest(Struct, frozen=True):
    """The answer to `DELETE /requests/…`: the request never runs, and its result is an error.

    If the request has run, and a part of its cascade waits, an operator ends this part: the status is `ending`.
    """

    request_id: str
    lsn: Annotated[
        int,
        Meta(
            description="The position in the log: of the cancelled request, or of the record that ends the rest of its cascade."
        ),
    ]
    status: Literal["cancelled", "ending"] = "cancelled"


class RequestStatus(Struct, frozen=True):
    """The status of a request, and its outcome once that is known.

    The outcome of a cancelled request is known before its epoch, which answers it with the same error.
    """

    request_id: str
    epoch: Annotated[int | None, Meta(description="null until the request is answered.")]
    status: Literal["scheduled", "pending", "cancelled", "answered"]
    lsn: Annotated[int, Meta(description="The position in the log.")] | UnsetType = UNSET
    due_us: (
        Annotated[int, Meta(description="The due time in microseconds since the Unix epoch.")]
        | UnsetType
    ) = UNSET
    due: Annotated[datetime, Meta(description="The due time.")] | UnsetType = UNSET
    value: Annotated[Any, Meta(description="The result, if the request took effect.")] = UNSET
    error: ErrorBody | UnsetType = UNSET


class Health(Struct, frozen=True):
    """Whether the process is alive."""

    status: str


class Readiness(Struct, frozen=True):
    """Whether a gateway can serve, and which other processes run."""

    status: Literal["ready", "not ready"]
    reasons: list[str]
    pid: int
    epoch: int
    waiting: Annotated[int, Meta(description="Requests that wait for their epoch.")]
    lag: Annotated[
        int | None,
        Meta(
            description="Records in the log that no epoch has committed; null if the log cannot be read."
        ),
    ]
    driver: Literal["running", "starting", "absent"]
    view: Literal["running", "starting", "absent"]
    missing: Annotated[
        list[str],
        Meta(
            description="Each process that does not run, and each deployment that is not served yet."
        ),
    ] = []


class RecentLoad(Struct, frozen=True):
    """The load of the last hour: one point for each step in which a gateway ran, the newest last."""

    step_s: int
    points: list[LoadPoint]
