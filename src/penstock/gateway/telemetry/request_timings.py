"""The timings of an HTTP request, for its trace. Only requests that reach the log are traced."""

import time
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec
from starlette.types import Scope

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.model.reply import Reply

TIMINGS: Final = "penstock.timings"
"""Key of the timings in the ASGI scope; absent while tracing is off."""


class TracedRequest(msgspec.Struct, frozen=True):
    """A request that reached the log; all times are nanoseconds since the Unix epoch.

    Attributes:
        verb: The HTTP method.
        entity: The name of the class; empty for a function.
        method: The name of the method or function.
        request_id: The stored request id.
        lsn: The position in the log.
        began_ns: When the head of the HTTP request had arrived.
        append_began_ns: When the append began.
        appended_ns: When the request was durable.
        ended_ns: When the response was written.
        status: The HTTP status; 0 if the client disconnected first.
        epoch: The epoch of the reply; None if the gateway did not wait for it.
        outcome: `ok`, or the code of the error; None like `epoch`.
        headers: The headers of the HTTP request, as ASGI has them; they may hold a trace context.
    """

    verb: str
    entity: str
    method: str
    request_id: RequestId
    lsn: Lsn
    began_ns: int
    append_began_ns: int
    appended_ns: int
    ended_ns: int
    status: int
    epoch: Epoch | None
    outcome: str | None
    headers: Sequence[tuple[bytes, bytes]]


class RequestTimings:
    """Collects the timings of one HTTP request while it is served."""

    __slots__ = ("_appended", "_began_ns", "_reply")

    def __init__(self) -> None:
        """Begin now."""
        self._began_ns = time.time_ns()
        self._appended: tuple[str, str, RequestId, Lsn, int, int] | None = None
        self._reply: Reply | None = None

    async def append(
        self, append: Awaitable[Lsn], entity: str, method: str, request_id: RequestId
    ) -> Lsn:
        """Await the append of a request, and record its times.

        Args:
            append: The append.
            entity: The name of the class; empty for a function.
            method: The name of the method or function.
            request_id: The stored request id.
        """
        append_began_ns = time.time_ns()
        lsn = await append
        self._appended = (entity, method, request_id, lsn, append_began_ns, time.time_ns())
        return lsn

    def answered(self, reply: Reply) -> None:
        """Record the reply to the request."""
        self._reply = reply

    def traced(self, scope: Scope, status: int) -> TracedRequest | None:
        """Return the timings when the response ends; None if the request never reached the log."""
        if self._appended is None:
            return None
        entity, method, request_id, lsn, append_began_ns, appended_ns = self._appended
        reply = self._reply
        return TracedRequest(
            verb=scope["method"],
            entity=entity,
            method=method,
            request_id=request_id,
            lsn=lsn,
            began_ns=self._began_ns,
            append_began_ns=append_began_ns,
            appended_ns=appended_ns,
            ended_ns=time.time_ns(),
            status=status,
            epoch=None if reply is None else reply.epoch,
            outcome=None if reply is None else reply.error or "ok",
            headers=scope["headers"],
        )
