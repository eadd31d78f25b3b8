"""`PipelineEndpoint`: accepts the WebSockets of a gateway, carries their requests and answers, and ends them.

The handshake is a `GET /pipeline` that authenticates like every request, and that a page of another site may
not send. A refused handshake is answered as HTTP, with the usual body of an error.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.http import STATUS
from penstock.base.pipeline import (
    PIPELINE,
    SUBPROTOCOL,
    Accepted,
    Answer,
    Answers,
    Closing,
    Welcome,
    decode_requests,
    encode_frame,
)
from penstock.errors import PenstockError, Stopping
from penstock.gateway.auth.authentication import Authenticator, Headers
from penstock.gateway.auth.principal import Principal
from penstock.gateway.connections import Connections
from penstock.gateway.errors import HttpError, error_of, response_of
from penstock.gateway.pipeline.intake import PipelinedRequest, PipelineIntake
from penstock.gateway.telemetry.load_sampler import PIPELINED, LoadSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.process.config import GatewayConfig

_log = logging.getLogger(__name__)

_FRAME_BYTES: Final = 256 << 10
"""The bytes of answers after which a frame ends."""

FRAME_ANSWERS: Final = 400
"""The most answers of a frame: the client takes the first ones while the gateway encodes the next."""

_UNSENT_BYTES_MAX: Final = 64 << 20
"""The most bytes of answers that wait for a slow client."""

Observe = Callable[[int, float], None]
"""Takes the status of an answer, and the seconds from its request to it."""

_STOPPING: Final = Closing(
    STATUS["stopping"], "stopping", "this gateway stops; connect again, and send what has no answer"
)


class PipelineConnection:
    """One WebSocket of a client, with bounded memory; its requests outlive it."""

    def __init__(
        self,
        settings: GatewayConfig,
        identify: Callable[[], Awaitable[Principal]],
        intake: PipelineIntake,
        observe: Observe,
        receive: Receive,
        send: Send,
    ) -> None:
        """Create the connection, whose handshake is done.

        Args:
            identify: Returns the principal, if its credential is still valid.
            send: Sends messages of the WebSocket; it waits while the client reads nothing.
        """
        self._settings = settings
        self._identify = identify
        self._intake = intake
        self._observe = observe
        self._receive = receive
        self._send = send
        self._under_way = 0
        self._accepted_ids: list[str] = []  # of which the client does not know yet
        self._unsent: deque[tuple[Answer, int]] = deque()
        self._unsent_bytes = 0
        self._wake = asyncio.Event()
        self._closing: Closing | None = None
        self._is_stopping = False
        self._has_ended = False
        self._writer: asyncio.Task[None]

    async def run(self) -> None:
        """Serve the connection until it ends."""
        reader = asyncio.create_task(self._read())
        self._writer = writer = asyncio.create_task(self._write())
        try:
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
            if self._closing is not None:
                limit_s = self._settings.receive_timeout_ms / 1_000
                await asyncio.wait([writer], timeout=limit_s)  # it sends the reason
        finally:
            self._has_ended = True
            reader.cancel()
            writer.cancel()
            outcomes = await asyncio.gather(reader, writer, return_exceptions=True)
            self._unsent.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                _log.info("a pipelined connection has failed", exc_info=outcome)

    def stop(self) -> None:
        """Take no further requests, and end the connection after the last answer."""
        self._is_stopping = True
        self._wake.set()

    async def _read(self) -> None:
        """Take frames until the client ends the connection, or a frame is wrong."""
        while True:
            message: dict[str, Any] = await self._receive()  # type: ignore[assignment]
            if message["type"] != "websocket.receive":
                return
            try:
                await self._take(message.get("bytes"))
            except (PenstockError, HttpError) as error:
                self._close(error)
                return

    async def _take(self, frame: bytes | None) -> None:
        """Take the requests of a frame."""
        if frame is None:
            raise HttpError(400, "request", "a frame is a binary message, not a text")
        most = self._settings.body_bytes_max
        if len(frame) > most:
            raise HttpError(
                413,
                "record-too-large",
                f"a frame takes at most gateway.body_bytes_max = {most} bytes",
            )
        try:
            requests = decode_requests(frame)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise HttpError(400, "request", f"the frame cannot be read: {error}") from error
        window = self._settings.pipeline_window
        # The bound on the memory of a connection: the client knows its window from `Welcome`.
        if self._under_way + len(requests.requests) > window:
            raise HttpError(
                429, "overloaded", f"more than {window} requests of this connection are under way"
            )
        # At each frame, because a key may be revoked while the connection is open.
        principal = await self._identify()
        self._under_way += len(requests.requests)
        accepted = self._accepted if requests.accepted else None
        taken = [PipelinedRequest(*pair, self._settled, accepted) for pair in requests.requests]
        if self._is_stopping:
            for request in taken:
                request.set_exception(Stopping(_STOPPING.message))
        else:
            await self._intake.take(principal, taken)

    def _accepted(self, request_id: str) -> None:
        """Let the client know that a request is durable."""
        if not self._has_ended:
            self._accepted_ids.append(request_id)
            self._wake.set()

    def _settled(self, request: PipelinedRequest, answer: Answer, took_s: float) -> None:
        """Let an answer be sent."""
        self._observe(answer.status, took_s)
        if self._has_ended:
            return
        size = len(bytes(answer.data))
        self._unsent.append((answer, size))
        self._unsent_bytes += size
        self._wake.set()
        if self._unsent_bytes > _UNSENT_BYTES_MAX:
            _log.info("a pipelined connection ends, because its client reads too slowly")
            # The answers stay in the journal: the client connects again and sends the same ids.
            self._writer.cancel()

    def _close(self, error: PenstockError | HttpError) -> None:
        """End the connection with an error, after the answers that are known."""
        status = error.status if isinstance(error, HttpError) else STATUS[error.code]
        self._closing = Closing(status, error.code, str(error))
        self._wake.set()

    async def _write(self) -> None:
        """Send answers until the connection closes."""
        await self._send_frame(
            Welcome(self._settings.pipeline_window, self._settings.body_bytes_max)
        )
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._accepted_ids or self._unsent:
                if self._accepted_ids:
                    accepted, self._accepted_ids = Accepted(self._accepted_ids), []
                    await self._send_frame(accepted)
                if self._unsent:
                    await self._send_frame(self._next_answers())
            if self._is_stopping and not self._under_way:
                self._closing = self._closing or _STOPPING
            if self._closing is not None:
                await self._send_frame(self._closing)
                return

    def _next_answers(self) -> Answers:
        """Take the answers of the next frame; their requests are no longer under way."""
        answers: list[Answer] = []
        size = 0
        while self._unsent and size < _FRAME_BYTES and len(answers) < FRAME_ANSWERS:
            answer, answer_bytes = self._unsent.popleft()
            answers.append(answer)
            size += answer_bytes
        self._unsent_bytes -= size
        # Only sent answers make room, so a client that does not read gets no further ones.
        self._under_way -= len(answers)
        return Answers(answers)

    async def _send_frame(self, frame: Welcome | Accepted | Answers | Closing) -> None:
        await self._send({"type": "websocket.send", "bytes": encode_frame(frame)})


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
            await self._authenticator.awake()
            self._check(scope)
        except Exception as raised:  # noqa: BLE001 -- every handshake gets a response
            await _refuse(response_of(error_of(raised, PIPELINE)), send)
            return
        headers = scope["headers"]
        connection = PipelineConnection(
            self._settings,
            lambda: self._identified(headers),
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

    async def _identified(self, headers: Headers) -> Principal:
        await self._authenticator.awake()
        return self._authenticator.identify(headers)

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
