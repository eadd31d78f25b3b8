"""`ResponseCount`: the responses of one kind and status, counted in memory until they are added to the metrics."""

from bisect import bisect_left
from typing import TYPE_CHECKING

from penstock.process.metrics import LATENCY_S, LATENCY_S_LONG

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

_BOUNDS_S = LATENCY_S + LATENCY_S_LONG


class ResponseCount:
    """Counts responses and their times; `add` takes less than a microsecond."""

    def __init__(self, responses: "Counter", seconds: "Histogram") -> None:
        """Count for two series; the histogram has the buckets of latencies."""
        self._responses = responses
        self._histogram = seconds
        self._seconds = 0.0
        self._buckets = [0] * (len(_BOUNDS_S) + 1)

    def add(self, seconds: float) -> None:
        """Count a response."""
        self._seconds += seconds
        self._buckets[bisect_left(_BOUNDS_S, seconds)] += 1

    def flush(self) -> None:
        """Add the counts to the series, and begin at 0."""
        number = sum(self._buckets)
        if not number:
            return
        self._responses.inc(number)
        # `Histogram.observe` takes a single value; its own sums take many.
        self._histogram._sum.inc(self._seconds)  # noqa: SLF001 -- no public way for many values
        buckets = self._histogram._buckets  # noqa: SLF001 -- as above
        for bucket, count in zip(buckets, self._buckets, strict=True):
            if count:
                bucket.inc(count)
        self._seconds, self._buckets = 0.0, [0] * len(self._buckets)
