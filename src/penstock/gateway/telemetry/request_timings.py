"""The timings of an HTTP request, for its trace: of requests that reach the log, and of reads."""

import time
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

import msgspec
from starlette.types import Scope

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.model.reply import Reply

T = TypeVar("T")

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


class TracedRead(msgspec.Struct, frozen=True):
    """An HTTP request that was answered from the state; all times are nanoseconds since the Unix epoch.

    Attributes:
        verb: The HTTP method.
        entity: The name of the class of the only call; empty for a function and for several calls.
        method: The name of the method or function of the only call; empty for several calls.
        path: The path of the HTTP request, for several calls.
        calls: The number of calls.
        began_ns: When the head of the HTTP request had arrived.
        read_began_ns: When the gateway began to ask for the answers.
        read_ns: When it had them, or their error.
        ended_ns: When the response was written.
        status: The HTTP status; 0 if the client disconnected first.
        epoch: The epoch of the state; None if there was no answer.
        headers: The headers of the HTTP request, as ASGI has them; they may hold a trace context.
    """

    verb: str
    entity: str
    method: str
    path: str
    calls: int
    began_ns: int
    read_began_ns: int
    read_ns: int
    ended_ns: int
    status: int
    epoch: Epoch | None
    headers: Sequence[tuple[bytes, bytes]]


Traced = TracedRequest | TracedRead


class RequestTimings:
    """Collects the timings of one HTTP request while it is served."""

    __slots__ = ("_append", "_began_ns", "_durable", "_read", "_reply")

    def __init__(self) -> None:
        self._began_ns = time.time_ns()
        self._append: tuple[str, str, RequestId, int] | None = None
        self._durable: tuple[Lsn, int] | None = None
        self._read: tuple[str, str, int, int, int, Epoch | None] | None = None
        self._reply: Reply | None = None

    def append_begins(self, entity: str, method: str, request_id: RequestId) -> None:
        """Record when the append of a request begins.

        Args:
            entity: The name of the class; empty for a function.
        """
        self._append = (entity, method, request_id, time.time_ns())

    def appended(self, lsn: Lsn) -> None:
        """Record that the request is durable, at a position in the log."""
        self._durable = (lsn, time.time_ns())

    async def read(
        self, answers: Awaitable[tuple[Epoch, T]], named: Sequence[tuple[str, str]]
    ) -> tuple[Epoch, T]:
        """Await the answers of reads, and record their times and their epoch.

        Args:
            answers: The reads, which end with the epoch of the state.
            named: The names of the class (empty for a function) and of the method or function of each call.
        """
        began_ns = time.time_ns()
        entity, method = named[0] if len(named) == 1 else ("", "")
        epoch: Epoch | None = None
        try:
            epoch, answered = await answers
        finally:
            self._read = (entity, method, len(named), began_ns, time.time_ns(), epoch)
        return epoch, answered

    def answered(self, reply: Reply) -> None:
        """Record the reply to the request."""
        self._reply = reply

    def traced(self, scope: Scope, status: int) -> Traced | None:
        """Return the timings when the response ends; None if there was neither an append nor a read."""
        if self._read is not None:
            entity, method, calls, read_began_ns, read_ns, epoch = self._read
            return TracedRead(
                verb=scope["method"],
                entity=entity,
                method=method,
                path=scope["path"],
                calls=calls,
                began_ns=self._began_ns,
                read_began_ns=read_began_ns,
                read_ns=read_ns,
                ended_ns=time.time_ns(),
                status=status,
                epoch=epoch,
                headers=scope["headers"],
            )
        if self._append is None or self._durable is None:
            return None
        entity, method, request_id, append_began_ns = self._append
        lsn, appended_ns = self._durable
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
