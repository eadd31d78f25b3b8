"""The OpenAPI 3.1 document of an application, generated from its types.

Promises a valid document, in which every method, function and route of the application is an
operation with typed parameters, body and responses. The same application gives the same document in
the same order. `operations` describes the operations, `json_schema` the types of the application, `append_paths` and
`follow_paths` the operations of streams, and `builtin_paths` the paths that every gateway serves.
"""

from typing import Any, Final

import msgspec

from penstock.base.http import EPOCH, REQUEST_ID, RETRY_AFTER
from penstock.base.ids import fingerprint_of
from penstock.gateway.openapi.append_paths import STREAMS, add_append_paths
from penstock.gateway.openapi.builtin_paths import add_builtin_paths
from penstock.gateway.openapi.builtin_schemas import builtin_schemas
from penstock.gateway.openapi.deployment_paths import add_deployment_paths
from penstock.gateway.openapi.erasure_paths import add_erasure_paths
from penstock.gateway.openapi.error_responses import (
    error_response_of,
    meanings,
)
from penstock.gateway.openapi.failed_paths import add_failed_paths
from penstock.gateway.openapi.flow_paths import add_flow_paths
from penstock.gateway.openapi.follow_paths import add_follow_paths
from penstock.gateway.openapi.json_schema import SchemaRegistry, docstring_of
from penstock.gateway.openapi.operations import Operations, Paths
from penstock.model.application import App

FUNCTIONS: Final = "Functions"
"""The tag of functions."""

_DESCRIPTION: Final = """\
Every request is a transaction: it takes effect once, exactly as its response says, or not at all. \
The response is sent when the epoch of the request is committed, and names that epoch.

Arguments are a JSON array by position, or a JSON object by name; an integer has no fraction. \
`/call/…` waits for the reply, `/send/…` does not. A request that is sent again with the same \
`Idempotency-Key` takes effect once and gets the same reply. \
With `Content-Type` or `Accept: application/msgpack`, arguments or replies are MessagePack, which \
keeps all types."""

_HEADERS: Final = {
    EPOCH: {
        "description": "The epoch of the response.",
        "schema": {"type": "integer", "minimum": -1},
    },
    REQUEST_ID: {
        "description": "The request id: the caller's `Idempotency-Key`, or a new id. Absent for a "
        "`@readonly` call that is not recorded.",
        "schema": {"type": "string"},
    },
    "Location": {
        "description": "The path that returns the status of the request.",
        "schema": {"type": "string", "format": "uri-reference"},
    },
    RETRY_AFTER: {
        "description": "Seconds to wait before the next attempt.",
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
        server_url: The URL of the server; None is `/`.
        secured: Whether a key or token is required; otherwise the document says that they are
            optional.
    """
    schemas = SchemaRegistry(app, builtin_schemas())
    paths = Paths()
    operations = Operations(app, schemas, paths)
    operations.describe()
    add_append_paths(paths, app, schemas)
    add_follow_paths(paths, app, schemas)
    add_builtin_paths(paths)
    add_deployment_paths(paths)
    add_erasure_paths(paths)
    add_flow_paths(paths)
    add_failed_paths(paths)
    required: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
    tags = [
        {"name": name, **_description_of(entity.cls)}
        for name, entity in sorted(app.entities.items())
    ]
    tags += [{"name": FUNCTIONS}] if app.functions else []
    tags += [{"name": STREAMS}] if app.topology.streams else []
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


def _description_of(cls: type) -> dict[str, str]:
    text = docstring_of(cls)
    return {"description": text} if text else {}


def _version_of(document: dict[str, Any]) -> str:
    """Return a version that changes with the content of the document."""
    described = {name: document[name] for name in ("paths", "components")}
    return f"{fingerprint_of(msgspec.json.encode(described).decode()):016x}"
