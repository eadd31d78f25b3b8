"""Spark's micro-batches: each is divided into epochs, and stays open for the records that come later.

Spark's bookkeeping takes longer than a small epoch: it plans the batch, and writes its offsets before and after it.
So a batch does not end with the records that Spark has offered. It waits for further records, and processes each group of
them as another epoch. It ends after an epoch, when it has been open for `batch_ms`. The offsets of a batch therefore
say where it begins, and the journal says which records are processed.

`LogOffsets` gives Spark positions, never records: tasks read the records themselves, so records cross no process boundary
on the way. Each offset differs from the offset before it, so Spark begins the next batch when a batch ends.
"""

import json
import threading
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import ClassVar, Final

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import Diverged
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.process.config import Config
from penstock.runtime.spark.driver import EpochDriver

_RUN: Final = "run"


class LogOffsets:
    """Tells Spark how far the log has grown; `java_classes.LogSource` calls it in the driver.

    Args:
        start: The committed position of each log partition.
    """

    def __init__(self, log: Log, start: Mapping[LogPartition, Lsn], run: str) -> None:
        self._log = log
        self._start = dict(start)
        self._run = run
        self._numbers = count()

    def apply(self, start: str) -> str:
        """Return the end of the log as an offset that Spark has not seen yet.

        Args:
            start: The offset before; empty text asks for the committed positions.
        """
        if not start:
            return self._offset(self._start, "")
        ends = {partition: self._log.end(partition) for partition in self._log.partitions}
        return self._offset(ends, f"{self._run}.{next(self._numbers)}")

    def _offset(self, positions: Mapping[LogPartition, Lsn], run: str) -> str:
        # Spark compares offsets as text, so the order of the names is always the same.
        by_name = {str(partition): lsn for partition, lsn in sorted(positions.items())}
        return json.dumps({**by_name, _RUN: run})

    class Java:
        """The Java interface that py4j implements with this class."""

        implements: ClassVar = ["java.util.function.Function"]


def positions_of(offset: str) -> dict[LogPartition, Lsn]:
    """Return the positions in an offset of this source."""
    positions = json.loads(offset)
    return {LogPartition(int(name)): Lsn(lsn) for name, lsn in positions.items() if name != _RUN}


def committed(log: Log, journal: Journal) -> tuple[Epoch, dict[LogPartition, Lsn]]:
    """Return the newest epoch, and for each log partition the position after the committed records."""
    positions = dict.fromkeys(log.partitions, Lsn(0))
    last = journal.last()
    if last is None:
        return BEFORE_FIRST, positions
    return last.epoch, {**positions, **last.positions}


def check_log(log: Log, journal: Journal, data: Path) -> None:
    """Check that a log has all records that a journal has committed."""
    for partition, position in committed(log, journal)[1].items():
        if (end := log.end(partition)) < position:
            raise Diverged(
                f"the log in {data} ends at {end}, but the journal has committed "
                f"up to {position}: an older log was restored, or one of another application"
            )


class MicroBatches:
    """Processes the batches of one runtime, one at a time.

    Attributes:
        offered: Whether Spark has offered a batch since this was last set to False.

    Args:
        stopping: Ends a batch after the running epoch.
    """

    def __init__(
        self,
        driver: EpochDriver,
        log: Log,
        config: Config,
        checkpoint: Path,
        stopping: threading.Event,
    ) -> None:
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
