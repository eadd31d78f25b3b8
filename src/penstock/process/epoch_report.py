"""The report of a runtime on each epoch: for progress displays, benchmarks and tests."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.engine.calls import Sample, estimate

_log = logging.getLogger(__name__)

REST: Final = "rest"
"""The pause before an epoch; it is reported with the epoch and does not count as its time."""


class EpochReport(msgspec.Struct, frozen=True, kw_only=True):
    """One committed epoch.

    Attributes:
        time_us: The time at which its commit was complete, in microseconds since the Unix epoch.
        records: Requests that it processed.
        aborts: Those that were undone.
        failed: Failed requests that no caller waits for (`sql.failed_requests`).
        rounds: How often tasks executed; 1 where nothing was in conflict.
        reran: Transactions that ran more than once.
        tasks: Tasks of the first round.
        phases_ms: Milliseconds in the driver, in order: `rest` (since the epoch before: waiting for
            requests, and Spark's own bookkeeping), `read`, `apply` (until the stores had taken the
            epoch before), `round1`, `validate`, `round2` …, `write`, `commit`.
        calls: The number of calls of each kind, `Order.checkout>Item.subtract`; a call from outside
            has nothing before the `>`.
        atoms, events: The number of atoms, and of their events, that it published, by stream.
        incidents: Requests that stopped their epoch and were set aside (`process.incidents`).
    """

    epoch: Epoch
    time_us: int
    records: int
    aborts: int
    failed: int = 0
    rounds: int = 1
    reran: int = 0
    tasks: int = 1
    phases_ms: dict[str, float]
    calls: dict[str, int] = {}
    atoms: dict[str, int] = {}
    events: dict[str, int] = {}
    incidents: int = 0


def calls_of(
    roots: Sequence[Mapping[str, int]], samples: Sequence[Mapping[str, Sample]]
) -> dict[str, int]:
    """Return the estimated calls between methods; empty after an error: statistics stop no epoch."""
    try:
        return estimate(roots, samples)
    except Exception:  # noqa: BLE001 -- the epoch is committed already
        _log.exception("statistics of calls are dropped")
        return {}


def total_of(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts, by their names."""
    total: dict[str, int] = {}
    for names in counts:
        for name, count in names.items():
            total[name] = total.get(name, 0) + count
    return total


def took_ms(phases_ms: Mapping[str, float]) -> float:
    """Return how long an epoch took, from its first look at the log to its commit."""
    return sum(value for name, value in phases_ms.items() if name != REST)
