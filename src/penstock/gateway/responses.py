"""HTTP responses from replies: plain values, with epoch and request id in headers."""

from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.http import EPOCH, JSON, MSGPACK, REQUEST_ID, ErrorBody
from penstock.base.ids import Epoch
from penstock.base.json_keys import json_bytes
from penstock.gateway.errors import error_response, outcome_status
from penstock.model.reply import Reply
from penstock.model.request import Failure, decode_failure
from penstock.process.load_history import LoadPoint

TEXT: Final = "text/plain; charset=utf-8"
_TYPES_MAX: Final = 256

BYTES: Final = "application/octet-stream"


def _extension_data(value: object) -> object:
    """Return the bytes of a MessagePack extension, which JSON does not have."""
    if isinstance(value, msgspec.msgpack.Ext):
        return value.data
    raise TypeError(f"{type(value).__qualname__} cannot be in a reply")


_BODILESS: Final = frozenset({204, 304})
"""The statuses whose responses have no length."""

_EPOCH: Final = EPOCH.lower().encode()
_REQUEST_ID: Final = REQUEST_ID.lower().encode()
_encode: Final = msgspec.json.Encoder(decimal_format="string", enc_hook=_extension_data).encode
_decode: Final = msgspec.msgpack.Decoder().decode


def json_of(value: Any) -> bytes:
    """Return a value that was decoded from MessagePack, or a struct with such values, as JSON.

    Bytes (in base64), dates, decimals and UUIDs become strings, and so do NaN and the infinities. A
    key that is not a string becomes its own JSON, as a string.
    """
    return json_bytes(_encode, value)


def reply_headers(epoch: Epoch, request_id: str = "") -> dict[str, str]:
    """Return the headers that every response carries."""
    headers = {EPOCH: str(epoch)}
    if request_id:
        headers[REQUEST_ID] = request_id
    return headers


class ReplyResponse(Response):
    """The response to a request that has a reply; its headers cost a third of those of Starlette's own class."""

    def __init__(
        self, reply: Reply, request_id: str, body: bytes, status: int, content_type: str
    ) -> None:
        """Encode the headers.

        Args:
            request_id: The request id as the caller knows it; empty if the request has none.
        """
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [(_EPOCH, b"%d" % reply.epoch)]
        if request_id:
            self.raw_headers.append((_REQUEST_ID, request_id.encode()))
        if status not in _BODILESS:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))
        self.raw_headers.append((b"content-type", _encoded_type(content_type)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, whose whole body is known."""
        status, headers = self.status_code, self.raw_headers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@lru_cache(_TYPES_MAX)
def _encoded_type(content_type: str) -> bytes:
    """Return the value of the header; a text without a charset is UTF-8."""
    if content_type.startswith("text/") and "charset=" not in content_type.lower():
        content_type += "; charset=utf-8"
    return content_type.encode("latin-1")


def reply_response(reply: Reply, request_id: str, accept: str) -> Response:
    """Return the response to a call: the value as JSON, or the reply itself as MessagePack.

    Args:
        accept: The `Accept` header of the request.
    """
    if MSGPACK in accept:
        status = 200 if reply.error is None else outcome_status(reply.error)
        return ReplyResponse(reply, request_id, reply.data, status, MSGPACK)
    if reply.error is None:
        return ReplyResponse(reply, request_id, json_of(_decode(reply.data)), 200, JSON)
    return failure_response(reply, request_id, outcome_status(reply.error))


def failure_response(reply: Reply, request_id: str, status: int) -> Response:
    """Return the response to a request that failed."""
    return error_response(
        status, decode_failure(reply.data), reply_headers(reply.epoch, request_id)
    )


def error_body(failure: Failure) -> ErrorBody:
    """Return a failure as a part of a JSON body."""
    return ErrorBody(failure.code, failure.kind, failure.message)


def value_of(reply: Reply) -> Any:
    """Return the untyped value of a reply without a failure."""
    return _decode(reply.data)


def route_response(
    reply: Reply, value: Any, request_id: str, status: int, content_type: str
) -> Response:
    """Return the response of an application's own path: text, bytes, or JSON.

    Args:
        content_type: The content type of the route; empty chooses one by the value.
    """
    if isinstance(value, str):
        body, own_type = value.encode(), TEXT
    elif isinstance(value, bytes):
        body, own_type = value, BYTES
    else:
        body, own_type = json_of(value), JSON
    return ReplyResponse(reply, request_id, body, status, content_type or own_type)


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
