"""Traces: the tree of a request, its export over OTLP, and a gateway without both."""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.gateway import serving
from penstock.gateway.telemetry import request_tracing as tracing
from penstock.gateway.telemetry.request_timings import TracedRead, TracedRequest
from penstock.gateway.telemetry.request_tracing import RequestTracer
from penstock.gateway.telemetry.spans import RequestSpans
from penstock.process.epoch_report import EpochReport
from penstock.process.reports import ReportWriter
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

MS = 1_000_000
NOW = 1_760_000_000_000 * MS
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
READ = PARENT.replace("c-b", "d-b")

TIMES = TracedRequest(
    verb="POST",
    entity="Item",
    method="add",
    request_id=RequestId("r1"),
    lsn=Lsn(7),
    began_ns=NOW,
    append_began_ns=NOW + 1 * MS,
    appended_ns=NOW + 5 * MS,
    ended_ns=NOW + 100 * MS,
    status=200,
    epoch=Epoch(3),
    outcome="ok",
    headers=[],
)
READING = TracedRead(
    verb="POST",
    entity="Item",
    method="show",
    path="/read",
    calls=1,
    began_ns=NOW,
    read_began_ns=NOW + 1 * MS,
    read_ns=NOW + 8 * MS,
    ended_ns=NOW + 9 * MS,
    status=200,
    epoch=Epoch(3),
    headers=[],
)
PHASES = {
    "rest": 5_000.0,
    "read": 2.0,
    "apply": 1.0,
    "round1": 30.0,
    "validate": 2.0,
    "round2": 20.0,
    "write": 5.0,
    "commit": 10.0,
}
REPORT = EpochReport(
    epoch=Epoch(3), time_us=(NOW + 90 * MS) // 1_000, records=50, aborts=1, rounds=2, reran=4,
    tasks=2, phases_ms=PHASES,
)  # fmt: skip


class Memory:
    """Spans that were made, in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.spans = RequestSpans(provider)

    def tree(self, times: TracedRequest, report: EpochReport | None) -> dict[str, ReadableSpan]:
        """Make a tree and return its spans by name."""
        self.spans.make(times, report)
        return {span.name: span for span in self.exporter.get_finished_spans()}


def parents_of(spans: dict[str, ReadableSpan]) -> dict[str, str | None]:
    names = {span.context.span_id: name for name, span in spans.items() if span.context}
    return {name: names.get(span.parent.span_id) if span.parent else None
            for name, span in spans.items()}  # fmt: skip


def bounds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - NOW) / MS, (span.end_time - NOW) / MS


def is_nested(spans: dict[str, ReadableSpan]) -> bool:
    parents = parents_of(spans)
    pairs = [(bounds(spans[name]), bounds(spans[parent]))
             for name, parent in parents.items() if parent in spans]  # fmt: skip
    return all(high[0] <= low[0] <= low[1] <= high[1] for low, high in pairs)


def test_tree_of_a_call_is_whole() -> None:
    """From HTTP through log, epoch, rounds and transaction to the reply, each in its place."""
    spans = Memory().tree(TIMES, REPORT)
    assert parents_of(spans) == {
        "POST Item.add": None,
        "log.append": "POST Item.add",
        "epoch": "POST Item.add",
        **dict.fromkeys(("read", "apply", "validate", "write", "commit"), "epoch"),
        "round 1": "epoch",
        "round 2": "epoch",
        "transaction": "round 1",
        "reply": "POST Item.add",
    }
    assert bounds(spans["POST Item.add"]) == (0, 100)
    assert bounds(spans["log.append"]) == (1, 5)
    assert bounds(spans["epoch"]) == (20, 90)
    assert bounds(spans["round 1"]) == (23, 53)
    assert bounds(spans["commit"]) == (80, 90)
    assert bounds(spans["reply"]) == (90, 100)
    assert is_nested(spans)
    assert dict(spans["transaction"].attributes or {}) == {
        "penstock.entity": "Item",
        "penstock.method": "add",
        "penstock.request_id": "r1",
        "penstock.lsn": 7,
        "penstock.epoch": 3,
        "penstock.outcome": "ok",
    }


def test_read_has_the_span_of_its_answer() -> None:
    """A read shows how long the reader took, and the epoch; a read that failed has no epoch."""
    memory = Memory()
    memory.spans.make_read(READING)
    spans = {span.name: span for span in memory.exporter.get_finished_spans()}
    assert parents_of(spans) == {"POST Item.show": None, "read": "POST Item.show"}
    assert (bounds(spans["POST Item.show"]), bounds(spans["read"])) == ((0, 9), (1, 8))
    attributes = dict(spans["POST Item.show"].attributes or {})
    assert (attributes["penstock.epoch"], attributes["penstock.calls"]) == (3, 1)
    memory = Memory()
    memory.spans.make_read(replace(READING, method="", entity="", calls=2, epoch=None, status=504))
    (_, failed) = memory.exporter.get_finished_spans()
    assert (failed.name, failed.status.is_ok) == ("POST /read", False)


@pytest.mark.parametrize("late_ms", [-60, 15, 3_000])
def test_times_nest_whatever_clocks_say(late_ms: int) -> None:
    """A report with a wrong clock is cut to the times that the gateway itself has seen."""
    report = replace(REPORT, time_us=(NOW + (90 + late_ms) * MS) // 1_000)
    assert is_nested(Memory().tree(TIMES, report))


def test_repeated_request_has_no_epoch() -> None:
    """A request that was processed before it was repeated adds no spans to this exchange."""
    spans = Memory().tree(TIMES, replace(REPORT, time_us=(NOW - 5 * MS) // 1_000))
    assert spans.keys() == {"POST Item.add", "log.append", "reply"}
    assert bounds(spans["reply"]) == (5, 100)


def test_caller_s_trace_goes_on() -> None:
    """A `traceparent` header is the parent, and one that is not sampled is not recorded."""
    spans = Memory().tree(replace(TIMES, headers=[(b"traceparent", PARENT.encode())]), REPORT)
    assert {f"{span.context.trace_id:032x}" for span in spans.values() if span.context} == {
        PARENT.split("-")[1]
    }
    parent = spans["POST Item.add"].parent
    assert parent is not None
    assert f"{parent.span_id:016x}" == PARENT.split("-")[2]
    unsampled = [(b"traceparent", PARENT[:-1].encode() + b"0")]
    assert Memory().tree(replace(TIMES, headers=unsampled), REPORT) == {}


def test_failed_exchange_is_an_error() -> None:
    """5xx and a disconnected client mark the span; a refusal of the application does not."""
    failed = {
        status: Memory().tree(replace(TIMES, status=status), None)["POST Item.add"]
        for status in (200, 400, 504, 0)
    }
    assert {status: span.status.is_ok for status, span in failed.items()} == {
        200: True, 400: True, 504: False, 0: False,
    }  # fmt: skip


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Take OTLP over HTTP, as a collector does."""
    taken: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", taken
        finally:
            server.shutdown()
            thread.join()


def read(client: httpx.Client) -> None:
    """Read once by a call, and once by `/read`."""
    found = client.post("/call/Item/i1/exists", headers={"traceparent": READ})
    assert found.json() is True
    calls = {"calls": [{"entity": "Item", "key": key, "method": "exists"} for key in "ab"]}
    client.post("/read", json=calls).raise_for_status()


def test_call_over_http_arrives_at_a_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway exports the whole tree of a real call, also the part that waits when it stops."""
    with collector() as (url, taken):
        monkeypatch.setenv(ENDPOINT, url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "the-shop")
        with (
            RunningGateway(SHOP, tmp_path) as gateway,
            httpx.Client(base_url=gateway.url, timeout=60) as client,
        ):
            assert gateway.driver is not None
            gateway.driver.on_epoch.append(ReportWriter(tmp_path).take)
            headers = {"traceparent": PARENT, "Idempotency-Key": "first"}
            made = client.post("/call/Item/i1/create", json={"price": 3}, headers=headers)
            assert made.status_code == 200
            client.post("/send/Item/i1/add", json=[1], headers={"Idempotency-Key": "second"})
            client.get("/readyz")
            read(client)
        wait_for(lambda: taken, "an export")
    groups = [group for request in taken for group in request.resource_spans]
    told = [one for group in groups for one in group.resource.attributes]
    assert {one.value.string_value for one in told if one.key == "service.name"} == {"the-shop"}
    spans = [one for group in groups for scope in group.scope_spans for one in scope.spans]
    first = [one for one in spans if one.trace_id.hex() == PARENT.split("-")[1]]
    assert sorted(one.name for one in first) == [
        "POST Item.create", "commit", "epoch", "log.append", "reply", "round 1", "transaction",
    ]  # fmt: skip
    by_id = {one.span_id: one for one in first}
    for one in first:
        over = by_id.get(one.parent_span_id)
        if over is not None:
            assert over.start_time_unix_nano <= one.start_time_unix_nano
            assert one.end_time_unix_nano <= over.end_time_unix_nano
    reads = {one.name: one for one in spans if one.trace_id.hex() == READ.split("-")[1]}
    assert sorted(reads) == ["POST Item.exists", "read"]
    assert reads["read"].parent_span_id == reads["POST Item.exists"].span_id
    rest = [one for one in spans if one not in first and one not in reads.values()]
    assert sorted(one.name for one in rest) == [
        "POST /read", "POST Item.add", "log.append", "read", "reply",
    ]  # fmt: skip


OFF = [
    {},
    {ENDPOINT: "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
    {ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
]


@pytest.mark.parametrize("environment", OFF, ids=range(len(OFF)))
def test_nothing_is_traced_unless_asked_for(tmp_path: Path, environment: dict[str, str]) -> None:
    """Without an endpoint, or if the variables disable it, there is no tracing at all."""
    assert RequestTracer.from_environment("shop", tmp_path, environment) is None


def test_missing_extra_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If traces are configured and the extra is missing, a warning says so, and the gateway runs."""
    monkeypatch.setitem(sys.modules, "penstock.gateway.telemetry.spans", None)
    assert (
        RequestTracer.from_environment("shop", tmp_path, {ENDPOINT: "http://127.0.0.1:9"}) is None
    )
    assert [one.message for one in caplog.records] == [
        "requests are not traced, because penstock[telemetry] is not installed"
    ]


def test_gateway_is_as_it_was_without_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is put around the gateway while traces are off."""
    monkeypatch.delenv(ENDPOINT, raising=False)
    monkeypatch.setattr(serving, "TracingMiddleware", None)
    with RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway:
        assert httpx.get(f"{gateway.url}/healthz", timeout=60).status_code == 200


def test_report_is_waited_for() -> None:
    """The epoch's report comes after its commit, and its spans are made then."""
    memory, looks = Memory(), list[int]()

    def reports_since(time_us: int) -> list[EpochReport]:
        looks.append(time_us)
        return [REPORT] if len(looks) > 1 else []

    traced = RequestTracer(memory.spans, reports_since)
    traced.request(replace(TIMES, ended_ns=time.time_ns()))
    wait_for(memory.exporter.get_finished_spans, "a tree")
    traced.close()
    assert len(looks) == 2
    assert "epoch" in {span.name for span in memory.exporter.get_finished_spans()}


def test_too_many_are_dropped_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue of spans is bounded; the log says how many were dropped."""
    monkeypatch.setattr(tracing, "WAITING_MAX", 0)
    caplog.set_level(logging.WARNING)
    memory = Memory()
    traced = RequestTracer(memory.spans, lambda time_us: [])
    for _ in range(3):
        traced.request(TIMES)
    traced.close()
    assert memory.exporter.get_finished_spans() == ()
    assert [vars(one)["requests"] for one in caplog.records] == [3]
