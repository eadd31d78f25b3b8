"""The operations of deployments in the OpenAPI document."""

from typing import Any, Final

from penstock.base.http import JSON
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, WITH_BODY, error_references
from penstock.gateway.openapi.operations import Paths, seconds

_ARCHIVE: Final = {"type": "string", "format": "binary"}
_QUERY: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "app": ("With an archive: the application in it.", {"type": "string"}),
    "check": ("With an archive: only return the report.", {"type": "boolean", "default": False}),
    "drop": (
        "With an archive: the stored classes that the code lacks, separated by commas. Their entities stay stored.",
        {"type": "string"},
    ),
    "epochs": (
        "With `check`: the most epochs that run again.",
        {"type": "integer", "minimum": 0, "maximum": 10_000, "default": 100},
    ),
}


def add_deployment_paths(paths: Paths) -> None:
    """Add the paths that list and order deployments."""
    schema = {"type": "array", "items": reference_to("PenstockDeployment")}
    paths.add(
        "GET",
        "/deployments",
        {
            "operationId": "deployments.list",
            "tags": ["Gateway"],
            "summary": "List the deployments.",
            "description": "Needs the scope `admin`.",
            "responses": {
                "200": {
                    "description": "All deployments, in order.",
                    "content": {JSON: {"schema": schema}},
                },
                **error_references((*ALWAYS,)),
            },
        },
    )
    paths.add("POST", "/deployments", _order())


def _order() -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, (text, schema) in _QUERY.items()
    ]
    either = [reference_to("PenstockDeploymentResult"), reference_to("PenstockDeploymentReport")]
    return {
        "operationId": "deployments.order",
        "tags": ["Gateway"],
        "summary": "Deploy code.",
        "description": "The body is the archive of a source, or JSON with the number of a former deployment, "
        "whose code is deployed again. The response comes when all gateways serve the code. Code that does "
        "not fit is refused with 409, and nothing changes. Needs a key or token with the scope `admin`.",
        "parameters": [*parameters, seconds("timeout", "Seconds to wait; at most 60.")],
        "requestBody": {
            "required": True,
            "content": {
                "application/zip": {"schema": _ARCHIVE},
                **json_content("PenstockRollback"),
            },
        },
        "responses": {
            "200": {
                "description": "The code is in force, or the report.",
                "content": {JSON: {"schema": {"anyOf": either}}},
            },
            "202": {
                "description": "The order is in the log, and waits for the driver.",
                "headers": {"Location": {"$ref": "#/components/headers/Location"}},
                "content": {JSON: {"schema": {"type": "object"}}},
            },
            **error_references((*ALWAYS, *WITH_BODY, 409, 504)),
        },
    }
