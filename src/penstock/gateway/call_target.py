"""The call that an HTTP request names: its target, its arguments, and its encoded form."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

from penstock.base.http import DERIVED_KEY
from penstock.errors import PenstockError, RecordTooLarge, RequestError
from penstock.gateway.flow.limit_table import Caller
from penstock.gateway.http_request import HttpRequest
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.process.config import Config

_log = logging.getLogger(__name__)

FINGERPRINT_BYTES: Final = 8
"""The size of a fingerprint in an access hint."""

P = ParamSpec("P")
T = TypeVar("T")
Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""The arguments by position, and by name."""


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The method or function that a path names.

    Attributes:
        entity: The name of the class; empty for a function.
        key: The text of the key; None for a function, or if the key is derived.
        method: The name of the method or function.
    """

    entity: str
    key: str | None
    method: str


def read_arguments(read: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
    """Read arguments with a function that may run checks of the application (`__post_init__`).

    Raises:
        RequestError: The arguments do not fit, or such a check raised an exception.
    """
    try:
        return read(*values, **named)
    except PenstockError:
        raise
    except Exception as error:
        _log.info("the application's own code refused an argument", exc_info=True)
        raise RequestError(f"an argument was refused: {type(error).__name__}: {error}") from error


def target_of(request: HttpRequest) -> CallTarget:
    """Return the target that the path of a request names."""
    path = request.path
    if "function" in path:
        return CallTarget("", None, path["function"])
    key: str | None = path["key"]
    if path["method"] in CREATIONS and key == DERIVED_KEY:
        key = None
    return CallTarget(path["entity"], key, path["method"])


def encoded_call(
    app: App, config: Config, target: CallTarget, arguments: Arguments
) -> tuple[bytes, bytes]:
    """Return the body and the access hint of a log entry for a call.

    Args:
        app: The application.
        config: The gateway's configuration.
        target: The method or function.
        arguments: The decoded arguments.

    Raises:
        RecordTooLarge: The key or the body is too large.
        RequestError: The target does not exist, or the arguments do not fit.
    """
    key: object = target.key
    if target.key is not None:
        bytes_max = config.gateway.key_bytes_max
        if len(target.key.encode()) > bytes_max:
            raise RecordTooLarge(f"a key takes at most {bytes_max} bytes")
        key = app.key_of(target.entity, target.key)
    body, touches = app.request(target.entity, key, target.method, *arguments)
    if len(body) > config.record_bytes_max:
        raise RecordTooLarge(
            f"the request takes {len(body)} bytes, at most {config.record_bytes_max}"
        )
    return body, touches


def flow_caller(request: HttpRequest, target: CallTarget, touches: bytes) -> Caller:
    """Return the caller that the limits count for a call.

    Args:
        request: The HTTP request.
        target: The method or function.
        touches: The access hint of the call; its first fingerprint is that of the key, if there is one.
    """
    key = touches[:FINGERPRINT_BYTES] if target.key is not None else b""
    return Caller(request.principal.namespace, target.entity, target.method, key)
