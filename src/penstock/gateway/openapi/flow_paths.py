"""The operations of flow control in the OpenAPI document."""

from penstock.base.http import JSON
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, WITH_BODY, error_references
from penstock.gateway.openapi.operations import Paths
from penstock.gateway.openapi.operator_operations import shown


def add_flow_paths(paths: Paths) -> None:
    """Add the paths that show and change limits and pauses."""
    answer, state = "The limits and pauses in force.", reference_to("PenstockFlow")
    paths.add("GET", "/flow", shown("flow.show", "Show limits and pauses.", answer, state))
    paths.add(
        "POST",
        "/flow",
        {
            "operationId": "flow.order",
            "tags": ["Gateway"],
            "summary": "Pause or resume requests.",
            "description": "The target is a class, `Class.method`, a function, `streams/NAME`, or `*` for everything; a "
            "resume takes a workflow, too. All gateways obey within a second. Needs the scope `admin`.",
            "requestBody": {"required": True, "content": json_content("PenstockPauseOrder")},
            "responses": {
                "200": {"description": answer, "content": {JSON: {"schema": state}}},
                **error_references((*ALWAYS, *WITH_BODY)),
            },
        },
    )
