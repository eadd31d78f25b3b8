"""Samples the load of one gateway every five seconds, and returns the load of the last hour.

The samples of all gateways are on disk (`process.load_history`). The memory of this module does not
grow: it holds the counts of the current step.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError
from penstock.process.load_history import (
    BOUNDS_S,
    BUCKETS,
    STEP_US,
    LoadPoint,
    LoadSample,
    LoadWriter,
    points_of,
    read_samples,
)

_log = logging.getLogger(__name__)

PIPELINED: Final = "pipeline"
"""The kind of the requests of pipelined connections."""

_TIMED: Final = frozenset({"call", "append", "read", "send", "route", "entities", PIPELINED})
"""The kinds of routes whose latency counts: those that an application's callers use."""


class LoadSampler:
    """Counts the responses of one gateway, and writes a sample after each step."""

    def __init__(
        self, data: Path, accepted: Callable[[], int], processed: Callable[[], int]
    ) -> None:
        """Sample the load of an application.

        Args:
            data: The data directory, which takes the samples.
            accepted: Returns the number of requests in the log, since it began.
            processed: Returns the number of those whose epoch is committed.
        """
        self._data = data
        self._accepted = accepted
        self._processed = processed
        self._writer = LoadWriter(data)
        self._counts = [0] * BUCKETS
        self._task: asyncio.Task[None] | None = None

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
        now_us = time.time_ns() // 1_000
        return await asyncio.to_thread(self._read, list(self._counts), now_us, seconds)

    def _read(self, counts: list[int], now_us: int, seconds: float) -> list[LoadPoint]:
        since_us = now_us - int(seconds * 1_000_000)
        # One step more: the first point counts the requests since the point before.
        earlier = read_samples(self._data, since_us - STEP_US)
        points = points_of([*earlier, self._sample(now_us, counts)])
        return [point for point in points if point.time_us >= since_us]

    def _sample(self, time_us: int, counts: list[int]) -> LoadSample:
        processed = (
            self._processed()
        )  # first, so that the log holds every request that is processed
        return LoadSample(time_us, self._accepted() - processed, counts, processed)

    async def _run(self) -> None:
        while True:
            end_us = (time.time_ns() // 1_000 // STEP_US + 1) * STEP_US
            await asyncio.sleep(max(0.0, end_us / 1_000_000 - time.time()))
            counts, self._counts = self._counts, [0] * BUCKETS
            await asyncio.to_thread(self._write, end_us, counts)

    def _write(self, end_us: int, counts: list[int]) -> None:
        try:
            sample = self._sample(end_us, counts)
        except (
            PenstockError
        ) as error:  # the next step tries again; callers see the error themselves
            _log.debug("a sample of the load is missing: %s", error)
            return
        self._writer.take(sample)
