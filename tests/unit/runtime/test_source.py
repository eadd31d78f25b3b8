"""Spark's source of the log: how far one epoch reaches."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.runtime.spark.source import LogSource, source_options

RECORDS = 100
BODY = bytes(50)


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "reached"),
    [(30, 1 << 20, 30), (1_000, 1 << 20, RECORDS), (1_000, 20 * len(BODY), 20), (1_000, 1, 1)],
)
def test_epoch_keeps_its_limits_of_records_and_bytes(
    tmp_path: Path, records_max: int, bytes_max: int, reached: int
) -> None:
    """An epoch ends where `epoch_records_max` or `epoch_bytes_max` is reached; it takes one record at least."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([Entry(RequestId(f"r{number}"), BODY, b"", 0) for number in range(RECORDS)])
    log.close()
    options = source_options(
        tmp_path / "log.sqlite",
        {LogPartition(0): Lsn(0)},
        run="run",
        epoch_records_max=records_max,
        epoch_bytes_max=bytes_max,
        poll_ms=1,
    )
    reader = LogSource(options).streamReader(schema=None)
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    assert offset["0"] == reached
