"""What a description of the API says of errors: which statuses there are, and what each means.

Everything comes from the one table of `errors` and the tree of `penstock.errors`; what HTTP itself
refuses is added here, and a test compares it with what the gateway raises.
"""

from collections.abc import Iterable
from typing import Any, Final

from penstock.base.http import JSON, RETRY_AFTER
from penstock.errors import BY_CODE
from penstock.gateway.errors import STATUS
from penstock.gateway.openapi.builtin_schemas import ERROR

REFUSED: Final = {
    "not-found": (404, "There is nothing at this path."),
    "method-not-allowed": (405, "The path is served with other verbs."),
    "request-timeout": (408, "The body did not come in time."),
    "path-too-long": (414, "The path is longer than the gateway takes."),
    "unsupported-media-type": (415, "The body is of a type that is not read here."),
    "headers-too-large": (431, "The headers are larger than the gateway takes."),
    "gateway-failed": (500, "Something failed in the gateway; its log says what."),
}
"""What is refused before an application is asked: status and meaning."""

ALWAYS: Final = (400, 401, 403, 404, 405, 414, 431, 500, 503)
"""What any path may answer."""

WITH_BODY: Final = (408, 413, 415)
"""What a path that reads a body may answer beside."""

APPENDED: Final = (409, 429, 504)
"""What a path that puts a request into the log may answer beside."""

AWAITED: Final = (504,)
"""What a path that waits for an epoch may answer beside."""


def meanings() -> dict[int, dict[str, str]]:
    """Return what each code means, by status and code."""
    texts = {code: (one.__doc__ or "").partition("\n")[0] for code, one in BY_CODE.items()}
    told = {code: (status, texts.get(code, "")) for code, status in STATUS.items()} | REFUSED
    found: dict[int, dict[str, str]] = {}
    for code, (status, text) in sorted(told.items()):
        found.setdefault(status, {})[code] = text
    return dict(sorted(found.items()))


def error_response_of(status: int) -> dict[str, Any]:
    """Return the response component of a status."""
    codes = meanings().get(status, {})
    text = "\n".join(f"- `{code}`: {meaning}" for code, meaning in codes.items())
    described: dict[str, Any] = {
        "description": f"Refused or failed:\n\n{text}" if text else "Refused.",
        "content": {
            JSON: {"schema": {"$ref": f"#/components/schemas/{ERROR}"}},
        },
    }
    if status in (429, 503):
        described["headers"] = {RETRY_AFTER: {"$ref": f"#/components/headers/{RETRY_AFTER}"}}
    return described


def error_references(statuses: Iterable[int]) -> dict[str, Any]:
    """Return the responses of an operation that may answer with these statuses."""
    return {
        str(status): {"$ref": f"#/components/responses/Error{status}"}
        for status in sorted(set(statuses))
    }
