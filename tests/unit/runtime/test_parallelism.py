"""How many tasks an epoch gets."""

from penstock.runtime.spark.parallelism import PROBE_EVERY, REPEATED_TOO_MUCH, ParallelismPolicy


def test_small_epoch_gets_one_task() -> None:
    """Up to the setting, inclusive, an epoch runs in one task."""
    policy = ParallelismPolicy(small_epoch=100)
    assert [policy.tasks(count, 4) for count in (1, 100, 101)] == [1, 1, 4]


def test_one_partition_gets_one_task() -> None:
    """Where there is one partition, nothing is spread."""
    assert ParallelismPolicy(small_epoch=0).tasks(10_000, 1) == 1


def test_much_repetition_ends_spreading() -> None:
    """After an epoch that ran mostly twice, the next ones run in one task."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=int(1_000 * REPEATED_TOO_MUCH) + 1)
    assert policy.tasks(1_000, 2) == 1


def test_little_repetition_goes_on_spreading() -> None:
    """An epoch of which a quarter ran twice is worth spreading."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=250)
    assert policy.tasks(1_000, 2) == 2


def test_spreading_is_tried_again() -> None:
    """After so many epochs in one task, one is spread to see whether conflicts are gone."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=1_000)
    tasks = [policy.tasks(1_000, 2) for _ in range(PROBE_EVERY + 1)]
    assert tasks == [1] * PROBE_EVERY + [2]
    policy.learn(count=1_000, tasks=2, reran=0)
    assert policy.tasks(1_000, 2) == 2


def test_epochs_in_one_task_teach_nothing() -> None:
    """An epoch that ran in one task says nothing about conflicts."""
    policy = ParallelismPolicy(small_epoch=0)
    policy.learn(count=1_000, tasks=2, reran=1_000)
    policy.learn(count=1_000, tasks=1, reran=0)
    assert policy.tasks(1_000, 2) == 1
