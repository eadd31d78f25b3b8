"""The load of the last hour, in steps of five seconds: answered requests, their latency, throughput, lag.

Each gateway appends a sample per step to a file of its own below `DATA/run/load`. A reader adds the
samples of all gateways, so that every gateway gives the same answer, and a restart loses nothing. The
files hold at most two hours, and files of ended gateways are removed. Nothing depends on them: a
sample that cannot be written is lost with a warning, and a torn line is skipped.
"""

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Final

import msgspec

from penstock.files.layout import RUN
from penstock.process.metrics import LATENCY_S, LATENCY_S_LONG

_log = logging.getLogger(__name__)

FOLDER: Final = "load"
STEP_US: Final = 5_000_000
KEPT_S: Final = 3_600
BOUNDS_S: Final = LATENCY_S + LATENCY_S_LONG
"""Upper bounds of the latency buckets in seconds; a last bucket holds the slower requests."""

BUCKETS: Final = len(BOUNDS_S) + 1
_KEPT: Final = KEPT_S * 1_000_000 // STEP_US


class StreamSample(msgspec.Struct, frozen=True, array_like=True):
    """The figures of the streams in one step; a workflow or a stream without lag is left out.

    Attributes:
        workflows: The atoms of its source that each workflow had still to take.
        followers: The atoms that the slowest follower of each stream had still to get.
        generated: The atoms of each generator that were on its stream, since it began.
    """

    workflows: Mapping[str, int] = {}
    followers: Mapping[str, int] = {}
    generated: Mapping[str, int] = {}


class LoadSample(msgspec.Struct, frozen=True, array_like=True):
    """The figures of one gateway in one step.

    Attributes:
        time_us: The end of the step, in microseconds since the Unix epoch.
        lag: The requests in the log that no epoch had committed.
        counts: The number of answered requests in each latency bucket, shape (BUCKETS,).
        processed: The requests in the log whose epoch is committed, since the log began; None in
            samples of an older version.
        streams: The figures of the application's streams; None if they are not known.
    """

    time_us: int
    lag: int
    counts: Sequence[int]
    processed: int | None = None
    streams: StreamSample | None = None


class LoadPoint(msgspec.Struct, frozen=True):
    """One step of all gateways; a latency is null if no request was answered."""

    time_us: Annotated[int, msgspec.Meta(description="The end of the step.")]
    time: Annotated[datetime, msgspec.Meta(description="The end of the step.")]
    requests: Annotated[int, msgspec.Meta(description="Answered calls, sends and entity reads.")]
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    lag: Annotated[int, msgspec.Meta(description="Requests that no epoch had committed.")]
    processed: Annotated[
        int | None,
        msgspec.Meta(
            description="Requests whose epoch was committed since the point before; "
            "null if that is not known."
        ),
    ]
    workflow_lags: Annotated[
        Mapping[str, int] | None,
        msgspec.Meta(
            description="Atoms that each workflow had still to take; of those behind their source."
        ),
    ]
    follower_lags: Annotated[
        Mapping[str, int] | None,
        msgspec.Meta(
            description="By stream, atoms that its slowest follower had still to get, if any."
        ),
    ]
    generated: Annotated[
        Mapping[str, int] | None,
        msgspec.Meta(description="Atoms of each generator since the point before."),
    ]


class LoadWriter:
    """Appends the samples of one gateway."""

    def __init__(self, data: Path) -> None:
        """Write below a data directory; remove the files that are too old to be read."""
        self._folder = data / RUN / FOLDER
        self._path = self._folder / f"{os.getpid()}-{time.time_ns()}.jsonl"
        self._newest: deque[bytes] = deque(maxlen=_KEPT)
        self._lines = 0
        self._failed = False
        oldest_s = time.time() - KEPT_S
        for path in self._folder.glob("*.jsonl"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest_s:
                    path.unlink()

    def take(self, sample: LoadSample) -> None:
        """Append a sample; a disk that takes none costs the sample and nothing else."""
        line = msgspec.json.encode(sample) + b"\n"
        self._newest.append(line)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._lines >= 2 * _KEPT:
                self._shorten()
            else:
                # The newline in front parts the line from one that a full disk has torn.
                with self._path.open("ab") as file:
                    file.write(b"\n" + line)
                self._lines += 1
            self._failed = False
        except OSError as error:
            if not self._failed:
                _log.warning("samples of the load are not written", extra={"cause": str(error)})
            self._failed = True

    def _shorten(self) -> None:
        """Replace the file by one with the newest samples."""
        shorter = self._path.with_suffix(".new")
        shorter.write_bytes(b"".join(self._newest))
        shorter.replace(self._path)
        self._lines = len(self._newest)


def read_samples(data: Path, since_us: int) -> Iterator[LoadSample]:
    """Yield the samples of all gateways since a time, in no order across gateways."""
    for path in sorted((data / RUN / FOLDER).glob("*.jsonl")):
        try:
            lines = path.read_bytes().splitlines()
        except OSError:
            continue  # removed meanwhile
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                sample = msgspec.json.decode(line, type=LoadSample)
                if sample.time_us >= since_us and len(sample.counts) == BUCKETS:
                    yield sample


def points_of(samples: Iterable[LoadSample]) -> list[LoadPoint]:
    """Return one point for each step: counts are added over gateways, and the greatest lag counts."""
    steps: dict[int, LoadSample] = {}
    for sample in samples:
        end_us = -(-sample.time_us // STEP_US) * STEP_US
        other = steps.get(end_us)
        if other is not None:
            sample = _together(sample, other)
        steps[end_us] = sample
    points = []
    before: LoadSample | None = None
    for end_us in sorted(steps):
        points.append(_point(end_us, steps[end_us], before))
        before = steps[end_us]
    return points


def percentile_ms(counts: Sequence[int], share: float) -> float | None:
    """Return a percentile, interpolated in its bucket; None without requests.

    Args:
        counts: Requests in each bucket, shape (BUCKETS,).
        share: The share of requests that were at least this fast, such as 0.95.

    Returns:
        Milliseconds. A request that is slower than all bounds counts as the greatest bound.
    """
    total = sum(counts)
    if total == 0:
        return None
    wanted = share * total
    low_s, before = 0.0, 0
    for bound_s, reached in zip(BOUNDS_S, accumulate(counts), strict=False):
        if reached >= wanted:
            part = (wanted - before) / max(1, reached - before)
            return round((low_s + (bound_s - low_s) * part) * 1_000, 3)
        low_s, before = bound_s, reached
    return BOUNDS_S[-1] * 1_000


def _together(first: LoadSample, second: LoadSample) -> LoadSample:
    """Return the sample of two gateways in the same step."""
    samples = (first, second)
    known = [sample.processed for sample in samples if sample.processed is not None]
    streams = [sample.streams for sample in samples if sample.streams is not None]
    return LoadSample(
        first.time_us,
        max(first.lag, second.lag),
        [count + more for count, more in zip(first.counts, second.counts, strict=True)],
        max(known) if known else None,
        StreamSample(
            _greatest(step.workflows for step in streams),
            _greatest(step.followers for step in streams),
            _greatest(step.generated for step in streams),
        )
        if streams
        else None,
    )


def _greatest(mappings: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the greatest number of each name."""
    greatest: dict[str, int] = {}
    for mapping in mappings:
        for name, number in mapping.items():
            greatest[name] = max(number, greatest.get(name, number))
    return greatest


def _generated(sample: LoadSample, before: LoadSample | None) -> dict[str, int] | None:
    """Return the atoms of each generator since the step before; one that was not known then is left out."""
    if sample.streams is None or before is None or before.streams is None:
        return None
    earlier = before.streams.generated
    return {
        name: atoms - earlier[name]
        for name, atoms in sample.streams.generated.items()
        if atoms > earlier.get(name, atoms)
    }


def _point(end_us: int, sample: LoadSample, earlier: LoadSample | None) -> LoadPoint:
    """Return the point of a step, after the step before.

    After a restore from a backup, `processed` may be less than before.
    """
    now, streams = sample.processed, sample.streams
    before = None if earlier is None else earlier.processed
    return LoadPoint(
        time_us=end_us,
        time=datetime.fromtimestamp(end_us / 1_000_000, UTC),
        requests=sum(sample.counts),
        p50_ms=percentile_ms(sample.counts, 0.5),
        p95_ms=percentile_ms(sample.counts, 0.95),
        p99_ms=percentile_ms(sample.counts, 0.99),
        lag=sample.lag,
        processed=None if before is None or now is None or now < before else now - before,
        workflow_lags=None if streams is None else streams.workflows,
        follower_lags=None if streams is None else streams.followers,
        generated=_generated(sample, earlier),
    )
