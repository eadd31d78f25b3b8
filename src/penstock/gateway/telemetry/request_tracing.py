"""Traces of requests, by OpenTelemetry: from HTTP through the log and an epoch's rounds to the reply.

Off unless the standard `OTEL_…` variables name an endpoint and `penstock[telemetry]` is installed;
then `RequestTracer.from_environment` returns None and the gateway is as if this module did not exist. The
gateway makes the whole tree itself: HTTP, log and reply it has timed (`RequestTimings`), the epoch it reads
from what the driver says of its epochs (`process.reports`). That happens in a thread, after the
answer; a request costs its event loop a few microseconds, and what cannot keep up is dropped, with
a warning. What spans look like is the part of `spans`.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.gateway.telemetry.request_timings import TIMINGS, RequestTimings, TracedRequest
from penstock.process.reports import ReportReader, StoredReport

if TYPE_CHECKING:
    from penstock.gateway.telemetry.spans import RequestSpans

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
LOOK_S: Final = 0.25
REPORT_NS: Final = 2_000_000_000
"""How long the report of a committed epoch may take to come; it is written after the commit."""

CLOSE_S: Final = 3.0
"""What the export of the last spans may take."""


class TracingMiddleware:
    """An ASGI application whose exchanges are traced."""

    def __init__(self, served: ASGIApp, tracing: "RequestTracer") -> None:
        """Trace what another application serves."""
        self._served = served
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            await self._served(scope, receive, send)
            return
        timings = scope[TIMINGS] = RequestTimings()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._served(scope, receive, watched)
        finally:
            times = timings.times(scope, status)
            if times is not None:
                self._tracing.request(times)


class RequestTracer:
    """Makes spans of requests, in a thread of its own."""

    def __init__(
        self, spans: "RequestSpans", reports_since: Callable[[int], list[StoredReport]]
    ) -> None:
        """Tell `spans` of requests.

        Args:
            spans: Makes them, and has them exported.
            reports_since: Returns reports of epochs committed at a time or later, in microseconds
                since the Unix epoch.
        """
        self._spans = spans
        self._reports_since = reports_since
        self._waiting: deque[TracedRequest] = deque()
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
            from penstock.gateway.telemetry.spans import RequestSpans  # noqa: PLC0415 -- an extra
        except ImportError as error:
            _log.warning(
                "there are no traces: penstock[telemetry] is not installed",
                extra={"cause": str(error)},
            )
            return None
        return cls(RequestSpans.exported(app), ReportReader(data).since)

    def request(self, times: TracedRequest) -> None:
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
        left: list[TracedRequest] = []
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

    def _tell(self, some: list[TracedRequest], late_ns: int) -> list[TracedRequest]:
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
