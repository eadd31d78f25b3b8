"""`PipelineLink`: keeps a pipelined connection to a gateway, and gives each request its answer.

If a connection ends, the link connects again and sends all requests without an answer again. Their ids make
each of them take effect once. The link runs in one event loop; any thread may submit requests.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

import httpx
import msgspec

from penstock.base.pipeline import (
    Accepted,
    Answer,
    Answers,
    Closing,
    Requests,
    Welcome,
    decode_from_gateway,
    encode_frame,
)
from penstock.client.operation import FailureCause, RetryPolicy
from penstock.client.transport import failure_of
from penstock.client.websocket import ConnectionEnded, WebSocket
from penstock.errors import (
    BY_CODE,
    OperationalError,
    PenstockError,
    RecordTooLarge,
    RequestError,
    TimedOut,
    Unreachable,
)
from penstock.model.reply import raised_by
from penstock.model.request import Failure

_LOOK_S: Final = 0.5
FRAME_REQUESTS: Final = 400
"""The most requests of a frame: the gateway appends the first ones while this process prepares the next."""

_FRAME_BYTES: Final = 32
"""More than MessagePack adds to a frame, and to a request in it."""

Settle = Callable[[Answer | PenstockError], None]
Accept = Callable[[], None]


class LinkedRequest:
    """A request without an answer."""

    __slots__ = ("accept", "attempts", "body", "deadline_s", "followers", "request_id", "settle")

    def __init__(
        self,
        request_id: str,
        body: bytes,
        settle: Settle,
        deadline_s: float,
        accept: Accept | None = None,
    ) -> None:
        """Describe a request.

        Args:
            request_id: Its id.
            body: Its body, as in the log.
            settle: Takes the answer or the error, once, in the thread of the link.
            deadline_s: The time by the clock of the link at which to give up.
            accept: Is called in the thread of the link when the request is durable, perhaps more than once, and not if
                its answer comes first; None if it is not asked for.
        """
        self.request_id = request_id
        self.body = body
        self.settle = settle
        self.deadline_s = deadline_s
        self.accept = accept
        self.attempts = 0
        self.followers: list[LinkedRequest] = []


class PipelineLink:
    """One pipelined connection at a time, from its first request until `close`."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[WebSocket]],
        policy: RetryPolicy,
        *,
        accepted: bool = False,
    ) -> None:
        """Create the link; `run` serves it.

        Args:
            dial: Connects to a gateway.
            policy: How long and how often to try.
            accepted: Whether the gateway says when requests are durable.
        """
        self._accepted = accepted
        self._dial = dial
        self._policy = policy
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._submitted: deque[LinkedRequest] = deque()
        self._is_awake = False
        self._is_closing = False
        self._has_ended = False
        self._open: dict[str, LinkedRequest] = {}  # without an answer, in the order of arrival
        self._unsent: deque[LinkedRequest] = deque()
        self._sent = 0
        self._socket: WebSocket | None = None
        self._dialing: asyncio.Timeout | None = None
        self._failures = 0  # attempts since the last answer
        self._wake = asyncio.Event()
        self._closed = asyncio.Event()

    def submit(self, request: LinkedRequest) -> None:
        """Send a request soon; from any thread."""
        with self._lock:
            if not self._has_ended:
                self._submitted.append(request)
                if self._loop is not None and not self._is_awake:
                    self._is_awake = True
                    self._loop.call_soon_threadsafe(self._wake.set)
                return
        request.settle(_ended())

    def close(self) -> None:
        """End `run`; requests without an answer get an error. From any thread."""
        with self._lock:
            self._is_closing = True
            if self._loop is not None and not self._has_ended:
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._dialing is not None:
            self._dialing.reschedule(0)  # a gateway that does not answer must not delay the end

    async def run(self) -> None:
        """Serve the requests until `close`."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._is_closing:
                self._closed.set()
        self._wake.set()
        watch = asyncio.create_task(self._give_up_late())
        try:
            while not self._closed.is_set():
                await self._wake.wait()
                self._wake.clear()
                self._take_submitted()
                if self._open and not self._closed.is_set():
                    await self._connect()
        finally:
            watch.cancel()
            with self._lock:
                self._has_ended = True
            self._take_submitted()
            self._fail_all(_ended())

    async def _connect(self) -> None:
        """Connect, and serve until the connection ends; after the last attempt, fail all requests."""
        try:
            self._socket = await self._dialed()
            await self._exchange(self._socket)
        except TimeoutError:  # `close` ends the dialing
            await self._after_failure(Unreachable("there is no connection yet"), 0.0)
        except ConnectionEnded as error:
            text = f"the connection broke: {error}"
            await self._after_failure(Unreachable(text), 0.0)
        except httpx.TransportError as error:
            failure = failure_of(error)
            if failure.cause is FailureCause.UNTRUSTED:
                self._failures = self._policy.retries
            text = f"{failure.text}: {failure.message}"
            await self._after_failure(Unreachable(text), 0.0)
        except OperationalError as error:
            await self._after_failure(error, error.retry_after_s)
        except PenstockError as error:  # no key, no right: another attempt would not change that
            self._fail_all(error)
        finally:
            if self._socket is not None:
                await self._socket.close()
                self._socket = None

    async def _dialed(self) -> WebSocket:
        """Connect to a gateway.

        Raises:
            TimeoutError: `close` was called meanwhile.
            TransportError: There is no connection.
            PenstockError: The gateway refused the handshake.
        """
        async with asyncio.timeout(None) as self._dialing:
            try:
                return await self._dial()
            finally:
                self._dialing = None

    async def _after_failure(self, error: OperationalError, least_s: float) -> None:
        """Pause before the next attempt, or fail all requests after the last one."""
        if self._failures >= self._policy.retries:
            self._failures = 0
            self._fail_all(error)
            return
        pause_s = self._policy.pause_after(self._failures, least_s)
        self._failures += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        self._wake.set()

    async def _exchange(self, socket: WebSocket) -> None:
        """Send all open requests and take their answers, until the connection ends or `close`."""
        welcome = await _frame_from(socket)
        if not isinstance(welcome, Welcome):
            raise ConnectionEnded("the gateway did not welcome the connection")
        self._unsent = deque(self._open.values())
        self._sent = 0
        self._wake.set()
        reader = asyncio.create_task(self._read(socket))
        writer = asyncio.create_task(self._write(socket, welcome))
        try:
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            writer.cancel()
            outcomes = await asyncio.gather(reader, writer, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _write(self, socket: WebSocket, welcome: Welcome) -> None:
        """Send the requests, within the window of the gateway."""
        while not self._closed.is_set():
            await self._wake.wait()
            self._wake.clear()
            self._unsent.extend(self._take_submitted())
            while self._unsent and self._sent < welcome.window:
                pairs = list(self._next_pairs(welcome))
                if not pairs:
                    break
                self._sent += len(pairs)
                await socket.send(encode_frame(Requests(pairs, self._accepted)))
                await asyncio.sleep(0)  # the answers that have come make further requests

    def _next_pairs(self, welcome: Welcome) -> Iterator[tuple[str, msgspec.Raw]]:
        """Take the requests of the next frame."""
        room = welcome.frame_bytes_max - _FRAME_BYTES
        count = min(welcome.window - self._sent, FRAME_REQUESTS)
        while self._unsent and count > 0:
            request = self._unsent[0]
            size = len(request.request_id) + len(request.body) + _FRAME_BYTES
            if self._open.get(request.request_id) is not request:  # it has its answer already
                self._unsent.popleft()
            elif size > welcome.frame_bytes_max - _FRAME_BYTES:
                self._unsent.popleft()
                most = welcome.frame_bytes_max
                text = f"the request takes {size} bytes in a frame, at most {most} are allowed"
                self._settle(request, RecordTooLarge(text))
            elif size > room:
                return
            else:
                self._unsent.popleft()
                room -= size
                count -= 1
                yield request.request_id, msgspec.Raw(request.body)

    async def _read(self, socket: WebSocket) -> None:
        """Take the answers.

        Raises:
            ConnectionEnded: The connection has ended, or should be made again.
            PenstockError: The gateway refuses the requests.
        """
        while True:
            frame = await _frame_from(socket)
            if isinstance(frame, Closing):
                self._refused(frame)
            elif isinstance(frame, Accepted):
                for request_id in frame.request_ids:
                    request = self._open.get(request_id)
                    if request is not None and request.accept is not None:
                        request.accept()
            elif isinstance(frame, Answers):
                for answer in frame.answers:
                    self._answered(answer)
                self._wake.set()

    def _answered(self, answer: Answer) -> None:
        self._sent -= 1
        self._failures = 0
        request = self._open.get(answer.request_id)
        if request is None:  # it was late, or was sent twice
            return
        if answer.retry_after_s > 0 and request.attempts < self._policy.retries:
            pause_s = self._policy.pause_after(request.attempts, answer.retry_after_s)
            if self._policy.clock() + pause_s < request.deadline_s:
                request.attempts += 1
                asyncio.get_running_loop().call_later(pause_s, self._again, request)
                return
        self._settle(request, answer)

    def _again(self, request: LinkedRequest) -> None:
        """Send a request again that the gateway could not take."""
        self._unsent.append(request)
        self._wake.set()

    def _refused(self, frame: Closing) -> None:
        error = error_from(frame.status, frame.code, frame.message)
        if not isinstance(error, OperationalError):
            self._fail_all(error)
        raise ConnectionEnded(frame.message)

    def _settle(self, request: LinkedRequest, outcome: Answer | PenstockError) -> None:
        del self._open[request.request_id]
        request.settle(outcome)
        for follower in request.followers:
            self.submit(follower)

    def _take_submitted(self) -> list[LinkedRequest]:
        """Open the submitted requests, and return them."""
        with self._lock:
            submitted, self._submitted = self._submitted, deque()
            self._is_awake = False
        opened = []
        for request in submitted:
            before = self._open.get(request.request_id)
            if before is None:
                self._open[request.request_id] = request
                opened.append(request)
            else:  # it waits for the answer of the open request, so that an id names one answer
                before.followers.append(request)
        return opened

    def _fail_all(self, error: PenstockError) -> None:
        while self._open:
            self._settle(next(iter(self._open.values())), error)

    async def _give_up_late(self) -> None:
        """Give late requests an error, from time to time."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._policy.clock()
            late = [request for request in self._open.values() if request.deadline_s <= now_s]
            for request in late:
                hint = f"call again with request_id={request.request_id!r} to get its result"
                error = TimedOut(f"no answer in time; the request may have been accepted: {hint}")
                self._settle(request, error)
            if late and self._socket is not None:
                await self._socket.close()  # it may be dead; the next one serves the other requests


def _ended() -> Unreachable:
    return Unreachable("the pipeline is closed; a request that was sent may take effect, once")


async def _frame_from(socket: WebSocket) -> Welcome | Accepted | Answers | Closing:
    """Return the next frame of a gateway.

    Raises:
        ConnectionEnded: The connection has ended, or this is not a gateway.
    """
    message = await socket.receive()
    try:
        frame: Welcome | Accepted | Answers | Closing = decode_from_gateway(message)
    except msgspec.MsgspecError as error:
        raise ConnectionEnded(f"a frame cannot be read: {error}") from error
    return frame


def error_from(status: int, code: str, message: str) -> PenstockError:
    """Return the error that a gateway has described without a reply."""
    cls = BY_CODE.get(code, OperationalError if status >= 500 else RequestError)
    return raised_by(Failure(cls.code, cls.__name__, message))
