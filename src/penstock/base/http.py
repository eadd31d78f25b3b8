"""The HTTP vocabulary: media types, header names, and the body of an error.

The gateway, the SQL view's process, the clients and the commands all take these names from here.
Every code of the error tree has a status here.
"""

from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import Meta

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
PARQUET: Final = "application/vnd.apache.parquet"
EVENTS: Final = "text/event-stream"

HEARTBEAT_S: Final = 15.0
"""An event stream without events brings a comment after this time."""

EPOCH: Final = "Penstock-Epoch"
REQUEST_ID: Final = "Penstock-Request-Id"
MIN_EPOCH: Final = "Penstock-Min-Epoch"
VIEW_STATE: Final = "Penstock-View"
"""`rebuilding` while the SQL view is rebuilt; otherwise absent."""

CALLER: Final = "Penstock-Caller"
"""The principal for which a gateway queries the SQL view; the view limits each caller."""

CONSOLE: Final = "Penstock-Console"
"""The action of a page of the console; a page of another site cannot send it."""

COUNT_MAX: Final = 10**18 - 1
"""The greatest whole number that a field of a request may have; every store holds it."""

OLDEST_ATOM: Final = "Penstock-Oldest-Atom"
"""The number of the oldest atom of a stream that is held; only with the error `gone`."""

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
RETRY_AFTER: Final = "Retry-After"

DERIVED_KEY: Final = "-"
"""The key segment of a path whose entity key is derived from the request id on creation."""

STATUS: Final = {
    "penstock": 500,
    "user": 400,
    "definition": 500,
    "config": 500,
    "class-changed": 409,
    "migration-failed": 500,
    "request": 400,
    "request-conflict": 409,
    "too-late": 409,
    "gone": 410,
    "record-too-large": 413,
    "outside-transaction": 400,
    "aborted": 400,
    "unhandled": 400,
    "no-such-entity": 404,
    "already-exists": 409,
    "not-unique": 409,
    "dangling-reference": 409,
    "unencodable": 400,
    "limit-exceeded": 400,
    "cancelled": 409,
    "erased": 410,
    "internal": 500,
    "readonly-violation": 400,
    "ask-failed": 400,
    "deadlock": 400,
    "query": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "operational": 503,
    "log-unavailable": 503,
    "journal-unavailable": 503,
    "state-unavailable": 503,
    "view-unavailable": 503,
    "unreachable": 503,
    "timed-out": 504,
    "overloaded": 429,
    "throttled": 429,
    "paused": 503,
    "stopping": 503,
    "fenced": 503,
    "epoch-failed": 503,
    "integrity": 500,
    "corrupt": 500,
    "diverged": 500,
    "truncated": 500,
}
"""The HTTP status of each code."""

RETRIABLE: Final = frozenset({429, 503})
"""The statuses of errors that a repetition can remedy; they have `Retry-After`."""

EPOCH_SCHEMA: Final = Meta(extra_json_schema={"minimum": -1})
"""Adds to the JSON Schema of an epoch that -1 is its smallest value; decoding does not check it."""


class ErrorBody(msgspec.Struct, frozen=True):
    """An error as clients see it."""

    code: Annotated[str, Meta(description="A stable code for programs.")]
    kind: Annotated[str, Meta(description="The name of the exception class.")]
    message: Annotated[str, Meta(description="A text for people; it may change.")]


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every response that is an error."""

    error: ErrorBody


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(ErrorAnswer)


def encode_error(code: str, class_name: str, message: str) -> bytes:
    """Return the body of a response that is an error."""
    return _encoder.encode(ErrorAnswer(ErrorBody(code, class_name, message)))


def decode_error(body: bytes) -> ErrorBody | None:
    """Return the error that a response body holds; None if the body is something else."""
    try:
        return _decoder.decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


_TYPES_MAX: Final = 64
"""The content types that are remembered; most requests have the same one."""


@lru_cache(_TYPES_MAX)
def media_type_of(content_type: str) -> str:
    """Return the media type of a `Content-Type` header, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()
