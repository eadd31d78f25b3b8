"""HTTP responses from errors: status, `Retry-After`, and the body of an error.

A response holds code, kind and message only: no stack trace and no path of this machine.
"""

import math
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON, RETRIABLE, RETRY_AFTER, STATUS, encode_error
from penstock.errors import IntegrityError, OperationalError, PenstockError

RETRY_AFTER_S: Final = {"overloaded": 1, "stopping": 2, "paused": 5}
_RETRY_AFTER_DEFAULT_S: Final = 1

_OF_REFUSED_CODE: Final = frozenset({"config", "definition"})

MESSAGE_MAX: Final = 2_000
"""The longest message in a response, in characters."""


class HttpError(Exception):
    """A request that is wrong as HTTP: its path, verb, headers or length."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        self.status = status
        self.code = code
        self.headers = headers
        super().__init__(message)


def outcome_status(code: str) -> int:
    """Return the HTTP status of the failure that is the outcome of a request, or of an order of an operator.

    Deployed code that cannot be imported is the error of its sender; the same codes at other places are errors of the server.
    """
    return 409 if code in _OF_REFUSED_CODE else STATUS.get(code, 400)


def error_response(
    status: int, code: str, class_name: str, message: str, headers: dict[str, str] | None = None
) -> Response:
    """Return the response for an error.

    Args:
        status: The HTTP status.
        code: The stable code of the error.
        class_name: The name of the exception class.
        message: The message; a long one is shortened.
        headers: Further headers.
    """
    all_headers = dict(headers or {})
    if status in RETRIABLE:
        all_headers.setdefault(RETRY_AFTER, str(RETRY_AFTER_S.get(code, _RETRY_AFTER_DEFAULT_S)))
    if len(message) > MESSAGE_MAX:
        message = f"{message[:MESSAGE_MAX]} …"
    body = encode_error(code, class_name, message)
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
    class_name = error.kind or type(error).__name__
    if error.code == "unauthenticated":
        headers = {"WWW-Authenticate": "Bearer", **(headers or {})}
    if isinstance(error, OperationalError) and error.retry_after_s > 0:
        headers = {RETRY_AFTER: str(math.ceil(error.retry_after_s)), **(headers or {})}
    return error_response(STATUS[error.code], error.code, class_name, message, headers)
