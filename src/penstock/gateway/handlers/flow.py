"""`GET /flow` and `POST /flow`: limits and pauses, for operators; pause and resume."""

import asyncio
import logging
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.gateway.flow.orders import FlowOrders, PauseOrder
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.order_body import order_in
from penstock.gateway.responses import json_of
from penstock.model.application import App
from penstock.process.config import Config

_log = logging.getLogger(__name__)

PATH: Final = "/flow"


class FlowHandler:
    """Shows and changes the flow of an application."""

    def __init__(self, app: App, config: Config) -> None:
        """Create the handler.

        Args:
            app: The application.
            config: The settings, which name the data directory.
        """
        self._orders = FlowOrders(app, config)

    async def index(self, request: HttpRequest) -> Response:
        """Serve `GET /flow`: the limits and pauses in force, and the number of requests under way."""
        request.principal.require_admin()
        return Response(json_of(await asyncio.to_thread(self._orders.state)), 200, None, JSON)

    async def order(self, request: HttpRequest) -> Response:
        """Serve `POST /flow`: pause or resume a target; the answer is as of `GET`.

        Raises:
            Forbidden: The principal lacks the scope `admin`; without keys, every caller has it.
            RequestError: The body is not an order, or its target does not exist or is not paused.
        """
        request.principal.require_admin()
        expected = 'an order such as {"kind": "pause", "target": "Order"}'
        order = order_in(await request.json(), PauseOrder, expected)
        by = request.principal.name
        state = await asyncio.to_thread(self._orders.take, order, by)
        facts = {"order": order.kind, "target": order.target, "principal": by}
        _log.info("a pause was ordered or ended", extra=facts)
        return Response(json_of(state), 200, None, JSON)
