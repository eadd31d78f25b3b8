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

from penstock.errors import ViewUnavailable
from penstock.gateway.auth.principal import Principal
from penstock.gateway.http_request import HttpRequest
from penstock.process import presence
from penstock.process.config import Config

_log = logging.getLogger(__name__)

_ASKED: Final = ("accept", "content-type", "penstock-min-epoch")
_TOLD: Final = ("content-type", "penstock-epoch", "penstock-view", "retry-after")
_CALLER: Final = "penstock-caller"
"""On whose behalf a question is asked: the view shares its places out among callers."""

_CONNECT_S: Final = 5.0
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
            name: request.headers[name] for name in _ASKED if name in request.headers
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
            headers = {**asked, _CALLER: quote(principal.name)}
            asked_of_view = client.build_request("POST", "/sql", content=body, headers=headers)
            answer = await client.send(asked_of_view, stream=True)
        except httpx.HTTPError as error:
            _log.warning("the SQL view does not answer: %r", error)
            raise ViewUnavailable("the SQL view does not answer; it is started again") from error
        told = {name: answer.headers[name] for name in _TOLD if name in answer.headers}
        return StreamingResponse(_chunks(answer), answer.status_code, told)

    async def close(self) -> None:
        """End the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _connected(self) -> httpx.AsyncClient:
        views = presence.find(self._data, "view")
        if not views:
            raise ViewUnavailable("no SQL view runs here; penstock run starts one")
        socket = str(views[0].details["socket"])
        if self._client is None or socket != self._socket:
            await self.close()
            self._socket = socket
            limit_s = self._config.view.time_ms / 1_000 + _SLACK_S
            self._client = httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(uds=socket),
                base_url="http://view",
                timeout=httpx.Timeout(limit_s, connect=_CONNECT_S),
            )
        return self._client


async def _chunks(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()
