"""The offsets of Spark's streaming source over the embedded log: positions, never records.

Tasks read the records themselves, so records cross no process boundary on the way. The source
offers the whole log; the driver divides it into epochs. Each offset differs from the offset before it, so Spark begins
the next batch when a batch ends, and the batch waits for records (`micro_batches`).
"""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import ClassVar, Final

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import Diverged
from penstock.journal.api import Journal
from penstock.log.api import Log

_RUN: Final = "run"


class LogOffsets:
    """Tells Spark how far the log has grown; `java_classes.LogSource` calls it in the driver."""

    def __init__(self, log: Log, start: Mapping[LogPartition, Lsn], run: str) -> None:
        """Follow a log.

        Args:
            start: The committed position of each log partition.
        """
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
