"""The load of the last hour: samples of several gateways, on disk with any damage."""

import os
import time
from pathlib import Path

import pytest

from penstock.files.layout import RUN
from penstock.process import load_history
from penstock.process.load_history import (
    BOUNDS_S,
    BUCKETS,
    FOLDER,
    STEP_US,
    LoadSample,
    LoadWriter,
    StreamSample,
    percentile_ms,
    points_of,
    read_samples,
)


def sample(step: int, lag: int = 0, **counts: int) -> LoadSample:
    """Return a sample of a step with counts by bucket, `b3=7`."""
    row = [counts.get(f"b{place}", 0) for place in range(BUCKETS)]
    return LoadSample(step * STEP_US, lag, row)


def test_samples_of_gateways_are_added_up_by_step(tmp_path: Path) -> None:
    """Counts of one step are added, the greatest lag counts, and a reader sees the asked time only."""
    first, second = LoadWriter(tmp_path), LoadWriter(tmp_path)
    for writer, taken in (
        (first, sample(1, b0=9)),
        (first, sample(2, lag=5, b0=1)),
        (second, sample(2, lag=7, b0=2, b1=1)),
        (second, sample(3)),
    ):
        writer.take(taken)
    points = points_of(read_samples(tmp_path, 2 * STEP_US))
    assert [(one.time_us // STEP_US, one.requests, one.lag) for one in points] == [
        (2, 4, 7),
        (3, 0, 0),
    ]
    assert points[0].time.timestamp() * 1_000_000 == 2 * STEP_US
    assert points[1].p50_ms is None


def test_unfinished_step_is_a_point_of_its_own() -> None:
    """A sample in the middle of a step belongs to the end of that step."""
    points = points_of([sample(4, b0=1), LoadSample(4 * STEP_US + 1, 2, [1] * BUCKETS)])
    assert [(one.time_us // STEP_US, one.requests) for one in points] == [(4, 1), (5, BUCKETS)]


def test_processed_requests_are_counted_from_point_to_point() -> None:
    """The largest number of all gateways counts; a first point and a restored log have no number."""
    empty = [0] * BUCKETS
    numbers = ((1, 100), (1, 90), (2, 130), (4, 150), (5, None), (6, 20), (7, 25))
    points = points_of([LoadSample(step * STEP_US, 0, empty, number) for step, number in numbers])
    assert [point.processed for point in points] == [None, 30, 20, None, None, 5]
    restored = [LoadSample(step * STEP_US, 0, empty, 10 - step) for step in (1, 2)]
    assert [point.processed for point in points_of(restored)] == [None, None]


def test_streams_of_gateways_are_one_point() -> None:
    """The greatest lag counts; a generator counts from the step before; a sample without streams says nothing."""
    empty = [0] * BUCKETS
    steps = (
        (1, StreamSample({"desk": 4}, {"letters": 2}, {"ticks": 10})),
        (1, StreamSample({"desk": 6, "late": 1}, {}, {"ticks": 9})),
        (2, StreamSample({}, {}, {"ticks": 13, "new": 5})),
        (3, None),
        (4, StreamSample({}, {}, {"ticks": 20})),
    )
    points = points_of([LoadSample(step * STEP_US, 0, empty, 0, told) for step, told in steps])
    assert [point.workflow_lags for point in points] == [{"desk": 6, "late": 1}, {}, None, {}]
    assert [point.follower_lags for point in points] == [{"letters": 2}, {}, None, {}]
    assert [point.generated for point in points] == [None, {"ticks": 3}, None, None]


def test_percentile_lies_in_its_bucket() -> None:
    """Of 100 requests, 90 in the second bucket and 10 in the fourth, p50 and p95 are in these."""
    counts = [0, 90, 0, 10] + [0] * (BUCKETS - 4)
    milliseconds = [bound * 1_000 for bound in BOUNDS_S]
    p50, p95 = percentile_ms(counts, 0.5), percentile_ms(counts, 0.95)
    assert p50 is not None
    assert p95 is not None
    assert milliseconds[0] < p50 <= milliseconds[1]
    assert milliseconds[2] < p95 <= milliseconds[3]
    assert percentile_ms([0] * (BUCKETS - 1) + [3], 0.5) == milliseconds[-1]
    assert percentile_ms([0] * BUCKETS, 0.5) is None


def test_damaged_lines_are_skipped(tmp_path: Path) -> None:
    """Torn lines, other values and counts of another version cost only themselves."""
    writer = LoadWriter(tmp_path)
    writer.take(sample(1, b0=1))
    (path,) = (tmp_path / RUN / FOLDER).glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'[5000000, 0, [1,2]]\n{"a": 1}\n\xff\xfe\n[5000')
    writer.take(sample(2, b0=1))
    assert [one.time_us // STEP_US for one in read_samples(tmp_path, 0)] == [1, 2]


def test_file_never_holds_more_than_two_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a file has twice the samples of an hour, the older half is dropped."""
    monkeypatch.setattr(load_history, "_KEPT", 10)
    writer = LoadWriter(tmp_path)
    sizes = []
    for step in range(1, 100):
        writer.take(sample(step))
        sizes.append(len(list(read_samples(tmp_path, 0))))
        assert max(one.time_us for one in read_samples(tmp_path, 0)) == step * STEP_US
    assert max(sizes) == 20
    assert min(sizes[20:]) == 10


def test_files_of_ended_gateways_are_removed_after_an_hour(tmp_path: Path) -> None:
    """A new gateway removes what no reader reads any more, and keeps the last hour of others."""
    old, new = LoadWriter(tmp_path), LoadWriter(tmp_path)
    old.take(sample(1))
    (path,) = (tmp_path / RUN / FOLDER).glob("*.jsonl")
    long_ago = time.time() - load_history.KEPT_S - 60
    os.utime(path, (long_ago, long_ago))
    new.take(sample(2))
    LoadWriter(tmp_path)
    assert [one.time_us // STEP_US for one in read_samples(tmp_path, 0)] == [2]


def test_disk_that_takes_nothing_costs_the_sample_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Failures are said once, and sampling goes on when the disk takes samples again."""
    (tmp_path / RUN).write_text("no folder")
    writer = LoadWriter(tmp_path)
    writer.take(sample(1))
    writer.take(sample(2))
    assert len(caplog.records) == 1
    (tmp_path / RUN).unlink()
    writer.take(sample(3))
    assert [one.time_us // STEP_US for one in read_samples(tmp_path, 0)] == [3]
