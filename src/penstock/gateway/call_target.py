"""The call or the append that an HTTP request names: its target, and its caller as the limits count it."""

from typing import Final

from penstock.base.http import DERIVED_KEY
from penstock.gateway.auth.principal import Principal
from penstock.gateway.flow.limit_table import Caller
from penstock.gateway.http_request import HttpRequest
from penstock.model.declaration import CREATIONS
from penstock.model.request import APPEND, Request
from penstock.runtime.reads.arguments import CallTarget

FINGERPRINT_BYTES: Final = 8
"""The size of a fingerprint in an access hint."""


def target_of(request: HttpRequest) -> CallTarget:
    """Return the target that the path of a request names."""
    path = request.path
    if "stream" in path:
        return CallTarget("", path["stream"], APPEND)
    if "function" in path:
        return CallTarget("", None, path["function"])
    key: str | None = path["key"]
    if path["method"] in CREATIONS and key == DERIVED_KEY:
        key = None
    return CallTarget(path["entity"], key, path["method"])


def flow_caller(principal: Principal, target: CallTarget, touches: bytes) -> Caller:
    """Return the caller that the limits count for a call.

    Args:
        principal: The sender of the request.
        target: The method, function or stream.
        touches: The access hint of the call; its first fingerprint is that of the key, if there is one.
    """
    key = touches[:FINGERPRINT_BYTES] if target.key is not None else b""
    return Caller(principal.namespace, target.owner, target.method, key)


def require_right(principal: Principal, target: CallTarget | Request) -> None:
    """Check that a principal may make a call or an append.

    Raises:
        Forbidden: The scope is missing; the message names it.
    """
    if target.stream is None:
        principal.require_call(target.entity, target.method)
    else:
        principal.require_append(target.stream)
