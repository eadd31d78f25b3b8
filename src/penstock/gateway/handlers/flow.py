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
from penstock.gateway.route import ADMIN, Answer, Route, json_content
from penstock.model.application import App
from penstock.process.config import Config

_log = logging.getLogger(__name__)

PATH: Final = "/flow"
_IN_FORCE: Final = Answer("The limits and pauses in force.", json_content("PenstockFlow"))


class FlowHandler:
    """Shows and changes the flow of an application."""

    def __init__(self, app: App, config: Config) -> None:
        """Create the handler.

        Args:
            app: The application.
            config: The settings, which name the data directory.
        """
        self._orders = FlowOrders(app, config)

    @Route("GET", PATH, "flow", name="flow.show", right=ADMIN, answers=(_IN_FORCE,))
    async def index(self, request: HttpRequest) -> Response:
        """Show limits and pauses."""
        return Response(json_of(await asyncio.to_thread(self._orders.state)), 200, None, JSON)

    @Route(
        "POST",
        PATH,
        "flow",
        name="flow.order",
        right=ADMIN,
        body=json_content("PenstockPauseOrder"),
        answers=(_IN_FORCE,),
    )
    async def order(self, request: HttpRequest) -> Response:
        """Pause or resume requests.

        The target is a class, `Class.method`, a function, `streams/NAME`, or `*` for everything; a
        resume takes a workflow, too. All gateways obey within a second.
        """
        expected = 'an order such as {"kind": "pause", "target": "Order"}'
        order = order_in(await request.json(), PauseOrder, expected)
        by = request.principal.name
        state = await asyncio.to_thread(self._orders.take, order, by)
        facts = {"order": order.kind, "target": order.target, "principal": by}
        _log.info("a pause was ordered or ended", extra=facts)
        return Response(json_of(state), 200, None, JSON)
