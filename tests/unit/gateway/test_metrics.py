"""Metrics of several processes on one page, and the table of them in the operations manual."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.process import metrics as measures
from penstock.process.effect_files import EffectCounts, EffectsReport, write_effects_report
from penstock.process.view_files import ViewReport, ViewState, write_report
from tests.checkout import TOP

PAGE = (TOP / "docs" / "operations" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(penstock_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)

GATEWAY = """
import sys
from pathlib import Path
from penstock.gateway.telemetry.metrics import Metrics
metrics = Metrics(Path(sys.argv[1]))
metrics.observe("call", 200, 0.03)
metrics.observe("call", 404, 0.001)
metrics.appended(0.002, 5)
metrics.waiting(3)
metrics.flow.under_way(2, 1)
metrics.flow.refused("throttled", "Item 5/s")
metrics.follow.sent("lines", 3, 2)
metrics.follow.following("lines", 0).__enter__()
metrics.read(4)
metrics.reader_started()
print("ready", flush=True)
sys.stdin.read()
"""
DRIVER = """
import prometheus_client  # as an application may that counts something itself
import sys
from pathlib import Path
from penstock.base.ids import Epoch
from penstock.process.metrics import DriverMetrics
from penstock.process.epoch_report import EpochReport
phases = {"rest": 9_000.0, "read": 1.0, "round1": 20.0, "round7": 3.0, "round12": 4.0, "commit": 2.0}
report = EpochReport(
    epoch=Epoch(0), time_us=1, records=7, aborts=2, rounds=12, reran=3, tasks=2, phases_ms=phases,
    atoms={"lines": 2}, events={"lines": 30}, calls={"Order.check>Item.sell": 4},
)
DriverMetrics(Path(sys.argv[1])).take(report)
from penstock.process.generator_progress import GeneratorProgress, write_progress
finished = GeneratorProgress("ticks", "lines", "finished", 12, 24, "", None, "")
write_progress(Path(sys.argv[1]), [finished])
"""
SHOW = """
import os, sys
from pathlib import Path
from penstock.gateway.telemetry.metrics import Metrics
from tests.memory_journal import MemoryJournal
from tests.memory_log import MemoryLog
from penstock.process import presence
from tests.checkout import TOP
data = Path(sys.argv[1])
metrics = Metrics(data)
with presence.present(data, "gateway", "shop", url="http://127.0.0.1:1"):
    print(metrics.exposition(MemoryJournal(), MemoryLog(), {"total": 0})[0].decode())
"""
LATE = """
import sys
from pathlib import Path
from penstock.gateway.telemetry.metrics import Metrics
from penstock.process.metrics import UNDER_WAY, live_sum
data, later = Path(sys.argv[1]), []
metrics = Metrics(data, lambda seconds, function: later.append(function))
def shows(count):
    metrics.flow.under_way(count, 0)
    return live_sum(data, UNDER_WAY)
print(shows(1), shows(3), shows(0))
later.pop()()
print(live_sum(data, UNDER_WAY), shows(2), len(later))
"""
FULL = """
import resource, sys
from pathlib import Path
from penstock.process.metrics import MetricsRegistry
data = Path(sys.argv[1])
counter = MetricsRegistry(data).counter("shown_total", "A count.", "label")
counter.labels("first").inc()
held = [file.stat().st_blocks * 512 >= file.stat().st_size > 0 for file in data.glob("run/metrics/*.db")]
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for number in range(2_000):
    counter.labels(f"label {number}").inc()
print(held, counter.labels("label 1999")._value.get(), counter.labels("first")._value.get())
"""

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def ran(program: str, data: Path) -> str:
    command = [sys.executable, "-c", program, str(data)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=own_environment()
    )
    return done.stdout


def own_environment() -> dict[str, str]:
    """Return the environment without the variables that a gateway in this process has set."""
    return {name: text for name, text in os.environ.items() if name != measures.VARIABLE}


def begun(program: str, data: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=own_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


OF_A_STORE = [
    "lease_age_seconds",
    "host_seen_seconds",
    "host_troubled",
    "host_state_lag_epochs",
    "host_view_lag_epochs",
    "host_log_lag_messages",
    "host_clock_ahead_seconds",
    "host_disk_free_bytes",
    "host_cents_per_day",
]
"""The metrics of hosts, which need data in an object store."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page while one gateway runs, after another was killed, and after a driver's epoch."""
    data = tmp_path_factory.mktemp("metrics")
    lives, dies = begun(GATEWAY, data), begun(GATEWAY, data)
    dies.kill()
    dies.communicate()
    ran(DRIVER, data)
    write_report(data, ViewReport("names", "sqlite", ViewState.FOLLOWING, failed=2, asked_ms=3.5))
    write_effects_report(data, EffectsReport("following", functions=(EffectCounts("charge"),)))
    text = ran(SHOW, data)
    lives.communicate()
    return text


@pytest.fixture(scope="module")
def values(shown: str) -> Values:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(shown)
        for sample in family.samples
    }


def test_processes_are_added_up(values: Values) -> None:
    """Counters of a killed gateway still count; its gauges do not."""
    assert values["penstock_requests_total", (("kind", "call"), ("status", "2xx"))] == 2
    assert values["penstock_requests_total", (("kind", "call"), ("status", "4xx"))] == 2
    assert values["penstock_request_seconds_count", (("kind", "call"),)] == 4
    assert values["penstock_log_records_total", ()] == 10
    assert values["penstock_requests_waiting", ()] == 3


def test_requests_under_way_are_never_shown_as_none(tmp_path: Path) -> None:
    """Whoever waits until no request is under way may wait too long, and never too short."""
    assert ran(LATE, tmp_path) == "1.0 1.0 1.0\n0.0 2.0 0\n"


def test_epoch_is_counted_without_the_time_before_it(values: Values) -> None:
    """The time of waiting for requests does not belong to an epoch."""
    assert values["penstock_epoch_seconds_sum", ()] == pytest.approx(0.030)
    phases = {labels for name, labels in values if name == "penstock_epoch_phase_seconds_count"}
    assert phases == {(("phase", one),) for one in ("read", "round1", "round4", "commit")}
    assert values["penstock_aborts_total", ()] == 2
    assert values["penstock_reran_total", ()] == 3
    assert values["penstock_stream_atoms_total", (("stream", "lines"),)] == 2
    assert values["penstock_stream_events_total", (("stream", "lines"),)] == 30


def test_page_says_what_is_true_now(values: Values) -> None:
    """Epoch, lag and processes are looked up when the page is asked for."""
    assert values["penstock_epoch", ()] == -1
    assert values["penstock_lag_records", ()] == 0
    assert values["penstock_processes", (("role", "gateway"),)] == 1
    assert values["penstock_process_resident_bytes", (("role", "gateway"),)] > 1e6


def test_positions_of_generators_are_shown(values: Values) -> None:
    """Each generator has its position, and whether it runs."""
    assert values["penstock_generator_atoms", (("generator", "ticks"),)] == 12
    assert values["penstock_generator_running", (("generator", "ticks"),)] == 0


def test_manual_names_every_metric(shown: str) -> None:
    """The manual's table has every metric of the page with its type and its labels."""
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows()}
    real = {}
    for family in text_string_to_metric_families(shown):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        real[name] = (family.type, tuple(sorted(labels - {"le"})))
        assert family.documentation.endswith("."), f"{name} has a help text"
    only_sometimes = {
        "penstock_view_epoch": ("gauge", ()),
        **{f"penstock_{name}": ("gauge", ("host",)) for name in OF_A_STORE},
        "penstock_store_request_seconds": ("histogram", ("kind",)),
        "penstock_store_bytes_total": ("counter", ("kind",)),
        "penstock_store_failures_total": ("counter", ("kind",)),
        "penstock_captures_state": ("gauge", ("state", "stream")),
        "penstock_captures_lag_seconds": ("gauge", ("stream",)),
        "penstock_captures_retained_bytes": ("gauge", ("stream",)),
        "penstock_captures_rows_total": ("counter", ("stream",)),
        "penstock_captures_unfit_rows_total": ("counter", ("stream",)),
    }
    assert told == real | only_sometimes


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall(PAGE)


def test_clearing_begins_anew(tmp_path: Path) -> None:
    """Counts of earlier runs are gone after `clear`, which works in an empty folder too."""
    measures.clear(tmp_path)
    ran(DRIVER, tmp_path)
    assert "penstock_aborts_total 2.0" in ran(SHOW, tmp_path)
    measures.clear(tmp_path)
    assert "penstock_aborts_total" not in ran(SHOW, tmp_path)


def test_forgetting_keeps_what_lives_and_what_was_counted(tmp_path: Path) -> None:
    """Only gauges of processes that have ended are dropped."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kept = [f"gauge_livesum_{os.getpid()}.db", f"counter_{gone.pid}.db"]
    for name in [*kept, f"gauge_livesum_{gone.pid}.db"]:
        (tmp_path / name).touch()
    measures.forget_dead(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_full_disk_does_not_end_a_process_that_counts(tmp_path: Path) -> None:
    """Its files have disk for all of their bytes; numbers that need more are in its memory."""
    assert ran(FULL, tmp_path) == "[True] 1.0 1.0\n"
