"""The console's routes of flow control: limits, pauses and their record; pause and resume.

A change is recorded with the name of the operator's key or token. It takes effect as with `penstock flow`.
"""

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.access import (
    for_operators,
    json_response,
    operator_of,
    require_own_page,
)
from penstock.errors import RequestError
from penstock.gateway.flow.orders import PauseOrder, flow_state
from penstock.gateway.order_desk import order_in
from penstock.model.application import App
from penstock.orders.order import Place
from penstock.process.config import Config

FLOW: Final = "flow"
"""The last segment of the path, and the intent of a change."""

_BODY_BYTES_MAX: Final = 8_192


def flow_routes(app: App, config: Config) -> list[Route]:
    """Return the routes that show and change the flow of an application."""

    async def show(request: Request) -> Response:
        return json_response(await run_in_threadpool(flow_state, app, config))

    async def take(request: Request) -> Response:
        require_own_page(request, FLOW)
        wanted = await _change_in(request)
        place = Place(config, app, operator_of(request).name)
        return json_response(await run_in_threadpool(wanted.carry_out, place))

    path = f"/console/api/{FLOW}"
    return [
        Route(path, for_operators(show), methods=["GET"]),
        Route(path, for_operators(take), methods=["POST"]),
    ]


async def _change_in(request: Request) -> PauseOrder:
    """Read the change in a body.

    Raises:
        RequestError: The body is too large, or not a change.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            raise RequestError(f"the body has at most {_BODY_BYTES_MAX} bytes")
    return order_in(body, PauseOrder, PauseOrder.way.example)
