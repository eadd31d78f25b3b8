"""HTTP responses from errors: a table of statuses, and the body of an error.

Promises that every code of the error tree has a status, and that a response holds code, kind and
message only: no stack trace and no path of this machine.
"""

import math
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON, RETRY_AFTER, encode_error
from penstock.errors import IntegrityError, OperationalError, PenstockError

STATUS: Final = {
    "penstock": 500,
    "user": 400,
    "definition": 500,
    "config": 500,
    "class-changed": 500,
    "request": 400,
    "request-conflict": 409,
    "record-too-large": 413,
    "outside-transaction": 400,
    "aborted": 400,
    "no-such-entity": 404,
    "already-exists": 409,
    "unencodable": 400,
    "limit-exceeded": 400,
    "internal": 500,
    "readonly-violation": 400,
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

RETRY_AFTER_S: Final = {"overloaded": 1, "stopping": 2, "paused": 5}
_RETRY_AFTER_DEFAULT_S: Final = 1
_RETRIABLE: Final = frozenset({429, 503})

MESSAGE_MAX: Final = 2_000
"""The longest message in a response, in characters."""


class HttpError(Exception):
    """A request that is wrong as HTTP: its path, verb, headers or length."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        self.status = status
        self.code = code
        self.headers = headers
        super().__init__(message)


def error_response(
    status: int, code: str, kind: str, message: str, headers: dict[str, str] | None = None
) -> Response:
    """Return the response for an error.

    Args:
        status: The HTTP status.
        code: The stable code of the error.
        kind: The name of the exception class.
        message: The message; a long one is shortened.
        headers: Further headers.
    """
    all_headers = dict(headers or {})
    if status in _RETRIABLE:
        all_headers.setdefault(RETRY_AFTER, str(RETRY_AFTER_S.get(code, _RETRY_AFTER_DEFAULT_S)))
    if len(message) > MESSAGE_MAX:
        message = f"{message[:MESSAGE_MAX]} …"
    body = encode_error(code, kind, message)
    return Response(body, status, all_headers, JSON)


def response_of(
    error: PenstockError | HttpError, headers: dict[str, str] | None = None
) -> Response:
    """Return the response for an error that was raised in this process."""
    if isinstance(error, HttpError):
        own = {name.replace("_", "-"): value for name, value in error.headers.items()}
        return error_response(
            error.status, error.code, "Refused", str(error), own | (headers or {})
        )
    message = str(error)
    if isinstance(error, IntegrityError):
        message = "stored data is damaged; the gateway's log names it"
    kind = error.kind or type(error).__name__
    if error.code == "unauthenticated":
        headers = {"WWW-Authenticate": "Bearer", **(headers or {})}
    if isinstance(error, OperationalError) and error.retry_after_s > 0:
        headers = {RETRY_AFTER: str(math.ceil(error.retry_after_s)), **(headers or {})}
    return error_response(STATUS[error.code], error.code, kind, message, headers)
