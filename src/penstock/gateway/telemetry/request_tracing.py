"""OpenTelemetry traces of requests: HTTP, the log, the rounds of the epoch, and the reply; and of reads.

Tracing is on if the standard `OTEL_…` variables name an endpoint and `penstock[telemetry]` is
installed; otherwise `RequestTracer.from_environment` returns None. The gateway makes the whole tree of
spans: it has timed HTTP, log and reply (`RequestTimings`), and it reads the phases of the epoch from
the driver's reports (`process.reports`). It does this in a thread after the response, so a request
costs its event loop a few microseconds. If the thread falls behind, requests are dropped with a
warning. `spans` defines the spans.
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

from penstock.gateway.telemetry.request_timings import (
    TIMINGS,
    RequestTimings,
    Traced,
    TracedRead,
    TracedRequest,
)
from penstock.process.epoch_report import EpochReport
from penstock.process.reports import ReportReader

if TYPE_CHECKING:
    from penstock.gateway.telemetry.spans import RequestSpans

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
LOOK_S: Final = 0.25
REPORT_NS: Final = 2_000_000_000
"""The longest wait for the report of a committed epoch, which is written after the commit."""

CLOSE_S: Final = 3.0
"""The longest wait for the export of the last spans."""


class TracingMiddleware:
    """An ASGI middleware that traces requests."""

    def __init__(self, served: ASGIApp, tracing: "RequestTracer") -> None:
        """Trace the requests of another application."""
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
            traced = timings.traced(scope, status)
            if traced is not None:
                self._tracing.request(traced)


class RequestTracer:
    """Makes the spans of requests in its own thread."""

    def __init__(
        self, spans: "RequestSpans", reports_since: Callable[[int], list[EpochReport]]
    ) -> None:
        """Start the thread; `close` ends it.

        Args:
            reports_since: Returns the reports of epochs that were committed at or after a time in
                microseconds since the Unix epoch.
        """
        self._spans = spans
        self._reports_since = reports_since
        self._waiting: deque[Traced] = deque()
        self._dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-tracing", daemon=True)
        self._thread.start()

    @classmethod
    def from_environment(
        cls, app: str, data: Path, environment: Mapping[str, str] = os.environ
    ) -> Self | None:
        """Return the tracer that `OTEL_…` variables configure; None if they configure none."""
        if not _is_wanted(environment):
            return None
        try:
            from penstock.gateway.telemetry.spans import RequestSpans  # noqa: PLC0415 -- an extra
        except ImportError as error:
            _log.warning(
                "requests are not traced, because penstock[telemetry] is not installed",
                extra={"cause": str(error)},
            )
            return None
        return cls(RequestSpans.exported(app), ReportReader(data).since)

    def request(self, request: Traced) -> None:
        """Trace a request; returns at once."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(request)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Export the remaining spans, as far as possible within `CLOSE_S`."""
        self._closing.set()
        self._thread.join(CLOSE_S)
        export = threading.Thread(target=self._spans.close, daemon=True)
        export.start()
        export.join(CLOSE_S)

    def _run(self) -> None:
        left: list[Traced] = []
        closing = False
        while not closing:
            closing = self._closing.wait(LOOK_S)
            left += [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                left = self._make_spans(left, late_ns=0 if closing else REPORT_NS)
            except Exception:  # noqa: BLE001 -- a gateway must not fail for its traces
                _log.exception("requests could not be traced", extra={"requests": len(left)})
                left = []
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                _log.warning(
                    "requests were dropped from tracing, because there were too many",
                    extra={"requests": dropped},
                )

    def _make_spans(self, traced: list[Traced], late_ns: int) -> list[Traced]:
        """Make spans of requests; return the requests whose epoch has no report yet."""
        left: list[Traced] = []
        requests: list[TracedRequest] = []
        for finished in traced:
            if isinstance(finished, TracedRead):
                self._spans.make_read(finished)
            else:
                requests.append(finished)
        since_us = min((r.began_ns for r in requests if r.epoch is not None), default=0) // 1_000
        reports = {r.epoch: r for r in self._reports_since(since_us)} if since_us else {}
        now_ns = time.time_ns()
        for request in requests:
            report = None if request.epoch is None else reports.get(request.epoch)
            if report is None and request.epoch is not None and now_ns - request.ended_ns < late_ns:
                left.append(request)
            else:
                self._spans.make(request, report)
        return left


def _is_wanted(environment: Mapping[str, str]) -> bool:
    """Say whether the standard variables ask for traces over OTLP."""
    endpoint = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environment.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    return bool(endpoint) and not disabled and "otlp" in exporters.split(",")
