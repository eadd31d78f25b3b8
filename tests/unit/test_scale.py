"""The model of `benchmarks.scale`: its figures are those that were worked out by hand, and its costs are found again."""

from dataclasses import asdict, replace

import pytest

from benchmarks.scale import Costs, of_tasks
from tests.cluster.scaling import Done, compared, costs_of_calls, costs_of_http, typical

COSTS = Costs(
    wait_s=0.1, wait_record_s=1e-5, tasks_s=0.04, task_record_s=1e-3, host_s=0.02, host_record_s=1e-4
)  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "cores", "records", "seconds"),
    [
        (1, 0.2, 100, 0.101 + 0.14 / 0.2 + 0.03 / 0.2),
        (4, 0.2, 400, 0.104 + 0.44 / 0.8 + 0.06 / 0.2),
        # A host brings its stores up to date with one core, however many it has.
        (2, 16, 1_000, 0.11 + 1.04 / 32 + 0.12),
    ],
)
def test_epoch_takes_the_sum_of_its_parts(
    hosts: int, cores: float, records: int, seconds: float
) -> None:
    """It waits, all hosts share the work of its tasks, and each host does the rest."""
    assert COSTS.epoch_s(hosts, cores, records) == pytest.approx(seconds)
    assert COSTS.rate(hosts, cores, records)[0] == pytest.approx(records / seconds)


def test_gateways_lengthen_an_epoch_only_beyond_its_waits() -> None:
    """A gateway uses the time in which an epoch waits; what it needs beyond is the limit."""
    short, long = replace(COSTS, request_s=1e-4), replace(COSTS, request_s=1e-2)
    assert short.epoch_s(2, 0.2, 100) == COSTS.epoch_s(2, 0.2, 100)
    # Each of two hosts has half of 40 ms and of 100 requests of 11 ms, and 20 ms and 10 ms of its own.
    assert long.epoch_s(2, 0.2, 100) == pytest.approx((0.57 + 0.03) / 0.2)
    assert long.rate(2, 0.2, 100)[1] == "gateways"


def test_one_task_runs_the_largest_component() -> None:
    """More hosts do not help a component that is half of the epoch."""
    without, limited = (COSTS.terms(8, 2, 1_000, largest)["tasks"] for largest in (0.0, 0.5))
    assert without == pytest.approx(0.04 / 16 + 1 / 16)
    assert limited == pytest.approx(0.04 / 16 + 0.5)


@pytest.mark.parametrize(
    ("records", "longest"), [(1, "waiting"), (500, "tasks"), (50_000, "copies")]
)
def test_longest_part_is_named(records: int, longest: str) -> None:
    """The rate comes with the reason that is worth most work."""
    costs = replace(COSTS, host_record_s=2e-4 if longest == "copies" else 1e-4)
    hosts = 16 if longest == "copies" else 1
    assert costs.rate(hosts, 1, records)[1] == longest


def test_costs_of_more_tasks_follow_the_line_of_those_that_were_measured() -> None:
    """Processor time goes on to grow; tasks of several hosts wait at the same time."""
    two = replace(COSTS, tasks_s=0.06, wait_s=0.12)
    known = {1: COSTS, 2: two, 4: replace(two, tasks_s=0.1, wait_s=0.14)}
    assert of_tasks(known, 2) == two
    three, eight = of_tasks(known, 3), of_tasks(known, 8)
    assert (three.tasks_s, three.wait_s) == pytest.approx((0.08, 0.13))
    assert (eight.tasks_s, eight.wait_s) == pytest.approx((0.18, 0.14))
    assert eight.task_record_s == COSTS.task_record_s


def _run(costs: Costs, gateway: tuple[float, float], records: int, cores: float = 0.2) -> Done:
    """Return the run that a host with these costs does: ten epochs, a part of whose costs its gateway has."""
    whole = replace(costs, host_s=costs.host_s + gateway[0], host_record_s=costs.host_record_s + gateway[1])  # fmt: skip
    tasks_s = costs.tasks_s + costs.host_s + (costs.task_record_s + costs.host_record_s) * records
    spent = {"tasks": 10 * tasks_s, "gateway": 10 * (gateway[0] + gateway[1] * records)}
    return Done(10 * whole.epoch_s(1, cores, records), 10, 10 * records, spent)


def test_costs_are_found_from_epochs_of_two_sizes() -> None:
    """Two runs of a host whose costs are known give these costs; the gateway's belong to the host."""
    small, large = (_run(COSTS, (0.01, 2e-5), records) for records in (40, 4_000))
    found = costs_of_calls(small, large, COSTS, 0.2)
    assert asdict(found) == pytest.approx(
        {**asdict(COSTS), "host_s": 0.03, "host_record_s": 1.2e-4}
    )
    crowd = _run(COSTS, (0.05, 5e-4), 250)
    over_http = costs_of_http(found, small, large, crowd, 4.8e-4, COSTS)
    wanted = {**asdict(found), "host_s": 0.07, "request_s": 4.8e-4}
    assert asdict(over_http) == pytest.approx(wanted)


def test_one_odd_run_of_three_changes_no_cost() -> None:
    """The machine was slow for a moment, and an epoch waited: the costs are those of the other runs."""
    runs = [_run(COSTS, (0.01, 2e-5), records) for records in (40, 4_000)]
    odd = [
        replace(run, seconds=3 * run.seconds, spent_s={kind: 2 * spent for kind, spent in run.spent_s.items()})
        for run in runs
    ]  # fmt: skip
    small, large = (typical([run, strange, run]) for run, strange in zip(runs, odd, strict=True))
    found = costs_of_calls(small, large, COSTS, 0.2)
    assert asdict(found) == pytest.approx(asdict(costs_of_calls(runs[0], runs[1], COSTS, 0.2)))


def test_runs_are_compared_at_their_own_speed() -> None:
    """A host of half the speed does less, and the model says so, too: the ratio to the model stays."""
    for cores, speed in ((0.2, 1.0), (0.1, 0.5)):
        run = replace(_run(COSTS, (0.0, 0.0), 400, cores), speed=speed)
        assert compared(run, 1, COSTS).ratio == pytest.approx(1.0)
