"""Spark's streaming source over the embedded log: it carries positions, never records.

Records are read where they are executed, so that they cross no process boundary on the way. An
offset names the run of the driver beside the positions: a driver that starts anew gets a batch at
once, for whatever the journal has not yet committed.
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
    """`spark.readStream.format("penstock")`; options: `log`, `start`, `run`, limits, `poll_ms`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    def schema(self) -> str:
        """Return a schema; no row ever has it."""
        return "lsn long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Return the reader, which Spark keeps in a process of its own."""
        return _Reader(dict(self.options))


class _Reader(DataSourceStreamReader):
    """Tells Spark how far the log has grown; lives in a process of its own beside the driver."""

    def __init__(self, options: dict[str, str]) -> None:
        lowered = {name.lower(): value for name, value in options.items()}
        self._log = SqliteLog(Path(lowered["log"]))
        self._start: dict[str, int] = json.loads(lowered["start"])
        self._run = lowered["run"]
        self._records = int(lowered["epoch_records_max"])
        self._bytes = int(lowered["epoch_bytes_max"])
        self._poll_ms = int(lowered["poll_ms"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where the journal stands."""
        return {**self._start, _RUN: ""}

    def latestOffset(  # noqa: N802 -- Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Wait a little for records, then say how far this batch shall go."""
        if start.get(_RUN) == self._run:
            for partition in self._log.partitions[:1]:
                self._log.wait(Lsn(start[str(partition)]), self._poll_ms, partition)
        reached: dict[str, Any] = {
            str(partition): self._reach(Lsn(start.get(str(partition), 0)), partition)
            for partition in self._log.partitions
        }
        return {**reached, _RUN: self._run}

    def _reach(self, start: Lsn, partition: LogPartition) -> int:
        committed, end = Lsn(self._start.get(str(partition), 0)), self._log.end(partition)
        first = max(start, committed)
        if first > end:  # an offset of a log that was longer, before log and journal were restored
            first = committed
        if first >= end:
            return first
        return self._log.limit(first, self._records, self._bytes)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return nothing to read: tasks read the log themselves."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Return no rows."""
        return iter(())

    def stop(self) -> None:
        """Close the log."""
        self._log.close()


def positions_of(offset: str) -> dict[LogPartition, Lsn]:
    """Read the positions in one of this source's offsets."""
    found = json.loads(offset)
    return {LogPartition(int(name)): Lsn(at) for name, at in found.items() if name != _RUN}


def source_options(
    log: Path, start: dict[LogPartition, Lsn], run: str, **limits: int
) -> dict[str, str]:
    """Return the options of a `LogSource`."""
    positions = json.dumps({str(partition): at for partition, at in sorted(start.items())})
    numbers = {name: str(value) for name, value in limits.items()}
    return {"log": str(log), "start": positions, "run": run, **numbers}
