"""Progress and lag, as Spark's listener and the journal tell them.

Spark reports after each batch what its own bookkeeping took; the log's end and the journal's
position say how far behind the runtime is. Listening costs about a millisecond an epoch, in a
thread of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.base.ids import Epoch


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a runtime stands.

    Attributes:
        epoch: The newest committed epoch; -1 before the first.
        lag: Records in the log that no epoch has committed yet.
        batch: Spark's newest finished batch; -1 before the first.
        spark_ms: What Spark's phases of that batch took: `triggerExecution` is the whole, `addBatch`
            holds the epoch, `walCommit` and `commitOffsets` are Spark's own checkpoint.
        restarts: How often the query failed and was started again.
    """

    epoch: Epoch
    lag: int
    batch: int = -1
    spark_ms: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0


class BatchListener(StreamingQueryListener):
    """Remembers the newest batch of Spark's and its durations, and counts queries."""

    def __init__(self) -> None:
        """Begin before the first batch."""
        self.batch = -1
        self.spark_ms: dict[str, int] = {}
        self.started = 0
        self.failed = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 -- Spark's name
        """Count a start."""
        self.started += 1

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 -- Spark's name
        """Remember a finished batch."""
        self.batch = event.progress.batchId
        self.spark_ms = dict(event.progress.durationMs)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 -- Spark's name
        """Do nothing: no batch, no news."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 -- Spark's name
        """Count a failure; the supervisor learns of it by itself."""
        if event.exception is not None:
            self.failed += 1
