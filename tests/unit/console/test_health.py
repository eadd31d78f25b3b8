"""The figures of the Overview: latency of now and before, pauses, and what is missing before the first start."""

import re
import time
from pathlib import Path

import pytest

from penstock.console import health
from penstock.console.health import Health, HealthReader, Latency, Outcomes
from penstock.console.routes import load_assets
from penstock.engine.failure import REPEATABLE
from penstock.log.clock import wall_clock_us
from penstock.orders.pauses import PauseFile
from penstock.process.load_history import BUCKETS, LoadSample, LoadWriter
from penstock.sql_view.failed_requests import FailedRequests

NO_FAILED = FailedRequests(0, [], has_more=False)


def counts(bucket: int, requests: int) -> list[int]:
    return [requests if at == bucket else 0 for at in range(BUCKETS)]


def test_latency_of_now_is_apart_from_the_hour_before(tmp_path: Path) -> None:
    """The samples of the last five minutes are in one figure, those of the hour before them in the other."""
    now_us = wall_clock_us()
    writer = LoadWriter(tmp_path)
    for ago_s, bucket, requests in ((4_000, 9, 50), (3_000, 2, 30), (400, 2, 20), (60, 8, 7)):
        writer.take(LoadSample(now_us - ago_s * 1_000_000, 0, counts(bucket, requests)))
    found = HealthReader(tmp_path).now()
    assert (found.latency.requests, found.latency_before.requests) == (7, 50)
    assert found.latency.p95_ms is not None
    assert found.latency_before.p95_ms is not None
    assert found.latency.p95_ms > found.latency_before.p95_ms


def test_nothing_is_invented_before_the_first_start(tmp_path: Path) -> None:
    """Without samples, a view and a deployment, each figure says that it is not known; pauses are named."""
    PauseFile(tmp_path).pause("Item", "ann", "stocktaking", 1)
    nothing = Latency(0, None, None)
    assert HealthReader(tmp_path).now() == Health(300, nothing, nothing, None, None, ["Item"], None)


def test_costly_counts_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of 2 s serves all pages for the next 100 s, and a moment later it is made again."""
    clock_s, counts_made = [1_000.0], [0]

    def slow(*_: object) -> Outcomes:
        clock_s[0] += 2.0
        counts_made[0] += 1
        return Outcomes(counts_made[0], 0, 0, 0)

    monkeypatch.setattr(health, "failed_in", lambda *_: NO_FAILED)
    monkeypatch.setattr(health, "_outcomes", slow)
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    reader = HealthReader(tmp_path)
    seen = []
    for later_s in (0.0, 0.0, 99.0, 2.0):
        clock_s[0] += later_s
        outcomes = reader.now().outcomes
        assert outcomes is not None
        seen.append(outcomes.requests)
    assert seen == [1, 1, 1, 2]


def test_console_knows_the_codes_of_undeclared_failures() -> None:
    """The filter *failed* has exactly the codes that may be tried again."""
    text = load_assets()["request_filter.js"].content.decode()
    found = re.search(r"export const FAILURES = \[(.*?)\]", text, re.DOTALL)
    assert found is not None
    assert set(re.findall(r'"([\w-]+)"', found[1])) == REPEATABLE
