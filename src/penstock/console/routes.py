"""The console: a page with its files, and the data that the page shows.

The page is public; its data need the scope `admin`. Only `penstock dev` has the route that kills the driver, and only
the console's own page can use it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec

import msgspec
from starlette.responses import Response

from penstock.base.http import JSON
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.base.instants import with_times
from penstock.console.assets import PAGE, load_assets
from penstock.console.observation import Observation
from penstock.console.scheduled import scheduled_in
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.text import plan_json
from penstock.errors import Forbidden
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest, parse_epoch
from penstock.gateway.route import ADMIN, OPEN, Route
from penstock.model.application import App
from penstock.process.config import Config

P = ParamSpec("P")

INTENT: Final = "Penstock-Console"
"""The header that names the page's action; a page of another site cannot send it."""

_KIND: Final = "other"
_KILL: Final = "kill-driver"
_encode: Final = msgspec.json.Encoder().encode


def console_handlers(app: App, config: Config, *, dev: bool) -> list[object]:
    """Return the handlers of the console for a version of the application.

    Args:
        config: Its settings, of which the console uses the data directory.
    """
    observation = Observation(app, config, dev=dev)
    console = ConsoleHandler(app, config, observation)
    return [console, KillHandler(observation)] if dev else [console]


class ConsoleHandler:
    """Serves the page and its data."""

    def __init__(self, app: App, config: Config, observation: Observation) -> None:
        self._assets = load_assets()
        self._plan = plan_json(analyze_app(app)).encode()
        self._data = config.data
        self._observation = observation

    @Route("GET", "/console", _KIND, right=OPEN, fields=None)
    async def page(self, request: HttpRequest) -> Response:
        """Return the page."""
        if not request.scope["path"].endswith("/"):  # its files have relative addresses
            return Response(None, 308, {"Location": "console/"})
        return self._assets[PAGE].answer(request)

    @Route("GET", "/console/{name}", _KIND, right=OPEN, fields=None)
    async def file(self, request: HttpRequest) -> Response:
        """Return a file of the page."""
        asset = self._assets.get(request.path["name"])
        if asset is None:
            raise HttpError(404, "not-found", "the console has no such file")
        return asset.answer(request)

    @Route("GET", "/console/api/plan", _KIND, right=ADMIN)
    async def plan(self, request: HttpRequest) -> Response:
        """Return the dataflow graph of the application."""
        return _json_response(self._plan)

    @Route("GET", "/console/api/status", _KIND, right=ADMIN)
    async def status(self, request: HttpRequest) -> Response:
        """Return the state of the application now."""
        return await self._answer(self._observation.now)

    @Route("GET", "/console/api/epochs", _KIND, right=ADMIN, fields=("after",))
    async def epochs(self, request: HttpRequest) -> Response:
        """Return the reports of epochs."""
        text = request.field("after", str(BEFORE_FIRST))
        after = BEFORE_FIRST if text == str(BEFORE_FIRST) else Epoch(parse_epoch("after", text))
        return await self._answer(self._observation.epochs, after)

    @Route("GET", "/console/api/scheduled", _KIND, right=ADMIN)
    async def scheduled(self, request: HttpRequest) -> Response:
        """Return the scheduled requests."""
        return await self._answer(scheduled_in, self._data)

    async def _answer(self, read: Callable[P, object], *args: P.args, **more: P.kwargs) -> Response:
        return _json_response(_encode(with_times(await asyncio.to_thread(read, *args, **more))))


class KillHandler:
    """Kills the driver for the console's own page."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    @Route("POST", f"/console/api/{_KILL}", _KIND, right=ADMIN)
    async def kill(self, request: HttpRequest) -> Response:
        """Kill the driver."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin")
        same = origin is None or origin.partition("://")[2] == request.headers.get("host")
        if request.headers.get(INTENT.lower()) != _KILL or not same or site != "same-origin":
            raise Forbidden(
                f"only the console's own page may do this, with the header {INTENT}: {_KILL}"
            )
        killed = await asyncio.to_thread(self._observation.kill_driver)
        return _json_response(_encode(with_times(killed)))


def _json_response(body: bytes) -> Response:
    """Return encoded JSON that no cache keeps."""
    return Response(body, 200, {"Cache-Control": "no-store"}, JSON)
