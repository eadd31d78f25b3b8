"""`PipelineConnection`: one WebSocket that carries requests and, as they commit, their answers.

Promises that the memory of a connection is bounded: a client with more requests under way than its window,
or with a larger frame, loses the connection, and a client that does not read its answers receives no further
ones, until the connection ends. Requests outlive their connection: a client sends those without an answer
again, on a new connection, with the same ids.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.types import Receive, Send

from penstock.base.http import STATUS
from penstock.base.pipeline import (
    Accepted,
    Answer,
    Answers,
    Closing,
    Welcome,
    decode_requests,
    encode_frame,
)
from penstock.errors import PenstockError, Stopping
from penstock.gateway.auth.principal import Principal
from penstock.gateway.errors import HttpError
from penstock.gateway.pipeline.intake import PipelineIntake
from penstock.gateway.pipeline.pipelined_request import PipelinedRequest
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
    """One connection of a client."""

    def __init__(
        self,
        settings: GatewayConfig,
        identify: Callable[[], Principal],
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
            raise HttpError(413, "record-too-large", f"a frame takes at most {most} bytes")
        try:
            requests = decode_requests(frame)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise HttpError(400, "request", f"the frame cannot be read: {error}") from error
        window = self._settings.pipeline_window
        if self._under_way + len(requests.requests) > window:
            raise HttpError(
                429, "overloaded", f"more than {window} requests of this connection are under way"
            )
        principal = self._identify()
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
        self._under_way -= len(answers)
        return Answers(answers)

    async def _send_frame(self, frame: Welcome | Accepted | Answers | Closing) -> None:
        await self._send({"type": "websocket.send", "bytes": encode_frame(frame)})
