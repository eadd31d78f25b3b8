"""What every gateway serves, whatever the application: requests, SQL, health, metrics, pages."""

from typing import Any, Final

from penstock.base.http import ARROW, CSV, EPOCH, JSON, MSGPACK, NDJSON
from penstock.gateway.openapi.error_responses import (
    ALWAYS,
    AWAITED,
    ERROR_SCHEMA,
    WITH_BODY,
    error_references,
)
from penstock.gateway.openapi.json_schema import Schema
from penstock.gateway.openapi.operations import (
    CALLED,
    MIN_EPOCH_PARAMETER,
    Paths,
    seconds,
)

_EPOCH: Final[Schema] = {"type": "integer", "minimum": -1}
_ANYTHING: Final[Schema] = {}
_FLAG: Final[Schema] = {"type": "boolean"}
_OUTSIDE: Final[Schema] = {
    "type": "array",
    "description": "Requests that wanted something outside, which looking back refuses.",
    "items": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("request_id", "what", "where")},
    },
}
_COUNT: Final[Schema] = {"type": "integer"}
_COUNT_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
_TEXT: Final[Schema] = {"type": "string"}


def _only(properties: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


BUILTIN_SCHEMAS: Final[dict[str, Schema]] = {
    "PenstockSent": {
        "type": "object",
        "properties": {"request_id": _TEXT},
        "required": ["request_id"],
    },
    "PenstockRequest": {
        "type": "object",
        "description": "What became of a request.",
        "properties": {
            "request_id": _TEXT,
            "status": {"enum": ["scheduled", "pending", "answered"]},
            "epoch": {"type": ["integer", "null"], "description": "null before it is answered."},
            "lsn": {"type": "integer", "description": "Its place in the log."},
            "due_us": {
                "type": "integer",
                "description": "When it is due: microseconds since the Unix epoch.",
            },
            "value": {"description": "What was returned, where it took effect."},
            "error": ERROR_SCHEMA["properties"]["error"],
        },
        "required": ["request_id", "status", "epoch"],
    },
    "PenstockQuestion": {
        "type": "object",
        "description": "A question to the state at one epoch.",
        "properties": {
            "query": {"type": "string", "examples": ["SELECT 42 AS answer"]},
            "parameters": {"type": ["array", "object"]},
            "min_epoch": {"type": "integer", "minimum": 0},
            "as_of": {
                "description": "The past instead of the present: an epoch, or the newest one at a "
                "time (ISO 8601; UTC where it names no zone).",
                "oneOf": [
                    _only({"epoch": {"type": "integer", "minimum": 0}}),
                    _only({"timestamp": _TEXT}),
                ],
            },
            "timeout_ms": {"type": "integer", "minimum": 1},
            "rows_max": {"type": "integer", "minimum": 0},
        },
        "required": ["query"],
    },
    "PenstockRows": {
        "type": "object",
        "properties": {
            "epoch": _EPOCH,
            "columns": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": _TEXT, "type": _TEXT},
                    "required": ["name", "type"],
                },
            },
            "rows": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["epoch", "columns", "rows"],
    },
    "PenstockChange": {
        "type": "object",
        "description": "What an epoch made of an entity; one line of the feed.",
        "properties": {
            "epoch": _EPOCH,
            "time": {"type": "string", "format": "date-time"},
            "key": _ANYTHING,
            "kind": {"enum": ["create", "update", "delete"]},
            "before": {"type": ["object", "null"]},
            "after": {"type": ["object", "null"]},
        },
        "required": ["epoch", "time", "key", "kind", "before", "after"],
    },
    "PenstockCall": {
        "type": "object",
        "description": "One call of a request, with those inside it.",
        "properties": {
            "call": _TEXT,
            "where": _TEXT,
            "took_us": {"type": "number"},
            "value": {"type": ["string", "null"]},
            "error": {"type": ["string", "null"]},
            "undone": _FLAG,
            "calls": {"type": "array", "items": {"$ref": "#/components/schemas/PenstockCall"}},
        },
        "required": ["call", "where", "took_us", "value", "error", "undone", "calls"],
    },
    "PenstockTrace": {
        "type": "object",
        "description": "What a request did; times are microseconds.",
        "properties": {
            "request_id": _TEXT,
            "call": _TEXT,
            "epoch": _EPOCH,
            "lsn": _COUNT,
            "position": _COUNT,
            "requests_in_epoch": _COUNT,
            "appended_us": _COUNT,
            "committed_us": _COUNT,
            "rounds": _COUNT_OR_NULL,
            "reran": _COUNT_OR_NULL,
            "tasks": _COUNT_OR_NULL,
            "reply": {"type": "object"},
            "as_recorded": _FLAG,
            "taken_as_recorded": _FLAG,
            "root": {"oneOf": [{"$ref": "#/components/schemas/PenstockCall"}, {"type": "null"}]},
            "entities": {"type": "array", "items": {"type": "object"}},
            "outside": _OUTSIDE,
        },
        "required": [
            *("request_id", "call", "epoch", "reply", "as_recorded", "root", "entities", "outside"),
        ],
    },
    "PenstockHistory": {
        "type": "object",
        "description": "Changes of one entity; `more` says that there are older ones.",
        "properties": {
            "entity": _TEXT,
            "key": _TEXT,
            "changes": {"type": "array", "items": {"type": "object"}},
            "more": _FLAG,
            "outside": _OUTSIDE,
        },
        "required": ["entity", "key", "changes", "more", "outside"],
    },
    "PenstockHealth": {
        "type": "object",
        "properties": {"status": _TEXT},
        "required": ["status"],
    },
}

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
    health = {JSON: {"schema": {"$ref": "#/components/schemas/PenstockHealth"}}}
    paths.add("GET", "/healthz", _page("alive", "Say that this process lives.", health))
    ready = _page("ready", "Say whether this gateway can serve.", health)
    ready["responses"]["503"] = {"description": "It cannot.", "content": health}
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
    content = {JSON: {"schema": {"$ref": "#/components/schemas/PenstockTrace"}}}
    return {
        "operationId": "requests.trace",
        "tags": ["Requests"],
        "summary": "Show what a request did.",
        "description": "Its calls, what it read and changed, and its place in the order. It is run "
        "again for that, which takes seconds; wants the scope `sql`.",
        "parameters": [dict(_NAMED)],
        "responses": {
            "200": {"description": "What it did.", "content": content},
            **error_references((*ALWAYS, 413, 429, 504)),
        },
    }


def _requests() -> dict[str, Any]:
    content = {
        JSON: {"schema": {"$ref": "#/components/schemas/PenstockRequest"}},
        MSGPACK: {"schema": _ANYTHING},
    }
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
                "content": content,
            },
            **error_references((*ALWAYS, *AWAITED)),
        },
    }


def _sql() -> dict[str, Any]:
    question = {"$ref": "#/components/schemas/PenstockQuestion"}
    return {
        "operationId": "sql.ask",
        "tags": ["SQL"],
        "summary": "Ask a question in SQL.",
        "description": "Answered from one epoch, which is not older than the newest that was "
        "committed when the question arrived, or from the one that `as_of`, or AS OF EPOCH n or "
        "AS OF TIMESTAMP '…' at the end of the query, names. Read-only.",
        "parameters": [MIN_EPOCH_PARAMETER],
        "requestBody": {"content": {JSON: {"schema": question}}, "required": True},
        "responses": {
            "200": {
                "description": "The rows.",
                "headers": {EPOCH: {"$ref": f"#/components/headers/{EPOCH}"}},
                "content": {
                    JSON: {"schema": {"$ref": "#/components/schemas/PenstockRows"}},
                    NDJSON: {"schema": _ANYTHING},
                    CSV: {"schema": _TEXT},
                    ARROW: {"schema": _ANYTHING},
                },
            },
            **error_references((*ALWAYS, *WITH_BODY, *AWAITED, 429)),
        },
    }
