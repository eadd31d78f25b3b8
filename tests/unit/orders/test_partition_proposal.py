"""The proposal for the number of partitions follows from the reports of epochs."""

import pytest

from penstock.base.ids import Epoch
from penstock.orders.partitions import propose
from penstock.process.epoch_report import EpochReport

SMALL = 100


def report(records: int, took_ms: float, *, tasks: int = 1, reran: int = 0) -> EpochReport:
    """Return the report of an epoch, which took some time after a long rest."""
    phases = {"rest": 10_000.0, "round1": took_ms}
    return EpochReport(
        epoch=Epoch(0), time_us=0, records=records, aborts=0, rounds=1, reran=reran, tasks=tasks,
        phases_ms=phases,
    )  # fmt: skip


LARGE = report(1_000, 300, tasks=2)


@pytest.mark.parametrize(
    ("partitions", "reports", "proposed", "reason"),
    [
        (4, [LARGE], 4, "as many partitions as cores: 4"),
        (8, [], 4, "Only 4 tasks"),
        (2, [], 2, "take 0% of the time"),
        (2, [LARGE, report(10, 2_000)], 2, "take 13% of the time"),
        (2, [LARGE, report(10, 300)], 4, "take 50% of the time, and 4 cores"),
        (2, [report(1_000, 300, tasks=2, reran=500)], 2, "50% of the requests of large epochs"),
        (1, [report(1_000, 300)], 4, "take 100% of the time"),
    ],
)
def test_proposal(partitions: int, reports: list[EpochReport], proposed: int, reason: str) -> None:
    """More partitions are proposed only for cores that large epochs without many conflicts can use."""
    answer = propose(partitions, 4, SMALL, reports)
    assert (answer.partitions, answer.proposed) == (partitions, proposed)
    assert reason in answer.reason
