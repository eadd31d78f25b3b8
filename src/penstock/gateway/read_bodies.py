"""The bodies of `POST /read` and of its response. The OpenAPI document describes them."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.base.http import EPOCH_SCHEMA, ErrorBody
from penstock.base.ids import Epoch

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
