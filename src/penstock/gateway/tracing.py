"""Traces of requests, by OpenTelemetry: from HTTP through the log and an epoch's rounds to the reply.

Off unless the standard `OTEL_…` variables name an endpoint and `penstock[telemetry]` is installed;
then `Tracing.from_environment` returns None and the gateway is as if this module did not exist. The
gateway makes the whole tree itself: HTTP, log and reply it has timed (`Notes`), the epoch it reads
from what the driver says of its epochs (`runtime.reports`). That happens in a thread, after the
answer; a request costs its event loop a few microseconds, and what cannot keep up is dropped, with
a warning. What spans look like is the part of `spans`.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.runtime.api import Reply
from penstock.runtime.reports import ReportReader, StoredReport

if TYPE_CHECKING:
    from penstock.gateway.spans import Spans

_log = logging.getLogger(__name__)

NOTES: Final = "penstock.notes"
"""Where the notes on an exchange are in its ASGI scope; absent while traces are off."""

WAITING_MAX: Final = 10_000
LOOK_S: Final = 0.25
REPORT_NS: Final = 2_000_000_000
"""How long the report of a committed epoch may take to come; it is written after the commit."""

CLOSE_S: Final = 3.0
"""What the export of the last spans may take."""

_PARENTS: Final = frozenset({b"traceparent", b"tracestate", b"baggage", b"b3", b"uber-trace-id"})


@dataclass(frozen=True, slots=True)
class RequestTimes:
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
        parents: Headers that name the caller's trace.
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
    parents: Mapping[str, str]


class Notes:
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

    def times(self, scope: Scope, status: int) -> RequestTimes | None:
        """Return what was noted, at the end of the exchange; None if it never reached the log."""
        if self._lsn is None:
            return None
        return RequestTimes(
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
            parents={
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in scope["headers"]
                if name in _PARENTS or name.startswith(b"x-b3-")
            },
        )


class Traced:
    """An ASGI application whose exchanges are traced."""

    def __init__(self, served: ASGIApp, tracing: "Tracing") -> None:
        """Trace what another application serves."""
        self._served = served
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            await self._served(scope, receive, send)
            return
        notes = scope[NOTES] = Notes()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._served(scope, receive, watched)
        finally:
            times = notes.times(scope, status)
            if times is not None:
                self._tracing.request(times)


class Tracing:
    """Makes spans of requests, in a thread of its own."""

    def __init__(self, spans: "Spans", reports_since: Callable[[int], list[StoredReport]]) -> None:
        """Tell `spans` of requests.

        Args:
            spans: Makes them, and has them exported.
            reports_since: Returns reports of epochs committed at a time or later, in microseconds
                since the Unix epoch.
        """
        self._spans = spans
        self._reports_since = reports_since
        self._waiting: deque[RequestTimes] = deque()
        self._dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-tracing", daemon=True)
        self._thread.start()

    @classmethod
    def from_environment(
        cls, app: str, data: Path, environment: Mapping[str, str] = os.environ
    ) -> Self | None:
        """Return what traces an application as `OTEL_…` variables say; None where they do not."""
        if not _is_wanted(environment):
            return None
        try:
            from penstock.gateway.spans import Spans  # noqa: PLC0415 -- an extra
        except ImportError as error:
            _log.warning(
                "there are no traces: penstock[telemetry] is not installed",
                extra={"cause": str(error)},
            )
            return None
        return cls(Spans.exported(app), ReportReader(data).since)

    def request(self, times: RequestTimes) -> None:
        """Trace a request; returns at once."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(times)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Tell of all that waits, and export it, as far as that takes no more than `CLOSE_S`."""
        self._closing.set()
        self._thread.join(CLOSE_S)
        export = threading.Thread(target=self._spans.close, daemon=True)
        export.start()
        export.join(CLOSE_S)

    def _run(self) -> None:
        left: list[RequestTimes] = []
        closing = False
        while not closing:
            closing = self._closing.wait(LOOK_S)
            left += [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                left = self._tell(left, late_ns=0 if closing else REPORT_NS)
            except Exception:  # noqa: BLE001 -- no trace is worth a gateway
                _log.exception("requests could not be traced", extra={"requests": len(left)})
                left = []
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                _log.warning("requests were not traced: too many", extra={"requests": dropped})

    def _tell(self, some: list[RequestTimes], late_ns: int) -> list[RequestTimes]:
        """Make spans of requests; return those whose epoch's report is still to come."""
        left = []
        since_us = min((one.began_ns for one in some if one.epoch is not None), default=0) // 1_000
        reports = {one.epoch: one for one in self._reports_since(since_us)} if since_us else {}
        now_ns = time.time_ns()
        for one in some:
            report = None if one.epoch is None else reports.get(one.epoch)
            if report is None and one.epoch is not None and now_ns - one.ended_ns < late_ns:
                left.append(one)
            else:
                self._spans.tell(one, report)
        return left


def _is_wanted(environment: Mapping[str, str]) -> bool:
    """Say whether the standard variables ask for traces over OTLP."""
    endpoint = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environment.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    return bool(endpoint) and not disabled and "otlp" in exporters.split(",")
