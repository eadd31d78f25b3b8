"""Responses from errors: status, `Retry-After`, and the failure that a client is told.

A failure holds code, kind and message only: no stack trace and no path of this machine.
"""

import logging
import math
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace
from starlette.responses import Response

from penstock.base.http import JSON, RETRIABLE, RETRY_AFTER, STATUS, encode_error
from penstock.errors import IntegrityError, OperationalError, PenstockError, RequestError
from penstock.model.request import Failure
from penstock.process.process_limits import NO_TASKS, RAISE_TASKS, is_lack_of_tasks

_log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = {"overloaded": 1, "stopping": 2, "paused": 5}
_RETRY_AFTER_DEFAULT_S: Final = 1

_OF_REFUSED_CODE: Final = frozenset({"config", "definition"})

LOADING: Final = "this gateway is loading the newest deployment; send the request again"
"""The text of `StateUnavailable` while the code in force is newer than the served version."""

MESSAGE_MAX: Final = 2_000
"""The longest message in a response, in characters."""


class HttpError(Exception):
    """A request that is wrong as HTTP: its path, verb, headers or length."""

    def __init__(
        self, status: int, code: str, message: str, class_name: str = "Refused", **headers: str
    ) -> None:
        self.status = status
        self.code = code
        self.class_name = class_name
        self.headers = headers
        super().__init__(message)


def outcome_status(code: str) -> int:
    """Return the HTTP status of the failure that is the outcome of a request, or of an order of an operator.

    Deployed code that cannot be imported is the error of its sender; the same codes at other places are errors of the server.
    """
    return 409 if code in _OF_REFUSED_CODE else STATUS.get(code, 400)


def error_of(raised: BaseException, path: str) -> PenstockError | HttpError:
    """Return the error that a client is told in place of any exception; an unexpected one is logged."""
    match raised:
        case PenstockError() | HttpError():
            return raised
        case SystemExit() | KeyboardInterrupt():  # from code of an argument's class
            name = type(raised).__name__
            return RequestError(f"the class of an argument raised {name}, which stops nothing here")
        case RuntimeError() | BlockingIOError() if is_lack_of_tasks(raised):
            _log.warning(NO_TASKS, extra={"path": path, "remedy": RAISE_TASKS})
            return OperationalError(f"{NO_TASKS}; send the request again later")
        case _:
            _log.error("a request failed", exc_info=raised, extra={"path": path})
            return HttpError(500, "gateway-failed", "the gateway failed; its log has the error", "")


def failure_of(error: PenstockError | HttpError) -> Failure:
    """Return the failure that a client is told; a long message is shortened."""
    message = str(error)
    if isinstance(error, HttpError):
        return shortened(Failure(error.code, error.class_name, message))
    if isinstance(error, IntegrityError):
        message = "stored data is damaged; the gateway's log names it"
    return shortened(Failure(error.code, error.kind or type(error).__name__, message))


def shortened(failure: Failure) -> Failure:
    """Return a failure whose message takes at most `MESSAGE_MAX` characters."""
    if len(failure.message) <= MESSAGE_MAX:
        return failure
    return replace(failure, message=f"{failure.message[:MESSAGE_MAX]} …")


def error_response(
    status: int, failure: Failure, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response that tells a failure."""
    all_headers = dict(headers or {})
    if status in RETRIABLE:
        default = str(RETRY_AFTER_S.get(failure.code, _RETRY_AFTER_DEFAULT_S))
        all_headers.setdefault(RETRY_AFTER, default)
    told = shortened(failure)
    return Response(encode_error(told.code, told.kind, told.message), status, all_headers, JSON)


def response_of(
    error: PenstockError | HttpError, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response for an error that was raised in this process."""
    failure, given = failure_of(error), headers or {}
    if isinstance(error, HttpError):
        own = {name.replace("_", "-"): value for name, value in error.headers.items()}
        return error_response(error.status, failure, {**own, **given})
    own = {}
    if error.code == "unauthenticated":
        own["WWW-Authenticate"] = "Bearer"
    if isinstance(error, OperationalError) and error.retry_after_s > 0:
        own[RETRY_AFTER] = str(math.ceil(error.retry_after_s))
    return error_response(STATUS[error.code], failure, {**own, **given})
