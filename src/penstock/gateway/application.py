"""The gateway as an ASGI application.

Every request passes here: the gateway checks its head, finds the handler of its path, authenticates
its principal, and runs the handler. The table of `errors` gives the status of every exception.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.http import REQUEST_ID
from penstock.errors import (
    Diverged,
    IntegrityError,
    OperationalError,
    PenstockError,
    StateUnavailable,
    Stopping,
)
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.connections import Address, Connections
from penstock.gateway.errors import LOADING, HttpError, error_of, response_of
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.pipeline.endpoint import PipelineEndpoint
from penstock.gateway.route import Endpoint
from penstock.gateway.telemetry.load_sampler import LoadSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.version import ServedVersion
from penstock.process.config import GatewayConfig

_log = logging.getLogger(__name__)

_OTHER: Final = "other"


class Gateway:
    """Answers HTTP requests as an ASGI application.

    Attributes:
        version: The version of the application that gets new requests.
        pipeline: Serves the pipelined connections.
        is_behind: Says whether a newer deployment than the served version is in force.
        draining: Whether new requests are refused, because the process is about to stop.
        authenticator: Finds the principal of a request.
    """

    def __init__(
        self,
        config: GatewayConfig,
        authenticator: Authenticator,
        metrics: Metrics,
        load: LoadSampler,
        connections: Connections,
    ) -> None:
        """Create the gateway; it serves when it has a version and a pipeline."""
        self.version: ServedVersion
        self.pipeline: PipelineEndpoint
        self.draining = False
        self.is_behind: Callable[[], bool] = lambda: False
        self._config = config
        self.authenticator = authenticator
        self._metrics = metrics
        self._load = load
        self._connections = connections
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "websocket":
            await self._serve_pipeline(scope, receive, send)
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        if not self._running:
            self._idle.clear()
        self._running += 1
        route_kind, response = _OTHER, None
        client: Address = scope["client"]
        self._connections.begin(client)
        try:
            version = self.version
            # A deployment may exchange the version meanwhile; this request ends in the version that
            # began it.
            with version:
                route_kind, response = await self._answer(version, scope, receive)
            del version  # an event stream of this request would keep it in memory
            await response(scope, receive, send)
        finally:
            self._connections.end(client)
            self._running -= 1
            if not self._running:
                self._idle.set()
            # None: the task was cancelled, because the client left, and not by a failure of the
            # gateway.
            status = response.status_code if response is not None else 200
            took_s = time.perf_counter() - began
            self._metrics.observe(route_kind, status, took_s)
            self._load.observe(route_kind, took_s)

    async def _serve_pipeline(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a pipelined connection, which runs like one request until it ends."""
        if not self._running:
            self._idle.clear()
        self._running += 1
        client: Address = scope["client"]
        self._connections.begin(client)
        try:
            await self.pipeline(scope, receive, send)
        finally:
            self._connections.end(client)
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new requests, and wait for the running ones; return False after the time limit."""
        self.draining = True
        self.pipeline.stop()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _answer(
        self, version: ServedVersion, scope: Scope, receive: Receive
    ) -> tuple[str, Response]:
        """Return the kind of the route and the response."""
        route_kind, request = _OTHER, None
        try:
            request = HttpRequest(scope, receive, self._config, self._connections.receiving)
            route = version.routing.find(scope["method"], scope.get("raw_path") or _raw(scope))
            # Probes and metrics are answered to the end, so that a supervisor sees the drain.
            if self.draining and not (route is not None and route[0].is_open):
                raise Stopping("this gateway stops; send the request again")
            if route is None:
                message = f"{scope['path']} does not exist; /docs lists all paths"
                raise HttpError(404, "not-found", message)
            endpoint, request.path = route
            route_kind = endpoint.route_kind
            if self.authenticator.is_far and not endpoint.is_open:
                await self.authenticator.awake()
            self._check(endpoint, request)
            return route_kind, await endpoint.handler(request)
        except (Exception, SystemExit, KeyboardInterrupt) as raised:  # noqa: BLE001 -- every request gets a response
            return route_kind, self._refusal(error_of(raised, scope["path"]), request)

    def _check(self, endpoint: Endpoint, request: HttpRequest) -> None:
        """Identify the principal, and check the fields of the query string and the right that the route declares."""
        scope = request.scope
        if not (endpoint.is_open or endpoint.is_signed):
            if endpoint.takes_ticket:
                request.principal = self.authenticator.follower(scope, opens=True)
            else:
                request.principal = self.authenticator.identify(scope["headers"], scope["method"])
        if scope["query_string"]:
            request.take_query(endpoint.fields, has_filters=endpoint.has_filters)
        if endpoint.check is not None:
            endpoint.check(request.principal)

    def _refusal(self, error: PenstockError | HttpError, request: HttpRequest | None) -> Response:
        headers = {}
        if isinstance(error, Diverged) and self.is_behind():  # a row of a class that has changed
            error = StateUnavailable(LOADING)
        if request is not None and request.request_id:
            headers[REQUEST_ID] = request.request_id
        response = response_of(error, headers)
        if isinstance(error, IntegrityError):
            _log.error("stored data is damaged", exc_info=error)
        elif isinstance(
            error, OperationalError
        ):  # one for each request, as long as the condition lasts
            _log.debug("a request was not served: %s", error, extra={"code": error.code})
        return response


def _raw(scope: Scope) -> bytes:
    path: str = scope["path"]
    return path.encode()
