"""Spark's source offers the whole log, and the driver divides it into epochs."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.runtime.spark.source import LogSource, source_options
from tests.differential.inline import Inline

RECORDS = 100
BODY = bytes(50)
ENTRIES = [Entry(RequestId(f"r{number}"), BODY, b"", 0) for number in range(RECORDS)]


def test_source_offers_the_whole_log(tmp_path: Path) -> None:
    """A batch of Spark reaches to the end of the log."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append(ENTRIES)
    log.close()
    options = source_options(
        tmp_path / "log.sqlite", {LogPartition(0): Lsn(0)}, run="run", poll_ms=1
    )
    reader = LogSource(options).streamReader(schema=None)
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    assert offset["0"] == RECORDS


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
