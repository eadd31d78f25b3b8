"""The console's routes: a page with its files, and the status that the page shows.

The page is public; its data need the scope `admin`. The gateway that serves these routes puts its
authenticator into the ASGI scope. Only `penstock dev` has the route that kills the driver, and only
the console's own page can use it.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from penstock.base.ids import Epoch
from penstock.base.instants import with_times
from penstock.console.assets import PAGE, load_assets
from penstock.console.observation import Observation
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.document import plan_json
from penstock.errors import Forbidden, PenstockError, RequestError
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.errors import HttpError, response_of
from penstock.model.application import App
from penstock.process.config import Config

AUTHENTICATOR: Final = "penstock.authenticator"
"""The key of the gateway's authenticator in the ASGI scope."""

INTENT: Final = "Penstock-Console"
"""The header that names the page's action; a page of another site cannot send it."""

_KILL: Final = "kill-driver"
_DIGITS_MAX: Final = 18
_encode_json: Final = msgspec.json.Encoder().encode

Handler = Callable[[Request], Awaitable[Response]]


def console_routes(app: App, config: Config, *, dev: bool) -> list[BaseRoute]:
    """Return the routes of the console below `/console/`.

    Args:
        app: The application.
        config: Its settings, of which the console uses the data directory.
        dev: Whether the page may kill the driver.
    """
    observation = Observation(app.name, config.data, dev=dev)
    routes: list[BaseRoute] = [*_page_routes(), *_api_routes(app, observation)]
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


def _api_routes(app: App, observation: Observation) -> list[Route]:
    plan = plan_json(analyze_app(app)).encode()

    async def show_plan(request: Request) -> Response:
        return _json(plan)

    async def status(request: Request) -> Response:
        return _json(_encode(await run_in_threadpool(observation.now)))

    async def epochs(request: Request) -> Response:
        after = _epoch_of(request.query_params.get("after", "-1"))
        return _json(_encode(await run_in_threadpool(observation.epochs, after)))

    return [
        Route("/console/api/plan", _for_operators(show_plan)),
        Route("/console/api/status", _for_operators(status)),
        Route("/console/api/epochs", _for_operators(epochs)),
    ]


def _killing(observation: Observation) -> Route:
    async def kill(request: Request) -> Response:
        if request.headers.get(INTENT) != _KILL or not _is_own(request):
            raise Forbidden(
                f"only the console's own page may do this, with the header {INTENT}: {_KILL}"
            )
        return _json(_encode(await run_in_threadpool(observation.kill_driver)))

    return Route(f"/console/api/{_KILL}", _for_operators(kill), methods=["POST"])


def _for_operators(handler: Handler) -> Handler:
    """Check the scope `admin`, and answer errors as the rest of the gateway does."""

    async def guarded(request: Request) -> Response:
        try:
            authenticator: Authenticator = request.scope[AUTHENTICATOR]
            authenticator.identify(request.headers.raw, request.method).require_admin()
            return await handler(request)
        except PenstockError as error:
            return response_of(error)

    return guarded


def _is_own(request: Request) -> bool:
    """Say whether the request comes from a page of this gateway or from a program."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    same = origin is None or origin.partition("://")[2] == request.headers.get("host")
    return same and site == "same-origin"


def _epoch_of(text: str) -> Epoch:
    if not text.removeprefix("-").isdecimal() or len(text) > _DIGITS_MAX:
        raise RequestError(f"after={text} is not an epoch: it must be a whole number")
    return Epoch(int(text))


def _encode(value: object) -> bytes:
    return _encode_json(with_times(value))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
