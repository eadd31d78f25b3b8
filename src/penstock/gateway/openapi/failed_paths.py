"""The operations of failed requests in the OpenAPI document."""

from typing import Any

from penstock.base.http import JSON
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, WITH_BODY, error_references
from penstock.gateway.openapi.operations import NAMED, Paths
from penstock.gateway.openapi.operator_operations import shown


def add_failed_paths(paths: Paths) -> None:
    """Add the paths that list failed requests, and order their attempts."""
    listed = "The failed requests that no caller waits for."
    listing = shown("failed.list", "List failed requests.", listed, reference_to("PenstockFailed"))
    listing["responses"] |= error_references((503, 504))
    paths.add("GET", "/failed", listing)
    paths.add(
        "POST",
        "/failed",
        {
            "operationId": "failed.order",
            "tags": ["Gateway"],
            "summary": "Run several failed requests again, or discard them.",
            "description": "A refused request does not end the order. Needs the scope `admin`.",
            "requestBody": {"required": True, "content": json_content("PenstockAttemptOrder")},
            "responses": {
                "200": {
                    "description": "The attempts in the log, and the requests without an attempt.",
                    "content": {JSON: {"schema": reference_to("PenstockAttempts")}},
                },
                **error_references((*ALWAYS, *WITH_BODY, 503)),
            },
        },
    )
    retried = "Runs a failed request again, once, as the next attempt of its id. An answer that the application has declared is final."
    discarded = "Ends the attempts of a failed request: its result is the error `cancelled`."
    paths.add(
        "POST", "/requests/{id}/retry", _attempt("retry", "Run a failed request again.", retried)
    )
    paths.add(
        "POST",
        "/requests/{id}/discard",
        _attempt("discard", "Discard a failed request.", discarded),
    )


def _attempt(name: str, summary: str, description: str) -> dict[str, Any]:
    return {
        "operationId": f"requests.{name}",
        "tags": ["Requests"],
        "summary": summary,
        "description": f"{description} Needs the scope `admin`.",
        "parameters": [dict(NAMED)],
        "responses": {
            "200": {
                "description": "The attempt is in the log.",
                "content": json_content("PenstockAttempt"),
            },
            **error_references((*ALWAYS, 409, 503)),
        },
    }
