"""The figures of the Overview: latency of now and before, pauses, and what is missing before the first start."""

import re
from pathlib import Path

from penstock.console.health import Health, Latency, health_in
from penstock.console.routes import load_assets
from penstock.engine.failure import REPEATABLE
from penstock.log.clock import wall_clock_us
from penstock.orders.pauses import PauseFile
from penstock.process.load_history import BUCKETS, LoadSample, LoadWriter


def counts(bucket: int, requests: int) -> list[int]:
    return [requests if at == bucket else 0 for at in range(BUCKETS)]


def test_latency_of_now_is_apart_from_the_hour_before(tmp_path: Path) -> None:
    """The samples of the last five minutes are in one figure, those of the hour before them in the other."""
    now_us = wall_clock_us()
    writer = LoadWriter(tmp_path)
    for ago_s, bucket, requests in ((4_000, 9, 50), (3_000, 2, 30), (400, 2, 20), (60, 8, 7)):
        writer.take(LoadSample(now_us - ago_s * 1_000_000, 0, counts(bucket, requests)))
    found = health_in(tmp_path)
    assert (found.latency.requests, found.latency_before.requests) == (7, 50)
    assert found.latency.p95_ms is not None
    assert found.latency_before.p95_ms is not None
    assert found.latency.p95_ms > found.latency_before.p95_ms


def test_nothing_is_invented_before_the_first_start(tmp_path: Path) -> None:
    """Without samples, a view and a deployment, each figure says that it is not known; pauses are named."""
    PauseFile(tmp_path).pause("Item", "ann", "stocktaking", 1)
    nothing = Latency(0, None, None)
    assert health_in(tmp_path) == Health(300, nothing, nothing, None, None, ["Item"], None)


def test_console_knows_the_codes_of_undeclared_failures() -> None:
    """The filter *failed* has exactly the codes that may be tried again."""
    text = load_assets()["request_filter.js"].content.decode()
    found = re.search(r"export const FAILURES = \[(.*?)\]", text, re.DOTALL)
    assert found is not None
    assert set(re.findall(r'"([\w-]+)"', found[1])) == REPEATABLE
