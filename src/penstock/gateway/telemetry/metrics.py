"""Counters of a gateway, and the `/metrics` page, on which one gateway reports all processes."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.base.ids import Epoch
from penstock.errors import JournalUnavailable
from penstock.gateway.telemetry.follow_metrics import FollowMetrics
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.log.kafka_config import EMBEDDED
from penstock.process import presence
from penstock.process.capture_standing import capture_standings
from penstock.process.clock_jumps import clock_jumps
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import lease_standing
from penstock.process.effect_files import read_effects_report
from penstock.process.generator_progress import RUNNING, read_progress
from penstock.process.hosts import HostLook, HostStanding
from penstock.process.metrics import (
    APPEND_S,
    LATENCY_S,
    LATENCY_S_LONG,
    UNDER_WAY,
    MetricsRegistry,
    count_store_requests,
    forget_dead,
)
from penstock.process.presence import running_processes
from penstock.process.status import status_of
from penstock.process.view_standing import view_standings
from penstock.sql_view.view_client import view_epoch

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram
    from prometheus_client.metrics_core import Metric


class FlowMetrics:
    """Counts refusals and requests under way."""

    def __init__(
        self, registry: MetricsRegistry, flush_soon: Callable[[], None] | None = None
    ) -> None:
        """Add the metrics to the registry of a gateway.

        Args:
            flush_soon: Calls `flush` a little later; None: each change is in the files at once.
        """
        self._flush_soon = self.flush if flush_soon is None else flush_soon
        self._counts = self._shown = (0, 0)
        self._under_way = registry.gauge(
            UNDER_WAY, "Admitted requests that no epoch has committed."
        )
        self._queued = registry.gauge(
            "penstock_requests_queued",
            "Admitted requests that wait for the turn of their principal.",
        )
        self._refused = registry.counter(
            "penstock_requests_refused",
            "Requests that were not admitted, by reason, and by the limit or the pause.",
            "reason",
            "target",
        )

    def under_way(self, count: int, queued: int) -> None:
        """Set the number of requests under way, and of those that wait for their turn."""
        self._counts = count, queued
        # Whoever waits for the end of all requests must never see 0 while there is one. More than there are does no harm.
        if count and not self._shown[0]:
            self.flush()
        else:
            self._flush_soon()

    def flush(self) -> None:
        """Write the numbers into the files that all processes share."""
        if self._counts != self._shown:
            count, queued = self._shown = self._counts
            self._under_way.set(count)
            self._queued.set(queued)

    def refused(self, reason: str, target: str) -> None:
        """Count a request that was not admitted; the declared limits and pauses bound the targets."""
        self._refused.labels(reason, target).inc()


_FLUSH_S: Final = 0.25


_BOUNDS_S = LATENCY_S + LATENCY_S_LONG


class TimedCount:
    """Counts responses or appends, and their times; `add` takes less than a microsecond."""

    def __init__(self, counter: "Counter", seconds: "Histogram", bounds: Sequence[float]) -> None:
        """Count for two series; the histogram has these bounds."""
        self._counter = counter
        self._histogram = seconds
        self._bounds = bounds
        self._number = 0
        self._seconds = 0.0
        self._buckets = [0] * (len(bounds) + 1)

    def add(self, seconds: float, number: int = 1) -> None:
        """Count some that took a time together."""
        self._number += number
        self._seconds += seconds
        self._buckets[bisect_left(self._bounds, seconds)] += 1

    def flush(self) -> None:
        """Add the counts to the series, and begin at 0."""
        if not self._number:
            return
        self._counter.inc(self._number)
        # `Histogram.observe` takes a single value; its own sums take many.
        self._histogram._sum.inc(self._seconds)  # noqa: SLF001 -- no public way for many values
        buckets = self._histogram._buckets  # noqa: SLF001 -- as above
        for bucket, count in zip(buckets, self._buckets, strict=True):
            if count:
                bucket.inc(count)
        self._number, self._seconds, self._buckets = 0, 0.0, [0] * len(self._buckets)


def at_once(_seconds: float, function: Callable[[], None]) -> None:
    """Call a function without a pause."""
    function()


class Metrics:
    """Counts the requests of one gateway.

    Responses, appends and the requests that wait or are under way are counted in memory, and the files that all processes
    share get the counts four times a second, because an addition there takes longer than all other counting of a request.
    """

    def __init__(
        self, data: Path, later: Callable[[float, Callable[[], None]], object] = at_once
    ) -> None:
        """Write into a data directory; one instance per process.

        Args:
            later: Calls a function after some seconds, as an event loop does.
        """
        self._later = later
        self._data = data
        self._hosts = HostLook(data)
        count_store_requests(data)
        registry = MetricsRegistry(data)
        self._path = registry.path
        self._requests = registry.counter(
            "penstock_requests",
            "HTTP responses, by kind of route and class of status.",
            "kind",
            "status",
        )
        self._seconds = registry.histogram(
            "penstock_request_seconds",
            "Time from the head of an HTTP request to the end of its response.",
            LATENCY_S + LATENCY_S_LONG,
            "kind",
        )
        self._waiting = registry.gauge(
            "penstock_requests_waiting", "Requests that wait for their epoch to be committed."
        )
        self._point_sessions = registry.gauge(
            "penstock_point_sessions", "Reads of several views at one epoch that are open."
        )
        append = registry.histogram(
            "penstock_log_append_seconds",
            "Time of one durable append; requests that arrive together share an append.",
            APPEND_S,
        )
        records = registry.counter("penstock_log_records", "Requests appended to the log.")
        self._appended = TimedCount(records, append, APPEND_S)
        self.flow = FlowMetrics(registry, self._flush_soon)
        self.follow = FollowMetrics(registry)
        self._reads = registry.counter(
            "penstock_reads", "Calls of @readonly handlers that readers answered."
        )
        self._readers = registry.counter(
            "penstock_reader_starts", "Reader processes that have started."
        )
        self._counts: dict[tuple[str, int], TimedCount] = {}
        self._awaited = 0
        self._flush_comes = False

    def observe(self, route_kind: str, status: int, seconds: float) -> None:
        """Count a response."""
        count = self._counts.get((route_kind, status // 100))
        if count is None:
            count = self._counts[route_kind, status // 100] = TimedCount(
                self._requests.labels(route_kind, f"{status // 100}xx"),
                self._seconds.labels(route_kind),
                _BOUNDS_S,
            )
        count.add(seconds)
        if not self._flush_comes:
            self._flush_soon()

    def waiting(self, count: int) -> None:
        """Set the number of requests that wait here."""
        self._awaited = count
        self._flush_soon()

    def point_sessions(self, count: int) -> None:
        """Set the number of reads at one epoch that are open here."""
        self._point_sessions.set(count)

    def _flush_soon(self) -> None:
        if not self._flush_comes:
            self._flush_comes = True
            self._later(_FLUSH_S, self.flush)

    def flush(self) -> None:
        """Add the counts to the files that all processes share."""
        self._flush_comes = False
        for count in self._counts.values():
            count.flush()
        self._appended.flush()
        self.flow.flush()
        self._waiting.set(self._awaited)

    def appended(self, seconds: float, records: int) -> None:
        """Count an append."""
        self._appended.add(seconds, records)
        self._flush_soon()

    def read(self, calls: int) -> None:
        """Count calls that a reader has answered."""
        self._reads.inc(calls)

    def reader_started(self) -> None:
        """Count a reader that has started."""
        self._readers.inc()

    def exposition(
        self, journal: Journal, log: Log, workflow_lags: Mapping[str, int]
    ) -> tuple[bytes, str]:
        """Return the metrics of all processes as text, and its content type."""
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415
        from prometheus_client.exposition import CONTENT_TYPE_LATEST  # noqa: PLC0415
        from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

        forget_dead(self._path)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._path))  # type: ignore[no-untyped-call]
        registry.register(_CurrentGauges(self._data, journal, log, self._hosts))
        registry.register(_WorkflowLags(workflow_lags))
        return generate_latest(registry), CONTENT_TYPE_LATEST


class _WorkflowLags:
    """The lag of each workflow."""

    def __init__(self, lags: Mapping[str, int]) -> None:
        self._lags = lags

    def collect(self) -> "Iterator[Metric]":
        """Yield the metric."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        lag = GaugeMetricFamily(
            "penstock_workflow_lag_atoms",
            "Atoms of its source that a workflow has still to take.",
            labels=["workflow"],
        )
        for workflow, atoms in self._lags.items():
            lag.add_metric([workflow], atoms)
        yield lag


class _CurrentGauges:
    """Gauges that are read when `/metrics` is requested."""

    def __init__(self, data: Path, journal: Journal, log: Log, hosts: HostLook) -> None:
        self._hosts = hosts
        self._data = data
        self._journal = journal
        self._log = log

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        status = status_of(self._data, self._log, self._journal)
        yield GaugeMetricFamily(
            "penstock_epoch", "Newest committed epoch; -1 before the first.", value=status.epoch
        )
        yield GaugeMetricFamily(
            "penstock_lag_records",
            "Requests in the log that no epoch has committed.",
            value=status.lag,
        )
        yield GaugeMetricFamily(
            "penstock_clock_jumps",
            "Jumps of the machine's clock that processes have noted (run/clock-jumps.jsonl).",
            value=clock_jumps(self._data).count,
        )
        yield from _place_metrics(self._data)
        if hosts := self._hosts.seen().hosts:
            yield from _host_metrics(hosts)
        viewed = view_epoch(self._data)
        if viewed is not None:
            yield GaugeMetricFamily(
                "penstock_view_epoch", "Epoch of SQL answers; absent without a view.", viewed
            )
        yield from _view_metrics(self._data, status.epoch)
        yield from _effect_metrics(self._data)
        yield from _capture_metrics(self._data)
        atoms = GaugeMetricFamily(
            "penstock_generator_atoms",
            "Atoms of a generator that are on its stream.",
            labels=["generator"],
        )
        generating = GaugeMetricFamily(
            "penstock_generator_running",
            "1 while a generator runs; 0 if it has finished, has failed or was stopped.",
            labels=["generator"],
        )
        for progress in read_progress(self._data):
            atoms.add_metric([progress.generator], progress.atoms)
            generating.add_metric([progress.generator], progress.status == RUNNING)
        yield atoms
        yield generating
        processes = GaugeMetricFamily(
            "penstock_processes", "Processes of the application that run, by role.", labels=["role"]
        )
        memory = GaugeMetricFamily(
            "penstock_process_resident_bytes",
            "Memory of the processes of a role, as the system counts it; that of a driver and "
            "of a standby with JVM and workers.",
            labels=["role"],
        )
        running = running_processes(self._data)
        for role in presence.ROLES:
            of_role = [process for process in running if process.role == role]
            processes.add_metric([role], len(of_role))
            memory.add_metric([role], sum(process.memory_bytes for process in of_role))
        yield processes
        yield memory


def _host_metrics(hosts: Sequence[HostStanding]) -> "Iterator[Metric]":
    """Yield how each host stands."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

    names = ["host"]
    figures: dict[str, tuple[str, Callable[[HostStanding], float | None]]] = {
        "seen_seconds": ("Seconds since a host has said how it stands.", lambda each: each.age_s),
        "state_lag_epochs": (
            "Committed epochs that the copy of the state of a host lacks.",
            lambda each: each.state_lag,
        ),
        "view_lag_epochs": (
            "Committed epochs that the SQL view of a host lacks.",
            lambda each: each.view_lag,
        ),
        "log_lag_messages": (
            "Messages of the topic that the copy of the log of a host lacks.",
            lambda each: each.report.log_lag,
        ),
        "clock_ahead_seconds": (
            "How far the clock of a host is ahead of that of the object store.",
            lambda each: each.report.clock_s,
        ),
        "disk_free_bytes": (
            "Free bytes of the disk with the folder of a host.",
            lambda each: each.report.disk_free,
        ),
        "cents_per_day": (
            "Cents of a day like the last ten seconds, by the settings prices.",
            lambda each: each.report.cents_per_day,
        ),
        "troubled": (
            "1 if something does not work on a host; the console says what.",
            lambda each: bool(each.report.trouble),
        ),
    }
    for name, (text, figure) in figures.items():
        family = GaugeMetricFamily(f"penstock_host_{name}", text, labels=names)
        for host in hosts:
            value = figure(host)
            if value is not None:
                family.add_metric([host.report.name], value)
        yield family


def _place_metrics(data: Path) -> "Iterator[Metric]":
    """Yield where the log lies, and the age of the lease; nothing without one, or if the object store does not answer."""
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily  # noqa: PLC0415

    standing, place = None, ""
    with suppress(JournalUnavailable):
        place = DataDirectory(data).log_text()
        standing = lease_standing(data)
    if place:
        log = InfoMetricFamily("penstock_log", "Where the log lies.")
        log.add_metric([], {"place": EMBEDDED if place.startswith(EMBEDDED) else place})
        yield log
    if standing is not None:
        age = GaugeMetricFamily(
            "penstock_lease_age_seconds",
            "Seconds since the driver has changed its lease in the object store.",
            labels=["host"],
        )
        age.add_metric([standing.host], standing.age_s)
        yield age


def _view_metrics(data: Path, newest: Epoch) -> "Iterator[Metric]":
    """Yield the metrics of the views."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

    names = ["view"]
    epoch = GaugeMetricFamily(
        "penstock_views_epoch", "Epoch that a view shows; -1 before the first.", labels=names
    )
    lag = GaugeMetricFamily(
        "penstock_views_lag_epochs", "Committed epochs that a view does not show.", labels=names
    )
    failed = GaugeMetricFamily(
        "penstock_views_failed_rows",
        "Rows that a view lacks because their row function has failed, or their key is not unique.",
        labels=names,
    )
    states = GaugeMetricFamily(
        "penstock_views_state", "1 for the state that a view has.", labels=["view", "state"]
    )
    unerased = GaugeMetricFamily(
        "penstock_views_erasures_behind",
        "Erasures of persons that a view with personal data has not passed.",
        labels=names,
    )
    gaps = GaugeMetricFamily(
        "penstock_views_gaps",
        "Tables of streams that lack events because the journal has forgotten them.",
        labels=names,
    )
    asked = GaugeMetricFamily(
        "penstock_views_asked_seconds",
        "How long the last questions of the SQL tables of a view took.",
        labels=names,
    )
    rests = GaugeMetricFamily(
        "penstock_views_rests",
        "1 if view.tables_percent makes a view wait longer than its SQL tables want.",
        labels=names,
    )
    for view in view_standings(data, newest):
        gaps.add_metric([view.name], len(view.gaps))
        unerased.add_metric([view.name], len(view.unerased))
        epoch.add_metric([view.name], view.epoch)
        lag.add_metric([view.name], view.lag)
        failed.add_metric([view.name], view.failed)
        states.add_metric([view.name, view.state], 1)
        if view.asked_ms is not None:
            asked.add_metric([view.name], view.asked_ms / 1_000)
            rests.add_metric([view.name], int(view.rests))
    yield from (epoch, lag, failed, states, unerased, gaps, asked, rests)


def _capture_metrics(data: Path) -> "Iterator[Metric]":
    """Yield the metrics of the streams of changes of databases."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    names = ["stream"]
    states = GaugeMetricFamily(
        "penstock_captures_state",
        "1 for the state that a stream of changes has.",
        labels=["stream", "state"],
    )
    lag = GaugeMetricFamily(
        "penstock_captures_lag_seconds",
        "How old the newest transaction was when it came; 0 if nothing is left to take.",
        labels=names,
    )
    kept = GaugeMetricFamily(
        "penstock_captures_retained_bytes",
        "How much of its log the database keeps for the stream.",
        labels=names,
    )
    rows = CounterMetricFamily(
        "penstock_captures_rows", "Rows since the start of the process.", labels=names
    )
    unfit = CounterMetricFamily(
        "penstock_captures_unfit_rows", "Rows that their record cannot hold.", labels=names
    )
    for each in capture_standings(data):
        states.add_metric([each.name, each.state], 1)
        lag.add_metric([each.name], each.lag_s)
        rows.add_metric([each.name], each.rows)
        unfit.add_metric([each.name], each.unfit)
        if each.retained_bytes is not None:
            kept.add_metric([each.name], each.retained_bytes)
    yield from (states, lag, kept, rows, unfit)


def _effect_metrics(data: Path) -> "Iterator[Metric]":
    """Yield the metrics of effects, as the process that calls them has reported."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    report = read_effects_report(data)
    if report is None:
        return
    names = ["effect"]
    waiting = GaugeMetricFamily(
        "penstock_effects_waiting",
        "Effects that have not ended and are not called now.",
        labels=names,
    )
    running = GaugeMetricFamily(
        "penstock_effects_running", "Effects that are called.", labels=names
    )
    dead = GaugeMetricFamily(
        "penstock_effects_dead", "Effects that have failed for good: dead letters.", labels=names
    )
    calls = CounterMetricFamily(
        "penstock_effects_calls", "Calls since the start of the effect process.", labels=names
    )
    failures = CounterMetricFamily(
        "penstock_effects_failures", "Calls that have failed.", labels=names
    )
    for each in report.functions:
        waiting.add_metric([each.function], each.waiting)
        running.add_metric([each.function], each.running)
        dead.add_metric([each.function], each.dead)
        calls.add_metric([each.function], each.calls)
        failures.add_metric([each.function], each.failures)
    yield from (waiting, running, dead, calls, failures)
