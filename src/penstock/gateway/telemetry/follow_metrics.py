"""`FollowMetrics`: the followers of streams at a gateway, the atoms that they got, and their lag."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class FollowMetrics:
    """Counts the followers by stream; the application bounds the number of streams."""

    def __init__(self, registry: "CollectorRegistry") -> None:
        """Add the metrics to the registry of a gateway."""
        from prometheus_client import Counter as Count  # noqa: PLC0415 -- after its variable is set
        from prometheus_client import Gauge  # noqa: PLC0415

        self._open: Counter[str] = Counter()
        self._followers = Gauge(
            "penstock_stream_followers",
            "Connections that follow a stream and wait for its atoms.",
            ["stream"],
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._sent = Count(
            "penstock_stream_atoms_sent",
            "Atoms that gateways sent to followers.",
            ["stream"],
            registry=registry,
        )
        self._lag = Gauge(
            "penstock_stream_lag_atoms",
            "Atoms that the follower which was served last had still to get.",
            ["stream"],
            multiprocess_mode="livemax",
            registry=registry,
        )

    @contextmanager
    def following(self, stream: str) -> Iterator[None]:
        """Count a follower while the block runs."""
        self._change(stream, 1)
        try:
            yield
        finally:
            self._change(stream, -1)

    def sent(self, stream: str, atoms: int, lag: int) -> None:
        """Count atoms that were sent to a follower.

        Args:
            stream: The name of the stream.
            atoms: The number of atoms.
            lag: The number of atoms that the follower has still to get.
        """
        self._sent.labels(stream).inc(atoms)
        self._lag.labels(stream).set(lag)

    def _change(self, stream: str, difference: int) -> None:
        self._open[stream] += difference
        self._followers.labels(stream).set(self._open[stream])
