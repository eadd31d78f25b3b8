"""How many tasks an epoch gets."""

import pytest

from penstock.runtime.spark.messages import TaskResult
from penstock.runtime.spark.parallelism import (
    OVERLAP_SAVES_MS,
    PROBE_EVERY,
    REPEATED_TOO_MUCH,
    EpochPlan,
    ParallelismPolicy,
)


def took(requests_ms: float, steps_ms: float) -> list[TaskResult]:
    """Return the results of an epoch whose steps have run after its requests, in other tasks."""
    return [
        TaskResult(phases_ms={"run": requests_ms, "steps": 0.0}),
        TaskResult(phases_ms={"steps": steps_ms}),
    ]


def test_small_epoch_gets_one_task() -> None:
    """Up to the setting, inclusive, an epoch runs in one task."""
    policy = ParallelismPolicy(small_epoch=100)
    assert [policy.plan(count, 4).tasks for count in (1, 100, 101)] == [1, 1, 4]


def busy(milliseconds: float) -> list[TaskResult]:
    """Return the results of an epoch with this processor time."""
    return [TaskResult(phases_ms={"busy": milliseconds})]


def test_heavy_records_get_several_tasks() -> None:
    """An epoch is small by its expected time, too: 60 records of 2.5 ms are two tasks' work."""
    policy = ParallelismPolicy(small_epoch=1_500)
    policy.learn(count=10, tasks=1, reran=0, results=busy(25.0))
    assert [policy.plan(count, 2).tasks for count in (20, 60)] == [1, 2]


def test_records_that_wait_become_epochs_of_a_bounded_time() -> None:
    """At most a second, and everything before anything is known."""
    policy = ParallelismPolicy(small_epoch=1_500, longest_ms=1_000)
    assert policy.width(10_000) == 10_000
    policy.learn(count=10, tasks=1, reran=0, results=busy(20.0))
    assert policy.width(20) == 20
    assert policy.width(10_000) == 500, "a second"


def test_without_a_longest_time_no_time_decides() -> None:
    """With `epoch_time_ms = 0`, only the number of records counts."""
    policy = ParallelismPolicy(small_epoch=100, longest_ms=0)
    policy.learn(count=10, tasks=1, reran=0, results=busy(20_000.0))
    assert (policy.width(10_000), policy.plan(50, 2).tasks) == (10_000, 1)


def test_a_giant_is_soon_forgotten() -> None:
    """A transaction that fills the database does not make each of the next hundred epochs one record long."""
    policy = ParallelismPolicy(small_epoch=1_500, longest_ms=1_000)
    policy.learn(count=1, tasks=1, reran=0, results=busy(60_000.0))
    assert policy.width(10_000) == 1
    for _ in range(20):
        policy.learn(count=1, tasks=1, reran=0, results=busy(0.1))
    assert policy.width(10_000) > 100


def test_one_partition_gets_one_task() -> None:
    """Where there is one partition, nothing is spread."""
    assert ParallelismPolicy(small_epoch=0).plan(10_000, 1) == EpochPlan(1)


def test_much_repetition_ends_spreading() -> None:
    """After an epoch that ran mostly twice, the next ones run in one task."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=int(1_000 * REPEATED_TOO_MUCH) + 1, results=[])
    assert policy.plan(1_000, 2) == EpochPlan(1)


def test_little_repetition_goes_on_spreading() -> None:
    """An epoch of which a quarter ran twice is worth spreading."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=250, results=[])
    assert policy.plan(1_000, 2) == EpochPlan(2)


def test_spreading_is_tried_again() -> None:
    """After so many epochs in one task, one is spread to see whether conflicts are gone."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=1_000, results=[])
    tasks = [policy.plan(1_000, 2).tasks for _ in range(PROBE_EVERY + 1)]
    assert tasks == [1] * PROBE_EVERY + [2]
    policy.learn(count=1_000, tasks=2, reran=0, results=[])
    assert policy.plan(1_000, 2) == EpochPlan(2)


def test_epochs_in_one_task_teach_nothing() -> None:
    """An epoch that ran in one task says nothing about conflicts."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=1_000, results=[])
    policy.learn(count=1_000, tasks=1, reran=0, results=[])
    assert policy.plan(1_000, 2) == EpochPlan(1)


@pytest.mark.parametrize(
    ("requests_ms", "steps_ms", "overlapped"),
    [
        (400.0, 300.0, True),
        (400.0, OVERLAP_SAVES_MS + 1, True),
        (400.0, OVERLAP_SAVES_MS - 1, False),
        (OVERLAP_SAVES_MS - 1, 400.0, False),
    ],
)
def test_steps_run_overlapped_where_it_saves_time(
    requests_ms: float, steps_ms: float, *, overlapped: bool
) -> None:
    """Where one task runs the requests, the shorter pass is the time that an overlap saves."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=1_000, results=[])
    policy.learn(count=1_000, tasks=1, reran=0, results=took(requests_ms, steps_ms))
    assert policy.plan(1_000, 2) == EpochPlan(1, overlapped=overlapped)


def test_the_steps_of_one_task_count_once() -> None:
    """The time of a task that runs requests and steps is divided among both."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=1_000, results=[])
    both = TaskResult(phases_ms={"run": 400.0, "steps": 390.0})
    policy.learn(count=1_000, tasks=1, reran=0, results=[both])
    assert not policy.plan(1_000, 2).overlapped, "requests take 10 ms only"


def test_short_steps_leave_an_epoch_spread() -> None:
    """Two tasks for the requests save more time than an overlap with short steps; with long steps it is the other way."""
    policy = ParallelismPolicy(small_epoch=0)
    first = TaskResult(phases_ms={"run": 200.0})
    for steps_ms, planned in ((50.0, EpochPlan(2)), (300.0, EpochPlan(1, overlapped=True))):
        steps = TaskResult(phases_ms={"steps": steps_ms})
        policy.learn(count=1_000, tasks=2, reran=0, results=[first, first, steps])
        assert policy.plan(1_000, 2) == planned


def test_large_outputs_end_the_overlap() -> None:
    """After outputs that were too large, one task runs both passes, because it can stop early."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=1, reran=0, results=took(400.0, 400.0))
    assert policy.plan(1_000, 2).overlapped
    policy.overflowed()
    assert policy.plan(1_000, 2) == EpochPlan(1)


def test_divided_atoms_do_not_overlap() -> None:
    """Where large atoms may be divided, the workflow steps run after all requests, but not after outputs that were too large."""
    policy = ParallelismPolicy(small_epoch=0, large_atom=100)
    policy.learn(count=1_000, tasks=1, reran=0, results=took(400.0, 400.0))
    assert policy.plan(1_000, 2) == EpochPlan(1, divided=True)
    assert policy.plan(1_000, 1) == EpochPlan(1)
    policy.overflowed()
    assert policy.plan(1_000, 2) == EpochPlan(1)
