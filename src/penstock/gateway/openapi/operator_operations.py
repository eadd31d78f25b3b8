"""The common parts of the operations for operators in the OpenAPI document: answers to `GET`, and orders that wait."""

from typing import Any

from penstock.base.http import JSON
from penstock.gateway.openapi.error_responses import ALWAYS, error_references


def shown(operation_id: str, summary: str, answer: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a `GET` operation that needs the scope `admin`.

    Args:
        operation_id: The name of the operation.
        summary: Its description.
        answer: The description of the answer.
        schema: The schema of the answer.
    """
    return {
        "operationId": operation_id,
        "tags": ["Gateway"],
        "summary": summary,
        "description": "Needs the scope `admin`.",
        "responses": {
            "200": {"description": answer, "content": {JSON: {"schema": schema}}},
            **error_references((*ALWAYS,)),
        },
    }


def waiting(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the response to an order that is in the log, and waits for the driver."""
    return {
        "202": {
            "description": "The order is in the log, and waits for the driver.",
            "headers": {"Location": {"$ref": "#/components/headers/Location"}},
            "content": {JSON: {"schema": schema}},
        }
    }
