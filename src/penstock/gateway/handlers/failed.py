"""`/failed` and the attempts of failed requests, for operators: the list, another attempt, or none."""

import asyncio
import logging
from typing import Final, Literal

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.errors import BY_CODE
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.order_body import order_in
from penstock.gateway.responses import json_of
from penstock.model.reply import raised_by
from penstock.model.request import Failure
from penstock.orders.attempts import AttemptOrder, Attempts, carry_out
from penstock.process.config import Config
from penstock.sql.failed_requests import failed_in

_log = logging.getLogger(__name__)

_EXPECTED: Final = 'an order such as {"order": "retry", "ids": ["order-7~~1"]}'


class FailedHandler:
    """Lists the failed requests of the background, and appends the attempts of failed requests."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def index(self, request: HttpRequest) -> Response:
        """Serve `GET /failed`: the failed requests that no caller waits for."""
        request.principal.require_admin()
        failed = await asyncio.to_thread(failed_in, self._config.data)
        return Response(json_of(failed), 200, None, JSON)

    async def order(self, request: HttpRequest) -> Response:
        """Serve `POST /failed`: run several requests again, or discard them."""
        request.principal.require_admin()
        order = order_in(await request.json(), AttemptOrder, _EXPECTED)
        return Response(json_of(await self._carried_out(request, order)), 200, None, JSON)

    async def retry(self, request: HttpRequest) -> Response:
        """Serve `POST /requests/{id}/retry`: run a failed request again."""
        return await self._order_one(request, "retry")

    async def discard(self, request: HttpRequest) -> Response:
        """Serve `POST /requests/{id}/discard`: let a failed request have no further attempt."""
        return await self._order_one(request, "discard")

    async def _order_one(
        self, request: HttpRequest, order: Literal["retry", "discard"]
    ) -> Response:
        request.principal.require_admin()
        done = await self._carried_out(request, AttemptOrder(order, [request.named_id()]))
        for refused in done.refused:
            raise raised_by(Failure(refused.code, BY_CODE[refused.code].__name__, refused.message))
        return Response(json_of(done.attempts[0]), 200, None, JSON)

    async def _carried_out(self, request: HttpRequest, order: AttemptOrder) -> Attempts:
        done = await asyncio.to_thread(carry_out, self._config, order)
        facts = {"order": order.order, "attempts": len(done.attempts), "refused": len(done.refused)}
        _log.info("attempts were ordered", extra=facts | {"principal": request.principal.name})
        return done
