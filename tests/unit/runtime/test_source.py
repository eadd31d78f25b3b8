"""Spark's source offers the whole log, and the driver divides it into epochs."""

from pathlib import Path

import pytest

from penstock.base.ids import ONLY_PARTITION, Lsn, RequestId
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.runtime.spark.micro_batches import LogOffsets, positions_of
from tests.differential.inline import Inline

RECORDS = 100
BODY = bytes(50)
ENTRIES = [Entry(RequestId(f"r{number}"), BODY, b"", 0) for number in range(RECORDS)]


def test_source_offers_the_whole_log(tmp_path: Path) -> None:
    """A batch of Spark reaches to the end of the log."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append(ENTRIES)
    offsets = LogOffsets(log, {ONLY_PARTITION: Lsn(0)}, run="run")
    reached = positions_of(offsets.apply(offsets.apply("")))
    log.close()
    assert reached == {ONLY_PARTITION: RECORDS}


def test_each_offset_begins_another_batch(tmp_path: Path) -> None:
    """Spark compares offsets as text: without new records, in the same run or in the next, the text differs."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append(ENTRIES)
    start = {ONLY_PARTITION: Lsn(RECORDS)}
    before, now = (LogOffsets(log, start, run) for run in ("before", "now"))
    offsets = [before.apply("")]
    for source in (before, before, now, now):
        offsets.append(source.apply(offsets[-1]))
    log.close()
    assert len(set(offsets)) == 5
    assert all(positions_of(offset) == start for offset in offsets)


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "first"),
    [(30, 1 << 20, 30), (1_000, 1 << 20, RECORDS), (1_000, 20 * len(BODY), 20), (1_000, 1, 1)],
)
def test_epoch_keeps_its_limits_of_records_and_bytes(
    tmp_path: Path, records_max: int, bytes_max: int, first: int
) -> None:
    """An epoch ends where `epoch_records_max` or `epoch_bytes_max` is reached; it takes one record at least."""
    runtime = Inline(tmp_path, 1, epoch_records_max=records_max, epoch_bytes_max=bytes_max)
    runtime.log.append(ENTRIES)
    runtime.advance(RECORDS)
    counts = [report.records for report, _ in runtime.reports]
    runtime.close()
    assert counts[0] == first
    assert sum(counts) == RECORDS
