"""`POST /sql`: forwards queries to the view's process, and returns its responses.

The gateway parses nothing: the view checks the query, and names its epoch in a header. Without a
view, or while it starts, the response is 503.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from penstock.base.http import (
    ARROW,
    CALLER,
    CSV,
    EPOCH,
    MIN_EPOCH,
    NDJSON,
    PARQUET,
    RETRY_AFTER,
    VIEW_STATE,
)
from penstock.client.results import Rows
from penstock.errors import ViewUnavailable
from penstock.gateway.auth.principal import Principal
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.route import MIN_EPOCH_HEADER, SHOWN, SQL, Answer, Route, json_content
from penstock.process.config import Config
from penstock.sql_view.query_body import QueryBody
from penstock.sql_view.view_client import async_view_client, socket_of

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger(__name__)

_FORWARDED: Final = ("accept", "content-type", MIN_EPOCH.lower())
_RETURNED: Final = ("content-type", EPOCH, VIEW_STATE, RETRY_AFTER)
_SLACK_S: Final = 5.0
"""Time for a response beyond the time limit of the query."""

_SEND_S: Final = 60.0
"""The longest time for which a client may take nothing of a response: each response holds a connection to the view."""


class SqlHandler:
    """Forwards queries to the view of one application."""

    def __init__(self, data: Path, config: Config) -> None:
        """Use the view of a data directory; it is looked up for each query."""
        self._data = data
        self._config = config
        self._socket = ""
        self._client: httpx.AsyncClient | None = None

    @Route(
        "POST",
        "/sql",
        "sql",
        name="sql.ask",
        tag="SQL",
        right=SQL,
        parameters=(MIN_EPOCH_HEADER,),
        body=json_content(QueryBody),
        answers=(
            Answer(
                "The rows.",
                {
                    **json_content(Rows, NDJSON, ARROW),
                    CSV: {"schema": {"type": "string"}},
                    PARQUET: {"schema": {"type": "string", "format": "binary"}},
                },
                SHOWN,
            ),
        ),
        errors=(429, 504),
    )
    async def sql(self, request: HttpRequest) -> Response:
        """Run a SQL query.

        Runs one read-only query over the state at one epoch. Without `as_of`, the epoch
        is not older than the newest epoch at the arrival of the query. `as_of`, or AS OF EPOCH n or
        AS OF TIMESTAMP '…' at the end of the query, names a past epoch.
        """
        body = await request.json()
        forwarded: dict[str, str] = {
            name: request.headers[name] for name in _FORWARDED if name in request.headers
        }
        return await self.forward(body, forwarded, request.principal)

    async def forward(
        self, body: bytes, headers: Mapping[str, str], principal: Principal
    ) -> Response:
        """Forward a query that the principal may make, and return the view's response.

        Args:
            principal: The principal; the view limits the queries of each.
        """
        client = await self._connected()
        import httpx  # noqa: PLC0415 -- the first query loads it

        try:
            all_headers = {**headers, CALLER: quote(principal.namespace or principal.name)}
            query = client.build_request("POST", "/sql", content=body, headers=all_headers)
            answer = await client.send(query, stream=True)
        except httpx.HTTPError as error:
            _log.warning("the SQL view does not answer: %r", error)
            raise ViewUnavailable(
                "the SQL view does not answer; the supervisor starts it again"
            ) from error
        returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
        return _ForwardedResponse(_chunks(answer), answer.status_code, returned)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _connected(self) -> "httpx.AsyncClient":
        socket = socket_of(self._data)
        if socket is None:
            raise ViewUnavailable("no SQL view runs here; penstock run starts one")
        if self._client is None:  # the package takes long to load; other requests go on meanwhile
            await asyncio.to_thread(import_module, "httpx")
        if self._client is None or socket != self._socket:
            await self.close()
            self._socket = socket
            limit_s = self._config.view.time_ms / 1_000 + _SLACK_S
            self._client = async_view_client(socket, limit_s)
        return self._client


class _ForwardedResponse(StreamingResponse):
    """A response that ends if its client reads nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(_SEND_S):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            _log.info("the response to a query ends, because its client reads nothing")


async def _chunks(answer: "httpx.Response") -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()
