"""The paths of an application's streams for followers: the list, and the atoms of each stream with their types."""

from typing import Any, Final

from penstock.base.http import EPOCH, MSGPACK
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, error_references
from penstock.gateway.openapi.json_schema import SchemaRegistry
from penstock.gateway.openapi.operations import Paths, seconds
from penstock.gateway.streams.event_stream import MEDIA_TYPE
from penstock.model.application import App
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.stream import Stream

_FROM: Final = {
    "name": "from",
    "in": "query",
    "description": "The number of the first atom, `earliest` (the default) or `latest`: the next new atom.",
    "schema": {"type": "string", "pattern": r"^(\d{1,18}|earliest|latest)$"},
}
_LIMIT: Final = {
    "name": "limit",
    "in": "query",
    "description": "The most atoms of an answer; the default is 1,000. Large atoms come in smaller answers.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 10_000},
}
_LAST: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The number of the last atom that the follower has; the answer begins with the next one.",
    "schema": {"type": "string", "pattern": r"^\d{1,18}$"},
}
_DESCRIPTION: Final = (
    "Returns atoms in their order, each with its number, its events, the time of the request that caused it, and its "
    "epoch. `next` is the number to ask for next. With `Accept: text/event-stream` the response does not end: each "
    "atom is a server-sent event, whose id is its number. An atom that retention has removed is refused with `gone`, "
    "and the header `Penstock-Oldest-Atom` has the oldest number."
)


def add_follow_paths(paths: Paths, app: App, schemas: SchemaRegistry) -> None:
    """Add the operations of all streams, if the application has streams."""
    if not app.topology.streams:
        return
    paths.add("GET", "/streams", _index())
    for name, stream in sorted(app.topology.streams.items()):
        paths.add("GET", f"/streams/{name}", _follow(stream, schemas))


def _index() -> dict[str, Any]:
    return {
        "operationId": "streams.list",
        "tags": ["Streams"],
        "summary": "List the streams that the caller may follow.",
        "responses": {
            "200": _answer("The streams, by name.", json_content("PenstockStreams")),
            **error_references(ALWAYS),
        },
    }


def _follow(stream: Stream[Any], schemas: SchemaRegistry) -> dict[str, Any]:
    is_failed = stream.annotation is FailedAtom
    event = reference_to("PenstockFailedAtom") if is_failed else schemas.written(stream.annotation)
    atom = {"properties": {"events": {"type": "array", "items": event}}}
    body = {**reference_to("PenstockAtoms"), "properties": {"atoms": {"items": atom}}}
    content = {
        "application/json": {"schema": body},
        MSGPACK: {"schema": {}},
        MEDIA_TYPE: {"schema": {"type": "string"}},
    }
    return {
        "operationId": f"follow.{stream.name}",
        "tags": ["Streams"],
        "summary": f"Follow stream {stream.name}.",
        "description": _DESCRIPTION,
        "parameters": [_FROM, _LIMIT, seconds("wait", "Seconds to wait for an atom."), _LAST],
        "responses": {
            "200": _answer("The atoms.", content),
            **error_references((*ALWAYS, 410)),
        },
    }


def _answer(description: str, content: dict[str, Any]) -> dict[str, Any]:
    headers = {EPOCH: {"$ref": f"#/components/headers/{EPOCH}"}}
    return {"description": description, "headers": headers, "content": content}
