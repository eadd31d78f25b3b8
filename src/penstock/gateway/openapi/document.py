"""The description of an application's HTTP API: OpenAPI 3.1, generated from its types.

Promises a document that a validator accepts, in which every method, function and route of the
application is an operation of its own with typed parameters, body and answers; the same application
gives the same document, in the same order. `operations` describes what is called, `schema` what is
sent; this module puts them together with what the gateway serves for every application.
"""

from typing import Any, Final

import msgspec

from penstock.base.http import EPOCH, REQUEST_ID, RETRY_AFTER
from penstock.base.ids import fingerprint_of
from penstock.gateway.openapi.builtin_paths import add_builtin_paths
from penstock.gateway.openapi.builtin_schemas import builtin_schemas
from penstock.gateway.openapi.error_responses import (
    error_response_of,
    meanings,
)
from penstock.gateway.openapi.json_schema import SchemaRegistry, docstring_of
from penstock.gateway.openapi.operations import Operations, Paths
from penstock.model.application import App

FUNCTIONS: Final = "Functions"
"""The tag of what belongs to no entity class."""

_DESCRIPTION: Final = """\
Every request is a transaction: it took effect exactly as its answer says, once, or it left nothing \
behind. An answer is given when its epoch is committed, and names that epoch.

Arguments go as a JSON array by position, or as a JSON object by name; an integer is written \
without a fraction. `/call/…` waits for the \
answer, `/send/…` does not. A request that is sent again under the same `Idempotency-Key` takes \
effect once and gets the same answer. \
With `Content-Type` or `Accept: application/msgpack` arguments or answers go as MessagePack, which \
loses nothing."""

_HEADERS: Final = {
    EPOCH: {
        "description": "The epoch that the answer is of.",
        "schema": {"type": "integer", "minimum": -1},
    },
    REQUEST_ID: {
        "description": "The request's id: the caller's `Idempotency-Key`, or a new one.",
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "Where what became of the request can be asked.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    RETRY_AFTER: {
        "description": "Seconds after which it is worth to try again.",
        "schema": {"type": "integer", "minimum": 0},
    },
}
_SECURITY: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, or a JSON Web Token.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key."},
}


def openapi_document(
    app: App, *, server_url: str | None = None, secured: bool = False
) -> dict[str, Any]:
    """Return the OpenAPI document of an application.

    Args:
        app: The application.
        server_url: Where it is served; where it is None, the document says `/`.
        secured: Whether nobody gets in without a key or token; otherwise it says that they may be
            asked for.
    """
    schemas = SchemaRegistry(app, builtin_schemas())
    paths = Paths()
    operations = Operations(app, schemas, paths)
    operations.describe()
    add_builtin_paths(paths)
    required: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
    tags = [{"name": name, **_told(kind.cls)} for name, kind in sorted(app.entities.items())]
    tags += [{"name": FUNCTIONS}] if app.functions else []
    document = {
        "openapi": "3.1.0",
        "info": {"title": app.name, "version": "", "description": _DESCRIPTION},
        "servers": [{"url": server_url or "/"}],
        "security": required if secured else [{}, *required],
        "tags": [*tags, {"name": "Requests"}, {"name": "SQL"}, {"name": "Gateway"}],
        "paths": paths.sorted(),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {
                f"Error{status}": error_response_of(status)
                for status in sorted({*meanings(), *operations.refusals})
            },
            "headers": _HEADERS,
            "securitySchemes": _SECURITY,
        },
    }
    document["info"] |= {"version": _version_of(document)}  # type: ignore[operator]
    return document


def _told(cls: type) -> dict[str, str]:
    text = docstring_of(cls)
    return {"description": text} if text else {}


def _version_of(document: dict[str, Any]) -> str:
    """Return a version that changes when what is described changes."""
    described = {name: document[name] for name in ("paths", "components")}
    return f"{fingerprint_of(msgspec.json.encode(described).decode()):016x}"
