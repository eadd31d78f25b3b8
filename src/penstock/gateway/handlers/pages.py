"""`GET /openapi.json` and `GET /docs`: the description of an application's API, for programs and for people.

The document is made at the first question, in a thread, and kept: a gateway that starts leaves the processor to
the driver.
"""

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.route import OPEN, Answer, Route, page

_KIND: Final = "docs"


class PageHandler:
    """Serves the description of one application."""

    def __init__(self, document: Callable[[], bytes]) -> None:
        self._make_document = document

    @Route("GET", "/openapi.json", _KIND, name="gateway.openapi.json", answers=(page(JSON),))
    async def openapi(self, request: HttpRequest) -> Response:
        """Return this document."""
        return Response(await asyncio.to_thread(lambda: self._document), 200, None, JSON)

    @Route(
        "GET",
        "/docs",
        _KIND,
        name="gateway.docs",
        right=OPEN,
        fields=(),
        answers=(Answer("The page of the console.", {}, ("Location",), 308),),
    )
    async def docs(self, request: HttpRequest) -> Response:
        """Lead to this document as a page, which asks for a key if one is needed."""
        return Response(None, 308, {"Location": "console/#/api"})

    @cached_property
    def _document(self) -> bytes:
        return self._make_document()
