"""`GET /openapi.json` and `GET /docs`: the description of an application's API, for programs and for people.

Both are made at the first question, in a thread, and kept: a gateway that starts leaves the processor to
the driver.
"""

import asyncio
from functools import cached_property
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of
from penstock.gateway.route import Route, page
from penstock.model.application import App

PAGES: Final = "docs"
"""The kind of the routes of pages."""


def sign_in_response(reason: str) -> Response:
    """Return the response to a browser that has opened a page without a credential."""
    from penstock.gateway.openapi.sign_in_page import SIGN_IN_HEADERS, sign_in_page  # noqa: PLC0415 -- as below

    headers = SIGN_IN_HEADERS | {"WWW-Authenticate": "Bearer"}
    return Response(sign_in_page(reason), 401, headers, "text/html; charset=utf-8")


class PageHandler:
    """Serves the pages of one application."""

    def __init__(self, app: App, *, secured: bool) -> None:
        """Create the handler.

        Args:
            app: The application.
            secured: Whether callers need a key or a token.
        """
        self._app = app
        self._secured = secured

    @Route("GET", "/openapi.json", PAGES, name="gateway.openapi.json", answers=(page(JSON),))
    async def openapi(self, request: HttpRequest) -> Response:
        """Return this document."""
        return Response(await asyncio.to_thread(lambda: self._document), 200, None, JSON)

    @Route("GET", "/docs", PAGES, name="gateway.docs", answers=(page("text/html"),))
    async def docs(self, request: HttpRequest) -> Response:
        """Return this document as a page."""
        page, headers = await asyncio.to_thread(lambda: self._page)
        return Response(page, 200, headers, "text/html; charset=utf-8")

    @cached_property
    def _document(self) -> bytes:
        from penstock.gateway.openapi.document import openapi_document  # noqa: PLC0415 -- see above

        return json_of(openapi_document(self._app, secured=self._secured))

    @cached_property
    def _page(self) -> tuple[bytes, dict[str, str]]:
        from penstock.gateway.openapi.docs_page import PAGE_HEADERS, docs_page  # noqa: PLC0415 -- see above

        return docs_page(self._app).encode(), PAGE_HEADERS
