"""The paths that every gateway serves: requests, SQL, health, metrics and pages."""

from typing import Any, Final

from penstock.base.http import ARROW, CSV, EPOCH, JSON, MSGPACK, NDJSON
from penstock.gateway.openapi.builtin_schemas import json_content
from penstock.gateway.openapi.error_responses import (
    ALWAYS,
    AWAITED,
    WITH_BODY,
    error_references,
)
from penstock.gateway.openapi.operations import (
    CALLED,
    MIN_EPOCH_PARAMETER,
    NAMED,
    Paths,
    seconds,
)

_ANYTHING: Final[dict[str, Any]] = {}
_TEXT: Final = {"type": "string"}

_BEGINNING: Final = {
    "name": "beginning",
    "in": "query",
    "description": "With `true`, the path may name the beginning of an id, if the id of no other scheduled request "
    "of the same principal begins so. The answer has the complete id.",
    "schema": {"type": "boolean", "default": False},
}
_NEVER_REFUSED: Final = (400, 405, 414, 431, 500)


def add_builtin_paths(paths: Paths) -> None:
    """Add the paths that every gateway serves."""
    paths.add("GET", "/requests/{id}", _requests())
    paths.add("DELETE", "/requests/{id}", _cancel())
    paths.add("GET", "/requests/{id}/trace", _trace())
    paths.add("POST", "/read", _read())
    paths.add("POST", "/sql", _sql())
    health = json_content("PenstockHealth")
    paths.add("GET", "/healthz", _page("alive", "Check whether the process is alive.", health))
    readiness = json_content("PenstockReadiness")
    ready = _page("ready", "Check whether the gateway can serve.", readiness)
    ready["responses"]["503"] = {"description": "The gateway is not ready.", "content": readiness}
    paths.add("GET", "/readyz", ready)
    for name, summary, media_type in (
        ("metrics", "Return metrics for Prometheus.", "text/plain"),
        ("openapi.json", "Return this document.", JSON),
        ("docs", "Return this document as a page.", "text/html"),
    ):
        page = _page(name, summary, {media_type: {"schema": _ANYTHING}})
        page["responses"] |= error_references((*ALWAYS,))
        del page["security"]
        paths.add("GET", f"/{name}", page)
    paths.add("GET", "/metrics/recent", _recent_load())


def _recent_load() -> dict[str, Any]:
    return {
        "operationId": "gateway.load",
        "tags": ["Gateway"],
        "summary": "Get the load of the last hour.",
        "description": "Returns answered requests, latency percentiles, processed requests and lag of all "
        "gateways, in steps of some seconds. Needs the scope `admin`.",
        "parameters": [seconds("seconds", "Only the last seconds; all if absent.")],
        "responses": {
            "200": {"description": "The load.", "content": json_content("PenstockLoad")},
            **error_references((*ALWAYS,)),
        },
    }


def _page(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"gateway.{name}",
        "tags": ["Gateway"],
        "summary": summary,
        "security": [],
        "responses": {
            "200": {"description": "The check or the page.", "content": content},
            **error_references(_NEVER_REFUSED),
        },
    }


def _trace() -> dict[str, Any]:
    return {
        "operationId": "requests.trace",
        "tags": ["Requests"],
        "summary": "Trace a request.",
        "description": "Returns the calls of a request, the entities that it read and changed, and its "
        "position in the order. The request runs again for this, which takes seconds. Needs the scope "
        "`sql`.",
        "parameters": [dict(NAMED)],
        "responses": {
            "200": {"description": "The trace.", "content": json_content("PenstockTrace")},
            **error_references((*ALWAYS, 413, 429, 504)),
        },
    }


def _requests() -> dict[str, Any]:
    return {
        "operationId": "requests.status",
        "tags": ["Requests"],
        "summary": "Get the status of a request.",
        "parameters": [
            dict(NAMED),
            seconds("wait", "Seconds to wait for the reply."),
        ],
        "responses": {
            "200": {
                "description": "The status.",
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in CALLED},
                "content": {**json_content("PenstockRequest"), MSGPACK: {"schema": _ANYTHING}},
            },
            **error_references((*ALWAYS, 410, *AWAITED)),
        },
    }


def _cancel() -> dict[str, Any]:
    return {
        "operationId": "requests.cancel",
        "tags": ["Requests"],
        "summary": "Cancel a scheduled request.",
        "description": "Cancels a request that was sent with a delay and is not due yet. It never runs, its "
        "id stays taken, and its result is the error `cancelled`. A repetition returns the same answer. "
        "A request that was due before is refused with `too-late`; `Location` names its result. If an operator "
        "names a request that has run, and a part of its cascade still waits, this part is ended instead.",
        "parameters": [dict(NAMED), _BEGINNING],
        "responses": {
            "200": {
                "description": "The request is cancelled.",
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in CALLED},
                "content": json_content("PenstockCancelled"),
            },
            **error_references((*ALWAYS, 409)),
        },
    }


def _read() -> dict[str, Any]:
    return {
        "operationId": "requests.read",
        "tags": ["Requests"],
        "summary": "Make many calls of `@readonly` handlers.",
        "description": "All calls read the same epoch, which is not older than the newest epoch at their "
        "arrival. They are not recorded. The answers have the order of the calls.",
        "parameters": [MIN_EPOCH_PARAMETER, seconds("timeout", "Seconds to wait for the answers.")],
        "requestBody": {
            "content": {**json_content("PenstockReads"), MSGPACK: {"schema": _ANYTHING}},
            "required": True,
        },
        "responses": {
            "200": {
                "description": "The answers.",
                "headers": {EPOCH: {"$ref": f"#/components/headers/{EPOCH}"}},
                "content": {**json_content("PenstockReadAnswers"), MSGPACK: {"schema": _ANYTHING}},
            },
            **error_references((*ALWAYS, *WITH_BODY, *AWAITED, 429)),
        },
    }


def _sql() -> dict[str, Any]:
    return {
        "operationId": "sql.ask",
        "tags": ["SQL"],
        "summary": "Run a SQL query.",
        "description": "Runs one read-only query over the state at one epoch. Without `as_of`, the epoch "
        "is not older than the newest epoch at the arrival of the query. `as_of`, or AS OF EPOCH n or "
        "AS OF TIMESTAMP '…' at the end of the query, names a past epoch.",
        "parameters": [MIN_EPOCH_PARAMETER],
        "requestBody": {"content": json_content("PenstockQuestion"), "required": True},
        "responses": {
            "200": {
                "description": "The rows.",
                "headers": {EPOCH: {"$ref": f"#/components/headers/{EPOCH}"}},
                "content": {
                    **json_content("PenstockRows"),
                    NDJSON: {"schema": _ANYTHING},
                    CSV: {"schema": _TEXT},
                    ARROW: {"schema": _ANYTHING},
                },
            },
            **error_references((*ALWAYS, *WITH_BODY, *AWAITED, 429)),
        },
    }
