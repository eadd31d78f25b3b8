"""Access to the console's data: the scope `admin`, and for changes a request from the console's own page."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.instants import with_times
from penstock.errors import Forbidden, PenstockError
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.principal import Principal
from penstock.gateway.errors import response_of
from penstock.gateway.http_request import query_of

AUTHENTICATOR: Final = "penstock.authenticator"
"""The key of the gateway's authenticator in the ASGI scope."""

INTENT: Final = "Penstock-Console"
"""The header that names the page's action; a page of another site cannot send it."""

_PRINCIPAL: Final = "penstock.principal"
_encode: Final = msgspec.json.Encoder().encode

Handler = Callable[[Request], Awaitable[Response]]


def for_operators(handler: Handler, fields: Collection[str] = ()) -> Handler:
    """Check the scope `admin` and the fields of the query string, and answer errors as the rest of the gateway does."""

    async def guarded(request: Request) -> Response:
        try:
            authenticator: Authenticator = request.scope[AUTHENTICATOR]
            principal = authenticator.identify(request.headers.raw, request.method)
            principal.require_admin()
            request.scope[_PRINCIPAL] = principal
            query_of(request.scope["query_string"], fields)
            return await handler(request)
        except PenstockError as error:
            return response_of(error)

    return guarded


def operator_of(request: Request) -> Principal:
    """Return the principal of a request that passed `for_operators`."""
    principal: Principal = request.scope[_PRINCIPAL]
    return principal


def require_own_page(request: Request, intent: str) -> None:
    """Check that a request comes from a page of this gateway or from a program, with its intent.

    Raises:
        Forbidden: The request does not.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    same = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if request.headers.get(INTENT) != intent or not same or site != "same-origin":
        raise Forbidden(
            f"only the console's own page may do this, with the header {INTENT}: {intent}"
        )


def json_response(value: object) -> Response:
    """Return a value as JSON that no cache keeps."""
    return json_bytes_response(_encode(with_times(value)))


def json_bytes_response(body: bytes) -> Response:
    """Return encoded JSON that no cache keeps."""
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
