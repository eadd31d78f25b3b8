"""`POST /sql`: questions are passed on to the view's process, and its answers passed back.

Nothing is parsed here: the view checks the question, and says in its answer's headers which epoch
it is of. Without a view, or while it starts, the answer is 503.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
from starlette.responses import Response, StreamingResponse

from penstock.base.http import CALLER, EPOCH, MIN_EPOCH, RETRY_AFTER, VIEW_STATE
from penstock.errors import ViewUnavailable
from penstock.gateway.auth.principal import Principal
from penstock.gateway.http_request import HttpRequest
from penstock.process.config import Config
from penstock.sql.view_client import CONNECT_S, async_view_client, socket_of

_log = logging.getLogger(__name__)

_FORWARDED: Final = ("accept", "content-type", MIN_EPOCH.lower())
_RETURNED: Final = ("content-type", EPOCH, VIEW_STATE, RETRY_AFTER)
_SLACK_S: Final = 5.0
"""What an answer may take beyond the query's own limit."""


class SqlHandler:
    """Passes questions to the view of one application."""

    def __init__(self, data: Path, config: Config) -> None:
        """Find the view when it is first needed, and again when it has moved."""
        self._data = data
        self._config = config
        self._socket = ""
        self._client: httpx.AsyncClient | None = None

    async def sql(self, request: HttpRequest) -> Response:
        """Serve `POST /sql`.

        Raises:
            Forbidden: The principal may not ask.
            ViewUnavailable: No view runs, or it broke off.
        """
        request.principal.require_sql()
        body = await request.json()
        asked: dict[str, str] = {
            name: request.headers[name] for name in _FORWARDED if name in request.headers
        }
        return await self.forward(body, asked, request.principal)

    async def forward(
        self, body: bytes, asked: Mapping[str, str], principal: Principal
    ) -> Response:
        """Ask the view a question on behalf of a principal, who may ask it; pass its answer on.

        Raises:
            ViewUnavailable: No view runs, or it broke off.
        """
        client = await self._connected()
        try:
            headers = {**asked, CALLER: quote(principal.name)}
            asked_of_view = client.build_request("POST", "/sql", content=body, headers=headers)
            answer = await client.send(asked_of_view, stream=True)
        except httpx.HTTPError as error:
            _log.warning("the SQL view does not answer: %r", error)
            raise ViewUnavailable("the SQL view does not answer; it is started again") from error
        told = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
        return StreamingResponse(_chunks(answer), answer.status_code, told)

    async def close(self) -> None:
        """End the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _connected(self) -> httpx.AsyncClient:
        socket = socket_of(self._data)
        if socket is None:
            raise ViewUnavailable("no SQL view runs here; penstock run starts one")
        if self._client is None or socket != self._socket:
            await self.close()
            self._socket = socket
            limit_s = self._config.view.time_ms / 1_000 + _SLACK_S
            self._client = async_view_client(socket, httpx.Timeout(limit_s, connect=CONNECT_S))
        return self._client


async def _chunks(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()
