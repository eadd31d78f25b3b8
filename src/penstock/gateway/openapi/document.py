"""The OpenAPI 3.1 document of an application, generated from its types.

Promises a valid document, in which every method, function and route of the application is an
operation with typed parameters, body and responses. The same application gives the same document in
the same order. The handlers of the gateway declare their paths (`gateway.route`); `operations` describes the paths of
the application, and `json_schema` its types.
"""

from typing import Any, Final

import msgspec

from penstock.base.http import EPOCH, JSON, REQUEST_ID, RETRY_AFTER
from penstock.base.ids import fingerprint_of
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.deployments import DeploymentHandler
from penstock.gateway.handlers.erasures import ErasureHandler
from penstock.gateway.handlers.failed import FailedHandler
from penstock.gateway.handlers.flow import FlowHandler
from penstock.gateway.handlers.health import HealthHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.load import LoadHandler
from penstock.gateway.handlers.pages import PageHandler
from penstock.gateway.handlers.reads import ReadHandler
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.openapi.builtin_schemas import builtin_schemas
from penstock.gateway.openapi.error_responses import (
    ALWAYS,
    OF_OPEN_PATH,
    WITH_BODY,
    error_references,
    error_response_of,
    meanings,
)
from penstock.gateway.openapi.json_schema import SchemaRegistry, docstring_of
from penstock.gateway.openapi.operations import FUNCTIONS, Operations
from penstock.gateway.route import OPEN, STREAMS, Parameter, Route, routes_of
from penstock.model.application import App

HANDLERS: Final = (
    CallHandler,
    ReadHandler,
    StreamHandler,
    SqlHandler,
    HistoryHandler,
    HealthHandler,
    LoadHandler,
    PageHandler,
    DeploymentHandler,
    ErasureHandler,
    FlowHandler,
    FailedHandler,
)
"""The handlers whose named routes are in each document."""

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
        server_url: The URL of the server; None is `/`.
        secured: Whether a key or token is required; otherwise the document says that they are
            optional.
    """
    schemas = SchemaRegistry(app, builtin_schemas())
    paths = Paths()
    for route in Operations(app, schemas).routes():
        paths.add(route)
    for handlers in HANDLERS:
        for route, _ in routes_of(handlers):
            if route.name and (route.tag != STREAMS or app.topology.streams):
                paths.add(route)
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
                for status in sorted({*meanings(), *(route.refused for route in app.routes)})
            },
            "headers": _HEADERS,
            "securitySchemes": _SECURITY,
        },
    }
    document["info"] |= {"version": _version_of(document)}  # type: ignore[operator]
    return document


class Paths:
    """The paths of a document. Paths that differ in their names alone are one."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._written: dict[str, str] = {}

    def add(self, route: Route) -> None:
        """Add an operation; its parameters in the path stand first, in the path's order."""
        shape = "/".join("{}" if part[:1] == "{" else part for part in route.path.split("/"))
        known = self._written.setdefault(shape, route.path)
        names = [part[1:-1] for part in known.split("/") if part[:1] == "{"]
        operation = _operation(route)
        for name, parameter in zip(names, operation.get("parameters", ()), strict=False):
            parameter["name"] = name
        self._items.setdefault(known, {})[route.verb.lower()] = operation

    def sorted(self) -> dict[str, dict[str, Any]]:
        """Return all, by path and by verb."""
        return {
            path: dict(sorted(operations.items()))
            for path, operations in sorted(self._items.items())
        }


def _operation(route: Route) -> dict[str, Any]:
    """Return a route as an operation of the document."""
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
    }
    if route.description:
        operation["description"] = route.description
    if route.right is OPEN:
        operation["security"] = []
    if route.parameters:
        operation["parameters"] = [_parameter(each) for each in route.parameters]
    if route.is_readonly:
        operation["x-penstock-readonly"] = True
    errors = {*(OF_OPEN_PATH if route.right is OPEN else ALWAYS), *route.errors}
    if route.body is not None:
        operation["requestBody"] = {"content": route.body, "required": route.is_body_required}
        errors.update(WITH_BODY)
    answers = {}
    for answer in route.answers:
        described: dict[str, Any] = {"description": answer.text}
        if answer.headers:
            described["headers"] = {
                name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers
            }
        answers[str(answer.status)] = described | {"content": answer.content}
    operation["responses"] = dict(sorted((error_references(errors) | answers).items()))
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "in": parameter.place}
    if parameter.text:
        described["description"] = parameter.text
    if parameter.is_required is not None:
        described["required"] = parameter.is_required
    if parameter.is_json:
        return described | {"content": {JSON: {"schema": parameter.schema}}}
    return described | {"schema": parameter.schema}


def _description_of(cls: type) -> dict[str, str]:
    text = docstring_of(cls)
    return {"description": text} if text else {}


def _version_of(document: dict[str, Any]) -> str:
    """Return a version that changes with the content of the document."""
    described = {name: document[name] for name in ("paths", "components")}
    return f"{fingerprint_of(msgspec.json.encode(described).decode()):016x}"
