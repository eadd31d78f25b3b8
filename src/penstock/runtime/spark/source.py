"""Spark's streaming source over the embedded log: it offers positions, never records.

Tasks read the records themselves, so records cross no process boundary on the way. The source
offers the whole log; the driver divides it into epochs. An offset names the driver's run and the
positions, so a driver that starts again gets a batch at once, for all that is not committed yet.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from penstock.base.ids import LogPartition, Lsn
from penstock.log.sqlite import SqliteLog

NAME: Final = "penstock"
_RUN: Final = "run"


class LogSource(DataSource):
    """`spark.readStream.format("penstock")`; options: `log`, `start`, `run`, `poll_ms`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return a schema, because Spark asks for one; there are no rows."""
        return "lsn long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return the reader, which Spark keeps in a separate process."""
        return _RangeReader(dict(self.options))


class _RangeReader(DataSourceStreamReader):
    """Tells Spark how far the log has grown."""

    def __init__(self, options: dict[str, str]) -> None:
        lowered = {name.lower(): value for name, value in options.items()}
        self._log = SqliteLog(Path(lowered["log"]))
        self._start: dict[str, int] = json.loads(lowered["start"])
        self._run = lowered["run"]
        self._poll_ms = int(lowered["poll_ms"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return the positions that the journal has committed."""
        return {**self._start, _RUN: ""}

    def latestOffset(  # noqa: N802 -- Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Wait up to `poll_ms` for records, then return the end of the log."""
        if start.get(_RUN) == self._run:
            for partition in self._log.partitions[:1]:
                self._log.wait(Lsn(start[str(partition)]), self._poll_ms, partition)
        return {
            **{str(partition): self._log.end(partition) for partition in self._log.partitions},
            _RUN: self._run,
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return no partitions: tasks read the log themselves."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return no rows."""
        return iter(())

    def stop(self) -> None:
        """Close the log."""
        self._log.close()


def positions_of(offset: str) -> dict[LogPartition, Lsn]:
    """Return the positions in an offset of this source."""
    positions = json.loads(offset)
    return {LogPartition(int(name)): Lsn(lsn) for name, lsn in positions.items() if name != _RUN}


def source_options(
    log: Path, start: dict[LogPartition, Lsn], run: str, poll_ms: int
) -> dict[str, str]:
    """Return the options of a `LogSource`.

    Args:
        log: The file of the log.
        start: The committed position of each log partition.
        run: Names the run of the driver.
        poll_ms: Milliseconds to wait for records.
    """
    positions = json.dumps({str(partition): lsn for partition, lsn in sorted(start.items())})
    return {"log": str(log), "start": positions, "run": run, "poll_ms": str(poll_ms)}
