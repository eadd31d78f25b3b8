"""The records of an epoch in its order, which all of its tasks read."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from penstock.base.ids import LogPartition, Lsn
from penstock.log.api import Log, Record
from penstock.runtime.spark.messages import LogRange

PlacedRecord = tuple[LogPartition, Record]
"""A record, with its partition of the log."""

Records = Sequence[PlacedRecord]
"""The records of an epoch."""


class RecordsOfRange(Records):
    """The records of a range of the log; a task makes pairs of its own records only."""

    def __init__(self, partition: LogPartition, records: Sequence[Record]) -> None:
        self._partition = partition
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: Any) -> Any:  # of an index; no task takes slices
        return self._partition, self._records[position]


def read_epoch(log: Log, ranges: Sequence[LogRange]) -> Records:
    """Return the records of an epoch in its order: (LSN, partition).

    Raises:
        Corrupt: A record is damaged.
    """
    read = [
        RecordsOfRange(part.partition, log.read(part.start, part.end, part.partition))
        for part in ranges
    ]
    return read[0] if len(read) == 1 else sorted(chain(*read), key=_order)


def _order(placed: PlacedRecord) -> tuple[Lsn, LogPartition]:
    partition, record = placed
    return record.lsn, partition
