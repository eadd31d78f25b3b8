"""Spark's micro-batches: each is divided into epochs, and stays open for the records that come later.

Spark's bookkeeping takes longer than a small epoch: it plans the batch, and writes its offsets before and after it.
So a batch does not end with the records that Spark has offered. It waits for further records, and processes each group of
them as another epoch. It ends after an epoch, when it has been open for `batch_ms`. The offsets of a batch therefore
say where it begins, and the journal says which records are processed.
"""

import threading
import time
from pathlib import Path

from penstock.log.api import Log
from penstock.process.config import Config
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.source import positions_of


class MicroBatches:
    """Processes the batches of one runtime, one at a time.

    Attributes:
        offered: Whether Spark has offered a batch since this was last set to False.
    """

    def __init__(
        self,
        driver: EpochDriver,
        log: Log,
        config: Config,
        checkpoint: Path,
        stopping: threading.Event,
    ) -> None:
        """Wait for batches.

        Args:
            stopping: Ends a batch after the running epoch.
        """
        self._driver = driver
        self._log = log
        self._poll_ms = config.poll_ms
        self._open_s = config.batch_ms / 1_000
        self._offsets = checkpoint / "offsets"
        self._stopping = stopping
        self._running = threading.Lock()
        self.offered = False

    def process(self, batch: int) -> None:
        """Process the records that a batch offers, and those that come while it is open."""
        with self._running:
            if self._stopping.is_set():
                return
            opened, last = time.monotonic(), self._driver.epoch
            reached = positions_of((self._offsets / str(batch)).read_text().splitlines()[-1])
            self.offered = True
            self._driver.advance(reached, self._stopping.is_set)
            while not self._stopping.is_set():
                if self._driver.epoch > last and time.monotonic() - opened >= self._open_s:
                    break
                self._advance()
            self._driver.before_spark_commit()

    @property
    def are_idle(self) -> bool:
        """Whether no batch is open."""
        return not self._running.locked()

    def wait(self) -> None:
        """Return when no batch is open; `stopping` is set before."""
        with self._running:
            pass

    def _advance(self) -> None:
        """Process records beyond the committed positions; wait up to `poll_ms` for the first of them."""
        positions = self._driver.positions
        for partition in self._log.partitions[:1]:
            self._log.wait(positions[partition], self._poll_ms, partition)
        ends = {partition: self._log.end(partition) for partition in self._log.partitions}
        self._driver.advance(ends, self._stopping.is_set)
