"""The operations of erasures in the OpenAPI document."""

from penstock.base.http import JSON
from penstock.gateway.openapi.builtin_schemas import json_content, reference_to
from penstock.gateway.openapi.error_responses import ALWAYS, WITH_BODY, error_references
from penstock.gateway.openapi.operations import Paths, seconds
from penstock.gateway.openapi.operator_operations import shown, waiting


def add_erasure_paths(paths: Paths) -> None:
    """Add the paths that list certificates and order erasures."""
    certificate = reference_to("PenstockCertificate")
    schema = {"type": "array", "items": certificate}
    listed = shown(
        "erasures.list", "List the certificates of erasures.", "All certificates, in order.", schema
    )
    paths.add("GET", "/erasures", listed)
    order = {
        "operationId": "erasures.order",
        "tags": ["Gateway"],
        "summary": "Erase a person.",
        "description": "Deletes an entity of a personal class, and destroys the key of its data. This cannot be "
        "undone. Needs a key or token with the scope `admin`.",
        "parameters": [seconds("timeout", "Seconds to wait; at most 60.")],
        "requestBody": {"required": True, "content": json_content("PenstockErasureOrder")},
        "responses": {
            "200": {
                "description": "The key is destroyed; the certificate.",
                "content": {JSON: {"schema": certificate}},
            },
            **waiting({"type": "object"}),
            **error_references((*ALWAYS, *WITH_BODY)),
        },
    }
    paths.add("POST", "/erasures", order)
