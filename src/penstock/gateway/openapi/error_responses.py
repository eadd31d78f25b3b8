"""The error responses of the OpenAPI document: statuses, codes and their meanings.

They come from the table of `base.http` and the tree of `penstock.errors`. This module adds the
errors of HTTP itself; a test compares them with the errors that the gateway raises.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.base.http import RETRIABLE, RETRY_AFTER, STATUS
from penstock.errors import BY_CODE
from penstock.gateway.openapi.builtin_schemas import ERROR
from penstock.gateway.route import json_content

REFUSED: Final = {
    "not-found": (404, "The path or the request does not exist."),
    "method-not-allowed": (405, "The path accepts other verbs only."),
    "request-timeout": (408, "The body did not arrive in time."),
    "path-too-long": (414, "The path is too long."),
    "unsupported-media-type": (415, "The content type of the body is not accepted."),
    "headers-too-large": (431, "The headers are too large."),
    "gateway-failed": (500, "The gateway failed; its log has the error."),
}
"""The errors of HTTP itself: status and meaning by code."""

ALWAYS: Final = (400, 401, 403, 404, 405, 414, 431, 500, 503)
"""The statuses of every path."""

WITH_BODY: Final = (408, 413, 415)
"""Further statuses of a path that reads a body."""

OF_OPEN_PATH: Final = (400, 405, 414, 431, 500)
"""The statuses of a path that needs no credential, and is never refused."""


def meanings() -> dict[int, dict[str, str]]:
    """Return the meaning of each code, by status and code."""
    texts = {
        code: (error_type.__doc__ or "").partition("\n")[0] for code, error_type in BY_CODE.items()
    }
    statuses = {code: (status, texts.get(code, "")) for code, status in STATUS.items()} | REFUSED
    by_status: dict[int, dict[str, str]] = {}
    for code, (status, text) in sorted(statuses.items()):
        by_status.setdefault(status, {})[code] = text
    return dict(sorted(by_status.items()))


def error_response_of(status: int) -> dict[str, Any]:
    """Return the component that describes the errors of a status."""
    codes = meanings().get(status, {})
    text = "\n".join(f"- `{code}`: {meaning}" for code, meaning in codes.items())
    described: dict[str, Any] = {
        "description": f"An error:\n\n{text}" if text else "The application refused the request.",
        "content": json_content(ERROR),
    }
    if status in RETRIABLE:
        described["headers"] = {RETRY_AFTER: {"$ref": f"#/components/headers/{RETRY_AFTER}"}}
    return described


def error_references(statuses: Iterable[int]) -> dict[str, Any]:
    """Return references to the error responses of these statuses."""
    return {
        str(status): {"$ref": f"#/components/responses/Error{status}"}
        for status in sorted(set(statuses))
    }
