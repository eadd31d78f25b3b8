"""The call that an HTTP request names: its target, and its caller as the limits count it."""

from typing import Final

from penstock.base.http import DERIVED_KEY
from penstock.gateway.flow.limit_table import Caller
from penstock.gateway.http_request import HttpRequest
from penstock.model.declaration import CREATIONS
from penstock.runtime.reads.arguments import CallTarget

FINGERPRINT_BYTES: Final = 8
"""The size of a fingerprint in an access hint."""


def target_of(request: HttpRequest) -> CallTarget:
    """Return the target that the path of a request names."""
    path = request.path
    if "function" in path:
        return CallTarget("", None, path["function"])
    key: str | None = path["key"]
    if path["method"] in CREATIONS and key == DERIVED_KEY:
        key = None
    return CallTarget(path["entity"], key, path["method"])


def flow_caller(request: HttpRequest, target: CallTarget, touches: bytes) -> Caller:
    """Return the caller that the limits count for a call.

    Args:
        request: The HTTP request.
        target: The method or function.
        touches: The access hint of the call; its first fingerprint is that of the key, if there is one.
    """
    key = touches[:FINGERPRINT_BYTES] if target.key is not None else b""
    return Caller(request.principal.namespace, target.entity, target.method, key)
