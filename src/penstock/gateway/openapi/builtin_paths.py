"""What every gateway serves, whatever the application: requests, SQL, health, metrics, pages."""

from typing import Any, Final

from penstock.base.http import ARROW, CSV, EPOCH, JSON, MSGPACK, NDJSON
from penstock.gateway.openapi.error_responses import (
    ALWAYS,
    AWAITED,
    WITH_BODY,
    error_references,
)
from penstock.gateway.openapi.operations import (
    CALLED,
    MIN_EPOCH_PARAMETER,
    Paths,
    seconds,
)

_ANYTHING: Final[dict[str, Any]] = {}
_TEXT: Final = {"type": "string"}

_NAMED: Final = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "An id that this caller has chosen or was given. With the scope `admin` also "
    "`principal~id`, or `~id` where there was no principal.",
    "schema": {"type": "string", "pattern": "^([!-}]*~)?[!-}]+$"},
}
_NEVER_REFUSED: Final = (400, 405, 414, 431, 500)


def add_builtin_paths(paths: Paths) -> None:
    """Add what every gateway serves."""
    paths.add("GET", "/requests/{id}", _requests())
    paths.add("GET", "/requests/{id}/trace", _trace())
    paths.add("POST", "/sql", _sql())
    health = _content("PenstockHealth")
    paths.add("GET", "/healthz", _page("alive", "Say that this process lives.", health))
    readiness = _content("PenstockReadiness")
    ready = _page("ready", "Say whether this gateway can serve.", readiness)
    ready["responses"]["503"] = {"description": "It cannot.", "content": readiness}
    paths.add("GET", "/readyz", ready)
    for verb_path, summary, media in (
        ("metrics", "Metrics, as Prometheus reads them.", "text/plain"),
        ("openapi.json", "This document.", JSON),
        ("docs", "This document, as a page.", "text/html"),
    ):
        page = _page(verb_path, summary, {media: {"schema": _ANYTHING}})
        page["responses"] |= error_references((*ALWAYS,))
        del page["security"]
        paths.add("GET", f"/{verb_path}", page)


def _content(schema: str) -> dict[str, Any]:
    """Return the content of a JSON body with a schema of `builtin_schemas`."""
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _page(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"gateway.{name}",
        "tags": ["Gateway"],
        "summary": summary,
        "security": [],
        "responses": {
            "200": {"description": "It is so.", "content": content},
            **error_references(_NEVER_REFUSED),
        },
    }


def _trace() -> dict[str, Any]:
    return {
        "operationId": "requests.trace",
        "tags": ["Requests"],
        "summary": "Show what a request did.",
        "description": "Its calls, what it read and changed, and its place in the order. It is run "
        "again for that, which takes seconds; wants the scope `sql`.",
        "parameters": [dict(_NAMED)],
        "responses": {
            "200": {"description": "What it did.", "content": _content("PenstockTrace")},
            **error_references((*ALWAYS, 413, 429, 504)),
        },
    }


def _requests() -> dict[str, Any]:
    return {
        "operationId": "requests.status",
        "tags": ["Requests"],
        "summary": "Ask what became of a request.",
        "parameters": [
            dict(_NAMED),
            seconds("wait", "Seconds to wait for its reply."),
        ],
        "responses": {
            "200": {
                "description": "It is known.",
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in CALLED},
                "content": {**_content("PenstockRequest"), MSGPACK: {"schema": _ANYTHING}},
            },
            **error_references((*ALWAYS, *AWAITED)),
        },
    }


def _sql() -> dict[str, Any]:
    return {
        "operationId": "sql.ask",
        "tags": ["SQL"],
        "summary": "Ask a question in SQL.",
        "description": "Answered from one epoch, which is not older than the newest that was "
        "committed when the question arrived, or from the one that `as_of`, or AS OF EPOCH n or "
        "AS OF TIMESTAMP '…' at the end of the query, names. Read-only.",
        "parameters": [MIN_EPOCH_PARAMETER],
        "requestBody": {"content": _content("PenstockQuestion"), "required": True},
        "responses": {
            "200": {
                "description": "The rows.",
                "headers": {EPOCH: {"$ref": f"#/components/headers/{EPOCH}"}},
                "content": {
                    **_content("PenstockRows"),
                    NDJSON: {"schema": _ANYTHING},
                    CSV: {"schema": _TEXT},
                    ARROW: {"schema": _ANYTHING},
                },
            },
            **error_references((*ALWAYS, *WITH_BODY, *AWAITED, 429)),
        },
    }
