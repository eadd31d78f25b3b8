"""The call or the append that an HTTP request names: its target, and its caller as the limits count it."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.base.http import DERIVED_KEY, EPOCH_SCHEMA, ErrorBody
from penstock.base.ids import Epoch
from penstock.gateway.auth.principal import Principal
from penstock.gateway.flow.limit_table import Caller
from penstock.gateway.http_request import HttpRequest
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.request import APPEND, Request
from penstock.runtime.reads.arguments import CallTarget

CALLS_MAX: Final = 1_000
"""The most calls of one `POST /read`."""


class ReadBodyCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call in the body of `POST /read`."""

    method: Annotated[str, Meta(description="The name of the method or function.")]
    entity: Annotated[str, Meta(description="The class; empty for a function.")] = ""
    key: Annotated[str | None, Meta(description="The text of the key, as in a path.")] = None
    arguments: Annotated[
        msgspec.Raw,
        Meta(
            description="By position or by name.",
            extra_json_schema={"oneOf": [{"type": "array"}, {"type": "object"}]},
        ),
    ] = msgspec.field(default_factory=msgspec.Raw)


class ReadBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Calls of `@readonly` methods and functions."""

    calls: Annotated[list[ReadBodyCall], Meta(min_length=1, max_length=CALLS_MAX)]


class ReadAnswer(Struct, frozen=True):
    """The answer to one call: its value or its error."""

    value: Annotated[Any, Meta(description="The result.")] = UNSET
    error: ErrorBody | UnsetType = UNSET


class ReadAnswers(Struct, frozen=True):
    """The answers to all calls, in their order, at one epoch."""

    epoch: Annotated[Epoch, EPOCH_SCHEMA]
    answers: list[ReadAnswer]


FINGERPRINT_BYTES: Final = 8
"""The size of a fingerprint in an access hint."""


def target_in(app: App, call: CallTarget | ReadBodyCall | Request) -> CallTarget:
    """Return the target of a call or an append, with the present name of its class."""
    return _target(app, call.entity, call.key, call.method)


def target_of(app: App, request: HttpRequest) -> CallTarget:
    """Return the target that the path of a request names, with the present name of its class."""
    path = request.path
    if "stream" in path:
        return CallTarget("", path["stream"], APPEND)
    if "function" in path:
        return CallTarget("", None, path["function"])
    key: str | None = path["key"]
    if path["method"] in CREATIONS and key == DERIVED_KEY:
        key = None
    return _target(app, path["entity"], key, path["method"])


def _target(app: App, entity: str, key: str | None, method: str) -> CallTarget:
    name = app.present_name(entity)
    former = app.stored_name(name)
    return CallTarget(name, key, method, "" if former == name else former)


def flow_caller(principal: Principal, target: CallTarget, hint: bytes) -> Caller:
    """Return the caller that the limits count for a call.

    Args:
        hint: The access hint of the call; its first fingerprint is that of the key, if there is one.
    """
    key = hint[:FINGERPRINT_BYTES] if target.key is not None else b""
    return Caller(principal.namespace, target.owner, target.method, key, target.former)


def require_right(principal: Principal, target: CallTarget) -> None:
    """Check that a principal may make a call or an append."""
    if target.stream is None:
        principal.require_call(target.entity, target.method, target.former)
    else:
        principal.require_append(target.stream)
