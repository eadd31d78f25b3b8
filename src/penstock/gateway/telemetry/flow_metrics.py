"""`FlowMetrics`: the refusals of a gateway's admission, and its requests under way."""

from typing import TYPE_CHECKING

from penstock.process.metrics import UNDER_WAY

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class FlowMetrics:
    """Counts refusals and requests under way."""

    def __init__(self, registry: "CollectorRegistry") -> None:
        """Add the metrics to the registry of a gateway."""
        from prometheus_client import Counter, Gauge  # noqa: PLC0415 -- after its variable is set

        self._under_way = Gauge(
            UNDER_WAY,
            "Admitted requests that no epoch has committed.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._queued = Gauge(
            "penstock_requests_queued",
            "Admitted requests that wait for the turn of their principal.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._refused = Counter(
            "penstock_requests_refused",
            "Requests that were not admitted, by reason, and by the limit or the pause.",
            ["reason", "target"],
            registry=registry,
        )

    def under_way(self, count: int, queued: int) -> None:
        """Set the number of requests under way, and of those that wait for their turn."""
        self._under_way.set(count)
        self._queued.set(queued)

    def refused(self, reason: str, target: str) -> None:
        """Count a request that was not admitted; the declared limits and pauses bound the targets."""
        self._refused.labels(reason, target).inc()
