"""`GET /flow` and `POST /flow`: limits and pauses, for operators; pause and resume."""

import asyncio
from typing import Final

from starlette.responses import Response

from penstock.gateway.flow.orders import PauseOrder, flow_state
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.order_desk import OrderDesk, ok
from penstock.gateway.route import ADMIN, Answer, Route, json_content
from penstock.model.application import App
from penstock.process.config import Config

PATH: Final = "/flow"
_IN_FORCE: Final = Answer("The limits and pauses in force.", json_content("PenstockFlow"))


class FlowHandler:
    """Shows and changes the flow of an application."""

    def __init__(self, app: App, config: Config) -> None:
        self._app = app
        self._config = config
        self._desk = OrderDesk(config, app)

    @Route("GET", PATH, "flow", name="flow.show", right=ADMIN, answers=(_IN_FORCE,))
    async def index(self, request: HttpRequest) -> Response:
        """Show limits and pauses."""
        return ok(await asyncio.to_thread(flow_state, self._app, self._config))

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
        return await self._desk.take(request, PauseOrder)
