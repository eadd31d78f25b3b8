"""Random schedules of faults between drivers, gateways, callers, store and log never break what is promised.

A failure prints the smallest schedule that shows it, with its trace. `python -m tests.simulation SECONDS` runs more of them.
"""

import pytest

from tests.simulation.actors import KEEPS_S
from tests.simulation.schedule import FAULTS, complaints_of, drawn, report_of, traced

SCHEDULES = 480
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.turns(1, "files", "journal", "process")
def test_nothing_is_lost_doubled_or_overtaken(seed: int, share: int) -> None:
    """Each request takes effect once, in an order that respects real time, with one reply, as in one thread."""
    for number in range(share, SCHEDULES, SHARES):
        schedule = drawn(seed + number)
        if complaints_of(schedule):
            pytest.fail(report_of(schedule))


def test_a_schedule_is_the_same_each_time(seed: int) -> None:
    """A seed that fails can be looked at."""
    schedules = [drawn(seed + number) for number in range(5)]
    assert schedules == [drawn(seed + number) for number in range(5)]
    assert [traced(schedule) for schedule in schedules] == [
        traced(schedule) for schedule in schedules
    ]


def test_every_fault_is_drawn() -> None:
    """Five hundred seeds have all of them, and some runs are long enough for names to be forgotten."""
    faults = [fault for seed in range(500) for fault in drawn(seed).faults]
    assert {fault.name for fault in faults} == set(FAULTS)
    assert any(fault.lasts_s > KEEPS_S for fault in faults)
