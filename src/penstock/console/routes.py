"""The console's routes: a page with its files, and the status that the page shows.

The page is public; its data need the scope `admin`. The gateway that serves these routes puts its
authenticator into the ASGI scope. Only `penstock dev` has the route that kills the driver, and only
the console's own page can use it.
"""

from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.console.access import (
    for_operators,
    json_bytes_response,
    json_response,
    require_own_page,
)
from penstock.console.assets import PAGE, load_assets
from penstock.console.flow import flow_routes
from penstock.console.observation import Observation
from penstock.console.scheduled import scheduled_in
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.text import plan_json
from penstock.gateway.errors import HttpError, response_of
from penstock.gateway.http_request import parse_epoch
from penstock.model.application import App
from penstock.process.config import Config

_KILL: Final = "kill-driver"


def console_routes(app: App, config: Config, *, dev: bool) -> list[BaseRoute]:
    """Return the routes of the console below `/console/`.

    Args:
        config: Its settings, of which the console uses the data directory.
        dev: Whether the page may kill the driver.
    """
    observation = Observation(app, config, dev=dev)
    routes: list[BaseRoute] = [
        *_page_routes(),
        *_api_routes(app, config.data, observation),
        *flow_routes(app, config),
    ]
    return [*routes, _killing(observation)] if dev else routes


def _page_routes() -> list[Route]:
    assets = load_assets()

    async def page(request: Request) -> Response:
        asset = assets.get(request.path_params.get("name", PAGE))
        if asset is None:
            return response_of(HttpError(404, "not-found", "the console has no such file"))
        return asset.answer(request)

    async def redirect(request: Request) -> Response:
        return RedirectResponse("console/", 308)

    return [
        Route("/console", redirect),
        Route("/console/", page),
        Route("/console/{name}", page),
    ]


def _api_routes(app: App, data: Path, observation: Observation) -> list[Route]:
    plan = plan_json(analyze_app(app)).encode()

    async def show_plan(request: Request) -> Response:
        return json_bytes_response(plan)

    async def status(request: Request) -> Response:
        return json_response(await run_in_threadpool(observation.now))

    async def epochs(request: Request) -> Response:
        after = _epoch_of(request.query_params.get("after", "-1"))
        return json_response(await run_in_threadpool(observation.epochs, after))

    async def scheduled(request: Request) -> Response:
        return json_response(await run_in_threadpool(scheduled_in, data))

    return [
        Route("/console/api/plan", for_operators(show_plan)),
        Route("/console/api/status", for_operators(status)),
        Route("/console/api/epochs", for_operators(epochs, ("after",))),
        Route("/console/api/scheduled", for_operators(scheduled)),
    ]


def _killing(observation: Observation) -> Route:
    async def kill(request: Request) -> Response:
        require_own_page(request, _KILL)
        return json_response(await run_in_threadpool(observation.kill_driver))

    return Route(f"/console/api/{_KILL}", for_operators(kill), methods=["POST"])


def _epoch_of(text: str) -> Epoch:
    return Epoch(BEFORE_FIRST if text == str(BEFORE_FIRST) else parse_epoch("after", text))
