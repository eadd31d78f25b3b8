"""The console's routes of flow control: limits, pauses and their record; pause and resume.

A change is recorded with the name of the operator's key or token. It takes effect as with `penstock flow`.
"""

import time
from typing import Annotated, Final, Literal

import msgspec
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
from penstock.gateway.flow.limit_table import check_target
from penstock.gateway.flow.resuming import resume_target
from penstock.gateway.flow.standing import FlowStanding, flow_standing, under_way
from penstock.model.application import App
from penstock.model.limit import EVERYTHING, STREAMS
from penstock.process.config import Config
from penstock.process.pauses import EFFECTIVE_S, TEXT_MAX, PauseAction, PauseFile

FLOW: Final = "flow"
"""The last segment of the path, and the intent of a change."""

_BODY_BYTES_MAX: Final = 8_192


class PauseOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pause or resume that the page asks for; `skip` sets the failed atom of a workflow aside."""

    kind: Literal["pause", "resume"]
    target: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    reason: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)] = ""
    skip: bool = False


class FlowPage(msgspec.Struct, frozen=True):
    """The data of the page.

    Attributes:
        targets: The targets that can be paused.
        standing: The limits, pauses and paused workflows.
        under_way: The number of admitted requests that no epoch has committed.
        drained: Whether everything is paused, all gateways obey, and no request is under way.
    """

    targets: list[str]
    standing: FlowStanding
    under_way: int
    drained: bool


def flow_routes(app: App, config: Config) -> list[Route]:
    """Return the routes that show and change the flow of an application."""
    targets = targets_of(app)
    file = PauseFile(config.data)

    def page() -> FlowPage:
        standing = flow_standing(app, config)
        obeyed_us = time.time_ns() // 1_000 - int(EFFECTIVE_S * 1_000_000)
        closed = any(
            action.target == EVERYTHING and action.time_us <= obeyed_us
            for action in standing.paused
        )
        left = under_way(config.data, app.name)
        return FlowPage(targets, standing, left, drained=closed and not left)

    def change(wanted: PauseOrder, by: str) -> FlowPage:
        now_us = time.time_ns() // 1_000
        if wanted.kind == "pause":
            check_target(app, wanted.target)
            file.pause(wanted.target, by, wanted.reason, now_us)
        else:
            action = PauseAction("resume", wanted.target, now_us, by, wanted.reason)
            resume_target(app, config, action, skip=wanted.skip)
        return page()

    async def show(request: Request) -> Response:
        return json_response(await run_in_threadpool(page))

    async def take(request: Request) -> Response:
        require_own_page(request, FLOW)
        wanted = await _change_in(request)
        return json_response(await run_in_threadpool(change, wanted, operator_of(request).name))

    path = f"/console/api/{FLOW}"
    return [
        Route(path, for_operators(show), methods=["GET"]),
        Route(path, for_operators(take), methods=["POST"]),
    ]


def targets_of(app: App) -> list[str]:
    """Return everything that can be paused: `*`, the classes with their methods, the functions, the open streams."""
    classes = [
        target
        for name, entity_type in app.entities.items()
        for target in (name, *(f"{name}.{method}" for method in sorted(entity_type.methods)))
    ]
    streams = [
        f"{STREAMS}{name}" for name, stream in app.topology.streams.items() if stream.is_open
    ]
    return [EVERYTHING, *classes, *app.functions, *streams]


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
    try:
        return msgspec.json.decode(body, type=PauseOrder)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not a change: {error}") from error
