"""The number of partitions changes no outcome, nor does changing it under load."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import BEFORE_FIRST, RequestId
from penstock.log.api import Entry
from penstock.orders.partitions import append_move
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.runtime import SparkRuntime
from tests.differential.inline import Inline
from tests.faults.history import Answer, Watch
from tests.faults.load import Bank

pytestmark = [pytest.mark.long, pytest.mark.spark]

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


@pytest.mark.turns(
    1,
    *("engine", "runtime", "dataflow", "deployment", "exchange", "model", "native", "state"),
    of="one thread beside Spark",
)
def test_partitions_change_no_outcome(tmp_path: Path) -> None:
    """Moves from four to eight and three under load give the answers and the state of one partition without Spark.

    The second start has the number of the first one, whatever its setting says. Requests of the first
    start are sent again in the second, and get no second effect.
    """
    every = BANK.entries(seed=5, count=COUNT)
    half = len(every) // 2
    alone, moved = tmp_path / "alone", tmp_path / "moved"
    for data in (alone, moved):
        data.mkdir()
    with closing(Inline(alone, 1, BANK.spec, BANK.app.name, epoch_records_max=EPOCH)) as runtime:
        runtime.log.append(every)
        runtime.advance(runtime.log.end())
    run(moved, 4, every[:half])
    run(moved, 2, every, (8, 3))
    assert outcome(moved, every) == outcome(alone, every)
    with closing(DataDirectory(moved).open_journal(BANK.app)) as journal:
        numbers = [commit.partitions for commit in journal.commits(BEFORE_FIRST)]
    assert list(dict.fromkeys(numbers)) == [4, 8, 3]


def outcome(data: Path, every: list[Entry]) -> tuple[dict[RequestId, Answer], str]:
    """Return the answers to requests, each of which must have one, and the digest of the state."""
    watch = Watch(BANK.app, data, BANK.conserved)
    watch.check({}, all_answered=True)
    return {entry.request_id: watch.answers[entry.request_id] for entry in every}, watch.digest
