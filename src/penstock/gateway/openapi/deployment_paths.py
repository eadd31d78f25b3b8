"""The operations of deployments and partitions in the OpenAPI document."""

from typing import Any, Final

from penstock.base.http import JSON
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, WITH_BODY, error_references
from penstock.gateway.openapi.operations import Paths, seconds
from penstock.gateway.openapi.operator_operations import shown, waiting

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
    """Add the paths that list and order deployments, and those of the number of partitions."""
    schema = {"type": "array", "items": reference_to("PenstockDeployment")}
    listed = shown(
        "deployments.list", "List the deployments.", "All deployments, in order.", schema
    )
    proposal = shown(
        "partitions.get",
        "Return the number of partitions, and a proposal.",
        "The proposal.",
        reference_to("PenstockPartitions"),
    )
    paths.add("GET", "/deployments", listed)
    paths.add("POST", "/deployments", _order())
    paths.add("GET", "/deployments/{number}", _difference())
    paths.add("GET", "/partitions", proposal)
    paths.add("POST", "/partitions", _move())


def _difference() -> dict[str, Any]:
    number = {
        "name": "number",
        "in": "path",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
    return {
        "operationId": "deployments.difference",
        "tags": ["Gateway"],
        "summary": "Show the changes that a deployment has made.",
        "description": "The report compares it with the deployment before; the first one has no changes. Needs the "
        "scope `admin`.",
        "parameters": [number],
        "responses": {
            "200": {
                "description": "The report.",
                "content": json_content("PenstockDeploymentReport"),
            },
            **error_references((*ALWAYS, 404, 410, 504)),
        },
    }


def _move() -> dict[str, Any]:
    content = json_content("PenstockPartitionMove")
    return {
        "operationId": "partitions.move",
        "tags": ["Gateway"],
        "summary": "Change the number of partitions.",
        "description": "The state is copied while requests continue, and the change takes effect between two epochs. "
        "Needs a key or token with the scope `admin`.",
        "parameters": [seconds("timeout", "Seconds to wait after the copy; at most 60.")],
        "requestBody": {"required": True, "content": json_content("PenstockPartitionOrder")},
        "responses": {
            "200": {"description": "The number is in force.", "content": content},
            **waiting(reference_to("PenstockPartitionMove")),
            **error_references((*ALWAYS, *WITH_BODY, 504)),
        },
    }


def _order() -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, (text, schema) in _QUERY.items()
    ]
    either = [reference_to("PenstockDeploymentResult"), reference_to("PenstockDeploymentReport")]
    orders = [reference_to("PenstockRollback"), reference_to("PenstockRemoval")]
    return {
        "operationId": "deployments.order",
        "tags": ["Gateway"],
        "summary": "Deploy code.",
        "description": "The body is the archive of a source, or JSON: the number of a former deployment, whose code is "
        "deployed again, or the application to remove from a set of applications. The response comes when all gateways serve the code. Code that does "
        "not fit is refused with 409, and nothing changes. Needs a key or token with the scope `admin`.",
        "parameters": [*parameters, seconds("timeout", "Seconds to wait; at most 60.")],
        "requestBody": {
            "required": True,
            "content": {
                "application/zip": {"schema": _ARCHIVE},
                JSON: {"schema": {"anyOf": orders}},
            },
        },
        "responses": {
            "200": {
                "description": "The code is in force, or the report.",
                "content": {JSON: {"schema": {"anyOf": either}}},
            },
            **waiting({"type": "object"}),
            **error_references((*ALWAYS, *WITH_BODY, 409, 504)),
        },
    }
