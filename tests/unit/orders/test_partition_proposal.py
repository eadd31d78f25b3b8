"""The proposal for the number of partitions follows from the reports of epochs."""

import pytest

from penstock.base.ids import Epoch
from penstock.orders.partitions import (
    AUTO_LAST_S,
    FEWER_LOOKS,
    MORE_LOOKS,
    PartitionPolicy,
    propose,
)
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


BUSY = report(1_000, 0.6 * AUTO_LAST_S * 1_000, tasks=2)


@pytest.mark.parametrize(
    ("cores", "reports", "looks"),
    [
        (4, [BUSY], MORE_LOOKS),
        (1, [], FEWER_LOOKS),  # a host has left
        (2, [BUSY], None),
        (4, [LARGE], None),  # large epochs, and a driver that rests
    ],
)
def test_a_number_is_used_after_looks_in_a_row(
    cores: int, reports: list[EpochReport], looks: int | None
) -> None:
    """The number is changed only if each of the last looks has proposed the same one; then all begins anew."""
    policy = PartitionPolicy()
    proposal = propose(2, cores, SMALL, reports)
    given = [
        count
        for count in range(1, 2 * FEWER_LOOKS + 1)
        if policy.decide(proposal, reports, waiting=1_234) is not None
    ]
    assert given == ([] if looks is None else list(range(looks, 2 * FEWER_LOOKS + 1, looks)))


def test_a_host_that_is_back_begins_the_count_anew() -> None:
    """A core that comes and goes changes nothing; the reason names the load."""
    policy = PartitionPolicy()
    more, same = propose(2, 4, SMALL, [BUSY]), propose(2, 2, SMALL, [BUSY])
    for proposal in [more] * (MORE_LOOKS - 1) + [same] + [more] * (MORE_LOOKS - 1):
        assert policy.decide(proposal, [BUSY], waiting=7) is None
    other = propose(2, 3, SMALL, [BUSY])
    assert policy.decide(other, [BUSY], waiting=7) is None
    assert policy.decide(more, [BUSY], waiting=7) is None
    assert policy.decide(more, [BUSY], waiting=7) is None
    why = policy.decide(more, [BUSY], waiting=1_234) or ""
    assert why.startswith(more.reason)
    assert "busy for 60% of the time, and at most 1,234 requests waited" in why
