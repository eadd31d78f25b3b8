"""Samples the load of one gateway every five seconds, and returns the load of the last hour.

The samples of all gateways are on disk (`process.load_history`). The memory of this module does not
grow: it holds the counts of the current step.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.errors import PenstockError
from penstock.gateway.telemetry.follow_metrics import FollowMetrics
from penstock.journal.tail import AsyncJournalTail
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.orders.paused_workflows import workflow_lags
from penstock.process.config import Config
from penstock.process.generator_progress import read_progress
from penstock.process.load_history import (
    BOUNDS_S,
    BUCKETS,
    STEP_US,
    LoadPoint,
    LoadSample,
    LoadWriter,
    StreamSample,
    points_of,
    read_samples,
)


class StreamSampler:
    """Looks at the streams of one application.

    Args:
        tail: The journal tail, which knows the atoms of each stream.
    """

    def __init__(
        self, app: App, config: Config, followers: FollowMetrics, tail: AsyncJournalTail
    ) -> None:
        self.data = config.data
        self._app = app
        self._config = config
        self._followers = followers
        self._tail = tail

    def serve(self, app: App) -> None:
        """Look at the streams of another version of the application."""
        self._app = app

    def followers(self, *, begin: bool) -> dict[str, int]:
        """Return the greatest lag of a follower by stream in this step; `begin` begins a new one.

        Call this in the event loop.
        """
        return self._followers.lags(self._tail.atoms, begin=begin)

    def sample(self, followers: Mapping[str, int]) -> StreamSample | None:
        """Return the sample with these followers; None for an application without streams. It reads files."""
        topology = self._app.topology
        if not topology.streams:
            return None
        try:
            lags = workflow_lags(self._app, self._config)
        except PenstockError as error:
            _log.debug("a sample of the streams is missing: %s", error)
            return None
        progress = read_progress(self.data) if topology.generators else []
        return StreamSample(
            {name: lag for name, lag in lags.items() if lag > 0},
            followers,
            {generator.generator: generator.atoms for generator in progress},
        )


_log: Final = logging.getLogger(__name__)

PIPELINED: Final = "pipeline"
"""The kind of the requests of pipelined connections."""

_TIMED: Final = frozenset({"call", "append", "read", "send", "route", "entities", PIPELINED})
"""The kinds of routes whose latency counts: those that an application's callers use."""


class _Step(NamedTuple):
    """The facts of a step that the event loop knows.

    Attributes:
        end_us: The end of the step, in microseconds since the Unix epoch.
        counts: The number of answered requests in each latency bucket.
        followers: The greatest lag of a follower, by stream.
    """

    end_us: int
    counts: list[int]
    followers: dict[str, int]


class Backlog(NamedTuple):
    """The records in the log that wait for an epoch.

    Attributes:
        records: Their number.
        standing_s: How long no epoch has taken any of them; 0 without records.
    """

    records: int
    standing_s: float


class LoadSampler:
    """Counts the responses of one gateway, and writes a sample after each step."""

    def __init__(
        self,
        data: Path,
        accepted: Callable[[], int],
        processed: Callable[[], int],
        streams: StreamSampler | None = None,
    ) -> None:
        """Sample the load of an application.

        Args:
            accepted: Returns the number of requests in the log, since it began.
            processed: Returns the number of those whose epoch is committed.
            streams: Looks at the streams of the application; None: they are not sampled.
        """
        self._data = data
        self._accepted = accepted
        self._processed = processed
        self.streams = streams
        self._writer = LoadWriter(data)
        self._counts = [0] * BUCKETS
        self._task: asyncio.Task[None] | None = None
        self._lag = 0
        self._moved: tuple[int, float] = (
            -1,
            time.monotonic(),
        )  # the processed requests, and since when

    def observe(self, route_kind: str, seconds: float) -> None:
        """Count a response by the kind of its route and its time."""
        if route_kind in _TIMED:
            self._counts[bisect_left(BOUNDS_S, seconds)] += 1

    def start(self) -> None:
        """Begin to sample in the running event loop."""
        self._task = asyncio.create_task(self._run(), name="load sampler")

    def close(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()

    async def recent(self, seconds: float) -> list[LoadPoint]:
        """Return the points of the last seconds; the last one is of the current step."""
        now_us = wall_clock_us()
        step = _Step(now_us, list(self._counts), self._followers(begin=False))
        return await asyncio.to_thread(self._read, step, seconds)

    async def backlog(self) -> Backlog:
        """Return the records that wait now."""
        _, lag = await asyncio.to_thread(self._looked)
        return Backlog(lag, time.monotonic() - self._moved[1] if lag else 0.0)

    def _looked(self) -> tuple[int, int]:
        """Return the number of processed requests, and of those that wait."""
        processed = (
            self._processed()
        )  # first, so that the log holds every request that is processed
        lag = max(0, self._accepted() - processed)
        if not (lag and self._lag) or processed != self._moved[0]:
            self._moved = processed, time.monotonic()
        self._lag = lag
        return processed, lag

    def _read(self, step: _Step, seconds: float) -> list[LoadPoint]:
        since_us = step.end_us - int(seconds * 1_000_000)
        # One step more: the first point counts the requests since the point before.
        earlier = read_samples(self._data, since_us - STEP_US)
        points = points_of([*earlier, self._sample(step)])
        return [point for point in points if point.time_us >= since_us]

    def _sample(self, step: _Step) -> LoadSample:
        processed, lag = self._looked()
        streams = None if self.streams is None else self.streams.sample(step.followers)
        return LoadSample(step.end_us, lag, step.counts, processed, streams)

    def _followers(self, *, begin: bool) -> dict[str, int]:
        return {} if self.streams is None else self.streams.followers(begin=begin)

    async def _run(self) -> None:
        while True:
            end_us = (wall_clock_us() // STEP_US + 1) * STEP_US
            await asyncio.sleep(max(0.0, end_us / 1_000_000 - time.time()))
            counts, self._counts = self._counts, [0] * BUCKETS
            step = _Step(end_us, counts, self._followers(begin=True))
            await asyncio.to_thread(self._write, step)

    def _write(self, step: _Step) -> None:
        try:
            sample = self._sample(step)
        except (
            PenstockError
        ) as error:  # the next step tries again; callers see the error themselves
            _log.debug("a sample of the load is missing: %s", error)
            return
        self._writer.take(sample)
