"""Metrics of all processes of one application, added up at each scrape.

Every process writes its numbers into files of its own below `DATA/run/metrics` (the multiprocess
mode of `prometheus_client`), and whichever gateway is scraped answers for all of them; so it does
not matter which gateway a scrape reaches, and the counts of a killed process are not lost.

Labels are few by construction: kinds of routes, classes of statuses, phases; never keys or ids.
"""

import mmap
import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import psutil

from penstock.files.layout import RUN
from penstock.files.roots import store_of
from penstock.files.store_client import observe_requests
from penstock.process.epoch_report import REST, EpochReport, took_ms

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

DIRECTORY: Final = "metrics"
UNDER_WAY: Final = "penstock_requests_under_way"
"""The gauge of admitted requests that no epoch has committed, for each gateway."""

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which `prometheus_client` is told where; children inherit it."""

LATENCY_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75)
LATENCY_S_LONG: Final = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
APPEND_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
STORE_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
EPOCH_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
RECORDS: Final = (1, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ROUNDS: Final = (1, 2, 3, 4, 6, 10)

_NUMBERS_BYTES: Final = 64 << 10
"""The bytes of a file with the numbers of a process, until they need more."""

_LATER_ROUND: Final = re.compile(r"round(?:[4-9]|\d\d+)")
_LIVE: Final = re.compile(r"gauge_live[a-z]*_(\d+)\.db")


def clear(data: Path) -> None:
    """Forget the counts of former processes; call it before any process starts."""
    shutil.rmtree(data / RUN / DIRECTORY, ignore_errors=True)


def write_metrics_into(data: Path) -> Path:
    """Let this process write its metrics below a data directory, and return their folder.

    A process serves one application: metrics that are made after the first call are written there. A
    directory that the environment names already is used instead.
    """
    default = data.absolute() / RUN / DIRECTORY
    path = Path(os.environ.setdefault(VARIABLE, str(default)))
    path.mkdir(parents=True, exist_ok=True)
    from prometheus_client import values  # noqa: PLC0415 -- reads the variable

    vars(values)["MmapedDict"] = _numbers_in_files()
    if values.ValueClass is values.MutexValue:
        # An application that counts something itself has imported it before the variable was there.
        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    return path


@cache
def _numbers_in_files() -> type:
    """Return the library's numbers in a file, with disk for each byte of the file: it leaves holes.

    Where the disk is full, the first write into a hole ends the process with SIGBUS.
    """
    from prometheus_client.mmap_dict import MmapedDict  # noqa: PLC0415 -- few processes have metrics

    class Numbers(MmapedDict):
        def __init__(self, filename: str, read_mode: bool = False) -> None:  # noqa: FBT001, FBT002 -- the library's
            with Path(filename).open("ab") as file:
                file.write(bytes(max(0, _NUMBERS_BYTES - file.tell())))
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

        def _init_value(self, key: str) -> None:
            # Twelve bytes before and behind the key, and at most eight that fill it up.
            while self._used + len(key.encode()) + 32 > self._capacity:
                self._grow()
            super()._init_value(key)  # type: ignore[no-untyped-call]

        def _grow(self) -> None:
            """Double the file; without disk, the numbers of this process are in its memory, and scrapes show the former ones."""
            former, length = self._m, self._capacity
            try:
                with Path(self._fname).open("ab") as file:
                    file.write(bytes(max(0, 2 * length - file.tell())))
                grown = mmap.mmap(self._f.fileno(), 2 * length)
            except OSError:
                grown = mmap.mmap(-1, 2 * length)
            grown[:length] = former[:]
            self._m, self._capacity = grown, 2 * length

    return Numbers


def forget_dead(path: Path) -> None:
    """Drop the gauges of ended processes; their counters stay."""
    for file in path.glob("gauge_live*.db"):
        match = _LIVE.fullmatch(file.name)
        if match is not None and not psutil.pid_exists(int(match[1])):
            file.unlink(missing_ok=True)


def live_sum(data: Path, name: str) -> float:
    """Return the sum of a gauge over the running processes of an application; 0 without processes."""
    return sum(sums_of(data, name).values())


def sums_of(data: Path, name: str, label: str = "") -> dict[str, float]:
    """Return the sums of a metric over all processes, by the values of a label; empty without processes."""
    path = Path(os.environ.get(VARIABLE, data.absolute() / RUN / DIRECTORY))
    if not path.is_dir():
        return {}
    from prometheus_client import CollectorRegistry  # noqa: PLC0415
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    forget_dead(path)
    registry = CollectorRegistry()
    collector = MultiProcessCollector(registry, str(path))  # type: ignore[no-untyped-call]
    families = collector.collect()  # type: ignore[no-untyped-call]
    sums: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == name:
            value = sample.labels.get(label, "")
            sums[value] = sums.get(value, 0.0) + sample.value
    return sums


class MetricsRegistry:
    """The metrics that this process writes below a data directory; one for each process.

    Attributes:
        path: The folder of the metrics of all processes.
    """

    def __init__(self, data: Path) -> None:
        self.path = write_metrics_into(data)
        import prometheus_client  # noqa: PLC0415 -- after its variable is set

        self._library = prometheus_client
        self._registry = prometheus_client.CollectorRegistry()

    def counter(self, name: str, text: str, *labels: str) -> "Counter":
        """Return a count, which all processes add to."""
        return self._library.Counter(name, text, labels, registry=self._registry)

    def gauge(
        self, name: str, text: str, *labels: str, mode: Literal["livesum", "livemax"] = "livesum"
    ) -> "Gauge":
        """Return a number, of which the sum or the greatest of all running processes is shown."""
        made = self._library.Gauge
        return made(name, text, labels, multiprocess_mode=mode, registry=self._registry)

    def histogram(self, name: str, text: str, bounds: Sequence[float], *labels: str) -> "Histogram":
        """Return the distribution of a number."""
        made = self._library.Histogram
        return made(name, text, labels, buckets=bounds, registry=self._registry)


STORE_REQUESTS: Final = "penstock_store_request_seconds_count"


def count_store_requests(data: Path) -> None:
    """Count the requests of this process to the object store; nothing if the shared root is a folder."""
    if not store_of(data):
        return
    registry = MetricsRegistry(data)
    seconds = registry.histogram(
        "penstock_store_request_seconds",
        "Time of one request to the object store, by its kind.",
        STORE_S,
        "kind",
    )
    sent = registry.counter("penstock_store_bytes", "Bytes of these requests and answers.", "kind")
    failures = registry.counter(
        "penstock_store_failures",
        "Requests that the object store did not answer, or refused.",
        "kind",
    )

    def count(verb: str, took_s: float, size: int, is_answered: bool) -> None:  # noqa: FBT001
        seconds.labels(verb).observe(took_s)
        sent.labels(verb).inc(size)
        if not is_answered:
            failures.labels(verb).inc()

    observe_requests(count)


class _FlowMetrics:
    """The atoms and events that epochs published, by stream, and the calls, by edge of the graph."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._atoms = registry.counter(
            "penstock_stream_atoms_total", "Atoms that epochs published.", "stream"
        )
        self._events = registry.counter(
            "penstock_stream_events_total", "Events in these atoms.", "stream"
        )

        self._calls = registry.counter(
            "penstock_calls_total",
            "Calls between methods, and of methods from outside (caller is empty); estimated.",
            "caller",
            "callee",
        )

    def take(self, report: EpochReport) -> None:
        """Count the atoms and calls of a committed epoch."""
        for call, times in report.calls.items():
            caller, _, callee = call.partition(">")
            self._calls.labels(caller, callee).inc(times)
        for stream, atoms in report.atoms.items():
            self._atoms.labels(stream).inc(atoms)
        for stream, events in report.events.items():
            self._events.labels(stream).inc(events)


class DriverMetrics:
    """The metrics of a driver; call `take` for each epoch."""

    def __init__(self, data: Path) -> None:
        """Write below a data directory; one for each process."""
        count_store_requests(data)
        registry = MetricsRegistry(data)
        self._seconds = registry.histogram(
            "penstock_epoch_seconds",
            "Time that an epoch took in the driver, from its records to its commit.",
            EPOCH_S,
        )
        self._phases = registry.histogram(
            "penstock_epoch_phase_seconds",
            "Time of one phase of an epoch: read, apply, round1 … round4 (and later), validate, "
            "write, commit.",
            EPOCH_S,
            "phase",
        )
        self._records = registry.histogram(
            "penstock_epoch_records", "Requests that an epoch processed.", RECORDS
        )
        self._rounds = registry.histogram(
            "penstock_epoch_rounds",
            "How often tasks executed in an epoch; 1 without conflicts.",
            ROUNDS,
        )
        self._reran = registry.counter(
            "penstock_reran_total",
            "Transactions that ran more than once because of a conflict between tasks.",
        )
        self._aborts = registry.counter(
            "penstock_aborts_total", "Transactions that were undone because their handler raised."
        )
        self._failed = registry.counter(
            "penstock_failed_background_total",
            "Failed requests that no caller waits for; refusals that the application declares are not counted.",
        )
        self._streams = _FlowMetrics(registry)
        self._incidents = registry.counter(
            "penstock_incidents_total",
            "Requests that stopped their epoch and were set aside (run/incidents.jsonl).",
        )

    def take(self, report: EpochReport) -> None:
        """Count a committed epoch."""
        self._seconds.observe(took_ms(report.phases_ms) / 1_000)
        for phase, milliseconds in report.phases_ms.items():
            if phase != REST:
                label = _LATER_ROUND.sub("round4", phase)
                self._phases.labels(label).observe(milliseconds / 1_000)
        self._records.observe(report.records)
        self._rounds.observe(report.rounds)
        self._reran.inc(report.reran)
        self._aborts.inc(report.aborts)
        self._failed.inc(report.failed)
        self._incidents.inc(report.incidents)
        self._streams.take(report)
