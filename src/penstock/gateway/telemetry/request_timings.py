"""What is noted of an HTTP exchange on its way, for a trace of it: what it was, and when.

Only what reaches the log is noted; `request_tracing` makes spans of it.
"""

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
    """One request that has reached the log; all times in nanoseconds since the Unix epoch.

    Attributes:
        verb: Of HTTP.
        entity: Whose method is called; empty for a function.
        method: What is called.
        request_id: Its id.
        lsn: Its position in the log.
        began_ns: When the head of the HTTP request was there.
        append_began_ns: When it was given to the log.
        appended_ns: When it was durable.
        ended_ns: When the answer was written.
        status: Of the answer; 0 where the client did not wait for it.
        epoch: Which epoch has processed it; None where nobody waited for that.
        outcome: `ok`, or the code of its error; None like `epoch`.
        headers: Of the request, as ASGI has them; some may name the caller's trace.
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
    """What is noted of an exchange on its way; nothing is traced that never reached the log."""

    __slots__ = (
        "_append_began_ns",
        "_appended_ns",
        "_began_ns",
        "_called",
        "_epoch",
        "_lsn",
        "_outcome",
        "_request_id",
    )

    def __init__(self) -> None:
        """Begin now."""
        self._began_ns = time.time_ns()
        self._append_began_ns = self._appended_ns = 0
        self._called = ("", "")
        self._request_id = RequestId("")
        self._lsn: Lsn | None = None
        self._epoch: Epoch | None = None
        self._outcome: str | None = None

    async def append(
        self, append: Awaitable[Lsn], entity: str, method: str, request_id: RequestId
    ) -> Lsn:
        """Await the append of a request, and note what it was and how long it took."""
        self._append_began_ns = time.time_ns()
        lsn = await append
        self._appended_ns = time.time_ns()
        self._called, self._request_id, self._lsn = (entity, method), request_id, lsn
        return lsn

    def answered(self, reply: Reply) -> None:
        """Note the reply to the request."""
        self._epoch = reply.epoch
        self._outcome = reply.error or "ok"

    def times(self, scope: Scope, status: int) -> TracedRequest | None:
        """Return what was noted, at the end of the exchange; None if it never reached the log."""
        if self._lsn is None:
            return None
        return TracedRequest(
            verb=scope["method"],
            entity=self._called[0],
            method=self._called[1],
            request_id=self._request_id,
            lsn=self._lsn,
            began_ns=self._began_ns,
            append_began_ns=self._append_began_ns,
            appended_ns=self._appended_ns,
            ended_ns=time.time_ns(),
            status=status,
            epoch=self._epoch,
            outcome=self._outcome,
            headers=scope["headers"],
        )
