"""The number of partitions changes no outcome, nor does changing it between two runs."""

from pathlib import Path

import pytest

from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.runtime import SparkRuntime
from tests.faults.history import Watch
from tests.faults.load import Bank

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DEADLINE_MS = 120_000
EPOCH = 150
COUNT = 600
BANK = Bank()


def run(data: Path, partitions: int, some: list[Entry]) -> None:
    """Append requests before a runtime starts, and let it answer them."""
    log = DataDirectory(data).open_log()
    log.append(some)
    log.close()
    runtime = SparkRuntime(
        BANK.spec,
        Config(data, cores=2, partitions=partitions, epoch_records_max=EPOCH, small_epoch=20),
    )
    try:
        runtime.start()
        assert runtime.wait_until(runtime.log.end(), DEADLINE_MS)
        assert runtime.progress().lag == 0
    finally:
        runtime.stop()


def test_partitions_change_no_outcome(tmp_path: Path) -> None:
    """One partition, and a change from four to three between two runs, give the same answers and state.

    Requests of the first run are sent again in the second, and get no second effect.
    """
    every = BANK.entries(seed=5, count=COUNT)
    half = len(every) // 2
    plans = {"1": [1], "4 then 3": [4, 3]}
    outcomes = {}
    for name, plan in plans.items():
        data = tmp_path / name
        data.mkdir()
        for number, partitions in enumerate(plan):
            some = every[:half] if number + 1 < len(plan) else every
            run(data, partitions, some)
        watch = Watch(BANK.app, data, BANK.conserved)
        watch.check({}, all_answered=True)
        assert len(watch.rows) == len(every)
        outcomes[name] = (watch.answers, watch.digest)
    assert all(outcome == outcomes["1"] for outcome in outcomes.values())
