"""The number of partitions changes no outcome, nor does changing it under load."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import BEFORE_FIRST
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.partitions import append_move
from penstock.runtime.spark.runtime import SparkRuntime
from tests.faults.history import Watch
from tests.faults.load import Bank

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DEADLINE_MS = 120_000
EPOCH = 150
COUNT = 600
BANK = Bank()


def run(data: Path, partitions: int, some: list[Entry], moves: Sequence[int] = ()) -> None:
    """Append requests, some before a runtime starts, and let it answer them; it moves buckets between them."""
    log = DataDirectory(data).open_log()
    log.append(some[: len(some) // 2])
    for number in moves:
        append_move(log, number)
    log.close()
    runtime = SparkRuntime(
        BANK.spec,
        Config(data, cores=2, partitions=partitions, epoch_records_max=EPOCH, small_epoch=20),
    )
    try:
        runtime.start()
        runtime.log.append(some[len(some) // 2 :])
        assert runtime.wait_until(runtime.log.end(), DEADLINE_MS)
        assert runtime.progress().lag == 0
    finally:
        runtime.stop()


def test_partitions_change_no_outcome(tmp_path: Path) -> None:
    """One partition, and moves from four to eight and three under load, give the same answers and state.

    The second run has the number of the first one, whatever its setting says. Requests of the first run
    are sent again in the second, and get no second effect.
    """
    every = BANK.entries(seed=5, count=COUNT)
    half, names = len(every) // 2, {entry.request_id for entry in every}
    outcomes, data = [], tmp_path
    for plan in ([(1, every, ())], [(4, every[:half], ()), (2, every, (8, 3))]):
        data = tmp_path / str(len(plan))
        data.mkdir()
        for partitions, some, moves in plan:
            run(data, partitions, some, moves)
        watch = Watch(BANK.app, data, BANK.conserved)
        watch.check({}, all_answered=True)
        answers = {name: answer for name, answer in watch.answers.items() if name in names}
        assert len(answers) == len(every)
        outcomes.append((answers, watch.digest))
    assert outcomes[0] == outcomes[1]
    with closing(DataDirectory(data).open_journal(BANK.app)) as journal:
        numbers = [commit.partitions for commit in journal.commits(BEFORE_FIRST)]
    assert list(dict.fromkeys(numbers)) == [4, 8, 3]
