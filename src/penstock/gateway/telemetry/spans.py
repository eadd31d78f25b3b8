"""Makes the spans of one request after its response.

```
POST Order.checkout              the HTTP request
├─ log.append                    until the request is durable
├─ epoch                         of the driver, for all requests of the epoch
│  ├─ read, apply                the wait before the first round
│  ├─ round 1
│  │  └─ transaction             this request; the time within the round is not measured
│  ├─ validate, round 2 …, write
│  └─ commit
└─ reply                         from the commit to the end of the answer
```

A read has the span of its HTTP request, and in it one span `read`, until the reader has answered.

Promises that spans nest: times are clipped where clocks disagree. A repeated phase is one span with
its whole time. This module needs `penstock[telemetry]`.
"""

import os
from collections.abc import Sequence
from typing import Final, Self

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from penstock.gateway.telemetry.request_timings import Traced, TracedRead, TracedRequest
from penstock.process.epoch_report import REST, EpochReport, took_ms

_UNNAMED: Final = "unknown_service"
_ROUND: Final = "round"
_NS_IN_MS: Final = 1_000_000

Attributes = dict[str, str | int]


class _FromHeaders(Getter[Sequence[tuple[bytes, bytes]]]):
    """Reads ASGI headers for the propagators that `OTEL_PROPAGATORS` names."""

    def get(self, carrier: Sequence[tuple[bytes, bytes]], key: str) -> list[str] | None:
        """Return the values of a header; None if the header is absent."""
        wanted = key.lower().encode()
        return [value.decode("latin-1") for name, value in carrier if name == wanted] or None

    def keys(self, carrier: Sequence[tuple[bytes, bytes]]) -> list[str]:
        """Return the names of all headers."""
        return [name.decode("latin-1") for name, _ in carrier]


_FROM_HEADERS: Final = _FromHeaders()


class RequestSpans:
    """Makes the spans of requests."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock")

    @classmethod
    def exported(cls, app: str) -> Self:
        """Return an instance that exports over OTLP, as the `OTEL_…` variables configure."""
        provider = TracerProvider(resource=_resource(app), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    def close(self) -> None:
        """Export the remaining spans; this may take the exporter's whole time-out."""
        self._provider.shutdown()

    def make(self, times: TracedRequest, report: EpochReport | None) -> None:
        """Make the spans of one request.

        Args:
            report: The report of its epoch; None leaves out the spans of the epoch.
        """
        root = self._root(times, _transaction(times))
        if root.is_recording():
            inside = trace.set_span_in_context(root)
            self._span("log.append", inside, times.append_began_ns, times.appended_ns)
            committed_ns = self._epoch(times, report, inside)
            self._span("reply", inside, committed_ns, times.ended_ns)
        root.end(times.ended_ns)

    def make_read(self, times: TracedRead) -> None:
        """Make the spans of an HTTP request that was answered from the state."""
        attributes: Attributes = {"penstock.readonly": True, "penstock.calls": times.calls}
        if times.method:
            attributes |= {"penstock.entity": times.entity, "penstock.method": times.method}
        if times.epoch is not None:
            attributes["penstock.epoch"] = times.epoch
        root = self._root(times, attributes)
        if root.is_recording():
            inside = trace.set_span_in_context(root)
            self._span("read", inside, times.read_began_ns, times.read_ns)
        root.end(times.ended_ns)

    def _root(self, times: Traced, attributes: Attributes) -> trace.Span:
        """Start the span of an HTTP request."""
        called = f"{times.entity}.{times.method}" if times.entity else times.method
        if isinstance(times, TracedRead) and not called:
            called = times.path
        about: Attributes = {"http.request.method": times.verb, **attributes}
        if times.status:
            about["http.response.status_code"] = times.status
        root = self._tracer.start_span(
            f"{times.verb} {called}",
            propagate.extract(times.headers, getter=_FROM_HEADERS),
            SpanKind.SERVER,
            about,
            start_time=times.began_ns,
        )
        if times.status >= 500 or times.status == 0:
            root.set_status(Status(StatusCode.ERROR))
        return root

    def _epoch(self, times: TracedRequest, report: EpochReport | None, inside: Context) -> int:
        """Make the spans of an epoch, and return when the epoch ended for this request."""
        if report is None or (end_ns := report.time_us * 1_000) < times.append_began_ns:
            return times.appended_ns  # the request did not wait, or the reply existed already
        end_ns = min(end_ns, times.ended_ns)
        at_ns = end_ns - int(took_ms(report.phases_ms) * _NS_IN_MS)
        first_ns = times.append_began_ns
        epoch = self._tracer.start_span(
            "epoch", inside, attributes=_facts(report), start_time=max(at_ns, first_ns)
        )
        within = trace.set_span_in_context(epoch)
        for name, took in report.phases_ms.items():
            if name == REST:
                continue
            begins_ns, at_ns = at_ns, at_ns + int(took * _NS_IN_MS)
            # Sums of rounded numbers may pass their total by a nanosecond.
            bounds = [min(max(time_ns, first_ns), end_ns) for time_ns in (begins_ns, at_ns)]
            self._phase(name, times, within, *bounds)
        epoch.end(end_ns)
        return end_ns

    def _phase(
        self, name: str, times: TracedRequest, within: Context, start_ns: int, end_ns: int
    ) -> None:
        shown = f"{_ROUND} {name.removeprefix(_ROUND)}" if name.startswith(_ROUND) else name
        span = self._tracer.start_span(shown, within, start_time=start_ns)
        if name == f"{_ROUND}1":
            under = trace.set_span_in_context(span)
            self._span("transaction", under, start_ns, end_ns, _transaction(times))
        span.end(end_ns)

    def _span(
        self,
        name: str,
        inside: Context,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
    ) -> None:
        span = self._tracer.start_span(name, inside, attributes=attributes, start_time=start_ns)
        span.end(end_ns)


def _transaction(times: TracedRequest) -> Attributes:
    """Return the attributes of a transaction, without keys and arguments, which may be secret."""
    attributes: Attributes = {
        "penstock.entity": times.entity,
        "penstock.method": times.method,
        "penstock.request_id": times.request_id,
        "penstock.lsn": times.lsn,
    }
    if times.epoch is not None:
        attributes["penstock.epoch"] = times.epoch
    if times.outcome is not None:
        attributes["penstock.outcome"] = times.outcome
    return attributes


def _facts(report: EpochReport) -> Attributes:
    return {
        "penstock.epoch": report.epoch,
        "penstock.records": report.records,
        "penstock.aborts": report.aborts,
        "penstock.rounds": report.rounds,
        "penstock.reran": report.reran,
        "penstock.tasks": report.tasks,
    }


def _resource(app: str) -> Resource:
    """Return the resource that the environment names, or else the application."""
    resource = Resource.create({"process.pid": os.getpid()})
    if str(resource.attributes[SERVICE_NAME]).startswith(_UNNAMED):
        return resource.merge(Resource({SERVICE_NAME: app}))
    return resource
