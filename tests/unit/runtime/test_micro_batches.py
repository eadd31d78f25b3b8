"""A micro-batch of Spark stays open: it processes the offered records, and those that come later."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.runtime.spark.micro_batches import MicroBatches
from tests.differential.inline import Inline
from tests.waiting import wait_for

LONG_MS = 3_600_000


class Spark:
    """Offers batches over a log, as Spark does."""

    def __init__(self, folder: Path, batch_ms: int) -> None:
        self.inline = Inline(folder / "data", 1, small_epoch=1_000)
        self.stopping = threading.Event()
        self._offsets = folder / "checkpoint" / "offsets"
        self._offsets.mkdir(parents=True)
        config = Config(folder, poll_ms=5, batch_ms=batch_ms)
        self.batches = MicroBatches(
            self.inline.driver, self.inline.log, config, folder / "checkpoint", self.stopping
        )

    def append(self, count: int) -> Lsn:
        begin = self.inline.log.end()
        self.inline.log.append(
            [Entry(RequestId(f"r{begin + number}"), b"", b"", 0) for number in range(count)]
        )
        return self.inline.log.end()

    def offer(self, batch: int) -> None:
        (self._offsets / str(batch)).write_text(f"v1\n{json.dumps({'0': self.inline.log.end()})}")
        self.batches.process(batch)

    @contextmanager
    def offered(self, batch: int) -> Iterator[threading.Thread]:
        """Offer a batch in a thread that is stopped at the end of the block."""
        thread = threading.Thread(target=self.offer, args=(batch,))
        thread.start()
        try:
            yield thread
        finally:
            self.stopping.set()
            thread.join(60)

    def counts(self) -> list[int]:
        return [report.records for report, _ in self.inline.reports]


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Callable[[int], Spark]]:
    """Make a source of batches, and close it after the test."""
    made: list[Spark] = []
    (tmp_path / "data").mkdir()

    def make(batch_ms: int) -> Spark:
        made.append(Spark(tmp_path, batch_ms))
        return made[-1]

    yield make
    for one in made:
        one.inline.close()


def test_later_records_are_epochs_of_the_open_batch(spark: Callable[[int], Spark]) -> None:
    """Records that come after the offer need no batch of their own."""
    source = spark(LONG_MS)
    source.append(3)
    with source.offered(0) as thread:
        wait_for(lambda: source.counts() == [3], "the offered records")
        source.append(2)
        wait_for(lambda: source.counts() == [3, 2], "the later records")
        assert thread.is_alive()
    assert not thread.is_alive(), "a runtime that stops ends the batch"


def test_batch_ends_after_an_epoch_when_its_time_is_over(spark: Callable[[int], Spark]) -> None:
    """An old batch without an epoch waits for records; after the next epoch it ends."""
    source = spark(0)
    with source.offered(0) as thread:
        source.append(1)
        thread.join(60)
        assert not thread.is_alive()
    assert source.counts() == [1]


def test_batch_that_is_offered_again_skips_its_epochs(spark: Callable[[int], Spark]) -> None:
    """After a crash Spark offers the open batch again; the journal says which records are processed."""
    source = spark(LONG_MS)
    source.append(2)
    with source.offered(0):
        source.append(2)
        wait_for(lambda: sum(source.counts()) == 4, "the epochs")
    source.stopping.clear()
    with source.offered(0):
        source.append(1)
        wait_for(lambda: sum(source.counts()) == 5, "the new record")
    assert source.counts()[-1] == 1


def test_no_batch_begins_while_the_runtime_stops(spark: Callable[[int], Spark]) -> None:
    """Spark may offer a batch until it has stopped; its records are left for the next driver."""
    source = spark(LONG_MS)
    source.append(1)
    source.stopping.set()
    source.offer(0)
    source.batches.wait()
    assert source.counts() == []
