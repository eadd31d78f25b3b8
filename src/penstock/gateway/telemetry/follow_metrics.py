"""`FollowMetrics`: the followers of streams at a gateway, the atoms that they got, and their lag."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.process.metrics import MetricsRegistry


@dataclass(slots=True, eq=False)
class Follower:
    """A connection that follows a stream.

    Attributes:
        next: The number of the first atom that the follower has not taken.
    """

    stream: str
    next: int


class FollowMetrics:
    """Counts the followers by stream; the application bounds the number of streams."""

    def __init__(self, registry: MetricsRegistry) -> None:
        """Add the metrics to the registry of a gateway."""
        self._following: dict[Follower, None] = {}
        self._greatest: Counter[str] = Counter()
        self._followers = registry.gauge(
            "penstock_stream_followers",
            "Connections that follow a stream and wait for its atoms.",
            "stream",
        )
        self._sent = registry.counter(
            "penstock_stream_atoms_sent", "Atoms that gateways sent to followers.", "stream"
        )
        self._lag = registry.gauge(
            "penstock_stream_lag_atoms",
            "Atoms that the follower which was served last had still to get.",
            "stream",
            mode="livemax",
        )

    @contextmanager
    def following(self, stream: str, start: int) -> Iterator[Follower]:
        """Count a follower while the block runs; the block says which atom is its next one."""
        follower = Follower(stream, start)
        self._following[follower] = None
        open_followers = self._followers.labels(stream)
        open_followers.inc()
        try:
            yield follower
        finally:
            del self._following[follower]
            open_followers.dec()

    def lags(self, published: Mapping[str, int], *, begin: bool) -> dict[str, int]:
        """Return the greatest lag of a follower by stream in this step; a stream without one is left out."""
        greatest = self._greatest.copy()
        if begin:
            self._greatest.clear()
        for follower in self._following:
            lag = published.get(follower.stream, 0) - follower.next
            greatest[follower.stream] = max(lag, greatest[follower.stream])
        return dict(+greatest)

    def sent(self, stream: str, atoms: int, lag: int) -> None:
        """Count atoms that were sent to a follower.

        Args:
            lag: The number of atoms that the follower has still to get.
        """
        self._sent.labels(stream).inc(atoms)
        self._lag.labels(stream).set(lag)
        self._greatest[stream] = max(lag, self._greatest[stream])
