"""The operations of flow control in the OpenAPI document."""

from penstock.base.http import JSON
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, WITH_BODY, error_references
from penstock.gateway.openapi.operations import Paths


def add_flow_paths(paths: Paths) -> None:
    """Add the paths that show and change limits and pauses."""
    state = {
        "description": "The limits and pauses in force.",
        "content": {JSON: {"schema": reference_to("PenstockFlow")}},
    }
    paths.add(
        "GET",
        "/flow",
        {
            "operationId": "flow.show",
            "tags": ["Gateway"],
            "summary": "Show limits and pauses.",
            "description": "Needs the scope `admin`.",
            "responses": {"200": state, **error_references((*ALWAYS,))},
        },
    )
    paths.add(
        "POST",
        "/flow",
        {
            "operationId": "flow.order",
            "tags": ["Gateway"],
            "summary": "Pause or resume requests.",
            "description": "The target is a class, `Class.method`, a function, `streams/NAME`, or `*` for everything; a "
            "resume takes a workflow, too. All gateways obey within a second. Needs a key or token with the scope "
            "`admin`.",
            "requestBody": {"required": True, "content": json_content("PenstockPauseOrder")},
            "responses": {"200": state, **error_references((*ALWAYS, *WITH_BODY))},
        },
    )
