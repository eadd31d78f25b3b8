"""`PipelineEndpoint`: accepts the WebSockets of a gateway, and ends them when it stops.

The handshake is a `GET /pipeline` that authenticates like every request, and that a page of another site may
not send. A refused handshake is answered as HTTP, with the usual body of an error.
"""

from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.pipeline import PIPELINE, SUBPROTOCOL
from penstock.errors import Stopping
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.connections import Connections
from penstock.gateway.errors import HttpError, error_of, response_of
from penstock.gateway.pipeline.connection import PipelineConnection
from penstock.gateway.pipeline.intake import PipelineIntake
from penstock.gateway.telemetry.load_sampler import PIPELINED, LoadSampler
from penstock.gateway.telemetry.metrics import Metrics

CONNECTIONS_MAX: Final = 1_000
"""The most pipelined connections of a gateway; further ones get 429."""


class PipelineEndpoint:
    """The path `/pipeline` of one gateway."""

    def __init__(
        self,
        authenticator: Authenticator,
        intake: PipelineIntake,
        metrics: Metrics,
        load: LoadSampler,
        stay: Connections,
    ) -> None:
        self._settings = intake.settings
        self._authenticator = authenticator
        self._intake = intake
        self._metrics = metrics
        self._load = load
        self._stay = stay
        self._connections: dict[PipelineConnection, None] = {}
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the ASGI scope of a WebSocket."""
        await receive()  # the message `websocket.connect`
        try:
            self._check(scope)
        except Exception as raised:  # noqa: BLE001 -- every handshake gets a response
            await _refuse(response_of(error_of(raised, PIPELINE)), send)
            return
        headers = scope["headers"]
        connection = PipelineConnection(
            self._settings,
            lambda: self._authenticator.identify(headers),
            self._intake,
            self._observe,
            receive,
            send,
        )
        self._connections[connection] = None  # before the next wait, so that `stop` ends it, too
        try:
            with self._stay.staying():
                await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
                await connection.run()
        finally:
            del self._connections[connection]

    def stop(self) -> None:
        """Take no further requests, and end each connection after its last answer."""
        self._is_stopping = True
        for connection in self._connections:
            connection.stop()

    def _observe(self, status: int, took_s: float) -> None:
        """Count an answer."""
        self._metrics.observe(PIPELINED, status, took_s)
        self._load.observe(PIPELINED, took_s)

    def _check(self, scope: Scope) -> None:
        """Check a handshake."""
        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > self._settings.header_bytes_max:
            most = self._settings.header_bytes_max
            raise HttpError(431, "headers-too-large", f"headers take at most {most} bytes")
        if scope["path"] != PIPELINE:
            raise HttpError(404, "not-found", f"a WebSocket has the path {PIPELINE}")
        self._authenticator.identify(scope["headers"])
        if SUBPROTOCOL not in scope["subprotocols"]:
            raise HttpError(
                400, "request", f"the handshake must offer the subprotocol {SUBPROTOCOL}"
            )
        if self._is_stopping:
            raise Stopping("this gateway stops; connect again")
        if len(self._connections) >= CONNECTIONS_MAX:
            raise HttpError(
                429,
                "overloaded",
                f"this gateway has {CONNECTIONS_MAX} pipelined connections already",
            )
        self._stay.check_room()


async def _refuse(response: Response, send: Send) -> None:
    """Answer a handshake as HTTP."""
    start: dict[str, Any] = {
        "type": "websocket.http.response.start",
        "status": response.status_code,
        "headers": response.raw_headers,
    }
    await send(start)
    await send({"type": "websocket.http.response.body", "body": response.body})
