"""The paths of an application's open streams in its OpenAPI document: each stream has its own operations."""

from typing import Any, Final

from penstock.base.http import JSON, MSGPACK, NDJSON
from penstock.gateway.openapi.builtin_schemas import answers, json_content
from penstock.gateway.openapi.error_responses import (
    ALWAYS,
    APPENDED,
    WITH_BODY,
    error_references,
)
from penstock.gateway.openapi.json_schema import SchemaRegistry
from penstock.gateway.openapi.operations import CALLED, DELAY, ID, TIMEOUT, Paths
from penstock.model.application import App

STREAMS: Final = "Streams"
"""The tag of the operations of streams."""

_ATOM: Final = "The events of one append are an atom: they take effect together, in their order."


def add_append_paths(paths: Paths, app: App, schemas: SchemaRegistry) -> None:
    """Add the operations of all open streams: an append that waits for its epoch, and one that does not."""
    for name, stream in sorted(app.topology.streams.items()):
        if stream.is_open:
            event = schemas.read(stream.events.constrained)
            paths.add("POST", f"/streams/{name}", _append(name, event))
            paths.add("POST", f"/send/streams/{name}", _send(name, event))


def _append(stream: str, event: dict[str, Any]) -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0}
    content = {JSON: {"schema": count}, MSGPACK: {"schema": {}}}
    described = _described(f"append.{stream}", f"Append to stream {stream}.", event)
    described["parameters"] = [ID, TIMEOUT]
    described["responses"] |= answers(200, "The number of events, committed.", content, CALLED)
    return described


def _send(stream: str, event: dict[str, Any]) -> dict[str, Any]:
    summary = f"Append to stream {stream}. Does not wait for the epoch."
    sent = json_content("PenstockSent")
    described = _described(f"send.append.{stream}", summary, event)
    described["parameters"] = [ID, DELAY]
    described["responses"] |= answers(202, "The append is durable.", sent, (*CALLED, "Location"))
    return described


def _described(name: str, summary: str, event: dict[str, Any]) -> dict[str, Any]:
    content = {
        JSON: {"schema": {"type": "array", "items": event}},
        NDJSON: {"schema": event},
        MSGPACK: {"schema": {"description": "An array of the events."}},
    }
    return {
        "operationId": name,
        "tags": [STREAMS],
        "summary": summary,
        "description": _ATOM,
        "requestBody": {"content": content, "required": True},
        "responses": error_references((*ALWAYS, *WITH_BODY, *APPENDED)),
    }
