"""What a runtime says of each epoch: for progress displays, benchmarks and tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.ids import Epoch


@dataclass(frozen=True, slots=True)
class EpochReport:
    """One committed epoch.

    Attributes:
        epoch: Its number.
        records: Requests that it processed.
        aborts: Those that were undone.
        rounds: How often tasks executed; 1 where nothing was in conflict.
        reran: Transactions that ran more than once.
        tasks: Tasks of the first round.
        phases_ms: Milliseconds in the driver: `read`, `round1`, `round2` …, `write`, `commit`.
            What the epoch took beside these (Spark's own bookkeeping) is for who listens to tell.
        calls: How often who called whom, `Order.checkout>Item.subtract`; nothing stands before the
            `>` where the call came from outside.
    """

    epoch: Epoch
    records: int
    aborts: int
    rounds: int
    reran: int
    tasks: int
    phases_ms: dict[str, float]
    calls: Mapping[str, int] = field(default_factory=dict)
