"""`GET /openapi.json` and `GET /docs`: the description of an application's API, for programs and for people.

Both are made at the first question, in a thread, and kept: a gateway that starts leaves the processor to
the driver.
"""

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.route import Route, page

PAGES: Final = "docs"
"""The kind of the routes of pages."""


class PageHandler:
    """Serves the pages of one application."""

    def __init__(
        self, document: Callable[[], bytes], page: Callable[[], tuple[bytes, dict[str, str]]]
    ) -> None:
        """Create the handler.

        Args:
            document: Makes the OpenAPI document.
            page: Makes the page, with its headers.
        """
        self._make_document = document
        self._make_page = page

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
        return self._make_document()

    @cached_property
    def _page(self) -> tuple[bytes, dict[str, str]]:
        return self._make_page()
