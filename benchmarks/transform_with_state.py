"""Measure Spark's own stateful operator: `transformWithState`, a counter per key.

    python -m benchmarks.transform_with_state [--seconds 20] [--records 10000] [--keys 100000]

Each record adds one to the counter of one key, drawn uniformly; nothing else is read or written,
and no two keys ever change together. It is the row flavour, with the RocksDB state store, which
the operator requires, and the settings of Penstock's own session as far as that store allows.
Records come from Spark's `rate-micro-batch` source, so no log is read, and results go to the `noop`
sink, so none is kept. Spark does not fsync what it checkpoints. Counters are created as they come.

Some batches come first and do not count. Afterwards the sum of all counters, read from the
checkpoint by Spark's `statestore` source, must equal the records of the committed batches. Prints
one JSON object as its last line; the exit code is 1 when the sum differs.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
WARM_UP_BATCHES: Final = 4
MEASURED_BATCHES_MIN: Final = 3
"""So many are measured even when they take longer than the seconds asked for."""

LOOK_S: Final = 0.1


class Counter(StatefulProcessor):
    """Counts the records of a key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: one number."""
        self.count = handle.getValueState("count", "value long")

    def handleInputRows(  # noqa: N802 -- Spark's name
        self,
        key: tuple[Any, ...],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803 -- Spark's name
    ) -> Iterator[Row]:
        """Add one for each record, and say how many there were."""
        found = self.count.get()
        total = (0 if found is None else found[0]) + sum(1 for _ in rows)
        self.count.update((total,))
        yield Row(key=key[0], count=total)


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured.

    Attributes:
        records_per_s: Records of the measured batches over their time.
        keys_per_s: Keys that those batches updated, each once for a batch, over the same time.
        batch_ms: Median time of a batch.
        batches: How many were measured; `records` are those of each.
        keys: From how many the records draw; `cores` and state partitions.
        checked: Whether the counters add up to the records of all committed batches.
    """

    records_per_s: float
    keys_per_s: float
    batch_ms: float
    batches: int
    records: int
    keys: int
    cores: int
    checked: bool


def start_session(cores: int, directory: Path) -> SparkSession:
    """Start Spark in this process."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("transform-with-state").master(f"local[{cores}]")
    for setting, value in SETTINGS.items():
        builder = builder.config(setting, value)
    session = (
        builder.config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.local.dir", str(directory / "scratch"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")  # stopping a query makes its tasks complain
    return session


def counting(session: SparkSession, records: int, keys: int) -> DataFrame:
    """Return the stream of counters: records of uniformly drawn keys, so many in each batch."""
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", records)
    keyed = source.load().select(expr(f"pmod(xxhash64(value), {keys}) AS key"))
    return keyed.groupBy("key").transformWithState(
        statefulProcessor=Counter(),
        outputStructType="key long, count long",
        outputMode="Update",
        timeMode="None",
    )


def reports_of(stream: DataFrame, checkpoint: Path, seconds: float) -> list[dict[str, Any]]:
    """Run warm-up and measured seconds; return Spark's reports of the measured batches.

    Raises:
        RuntimeError: The query failed.
    """
    query = (
        stream.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    deadline = math.inf
    try:
        while True:
            if not query.isActive:
                raise RuntimeError("the query failed") from query.exception()
            done = len(query.recentProgress)
            if done >= WARM_UP_BATCHES:
                deadline = min(deadline, time.monotonic() + seconds)
            if time.monotonic() >= deadline and done >= WARM_UP_BATCHES + MEASURED_BATCHES_MIN:
                break
            time.sleep(LOOK_S)
        reports = [json.loads(one.json) for one in query.recentProgress]
    finally:
        query.stop()
    return reports[WARM_UP_BATCHES:]


def adds_up(session: SparkSession, checkpoint: Path, records: int) -> bool:
    """Say whether all counters, read from the checkpoint, add up to the committed records."""
    committed = max(int(one.name) for one in (checkpoint / "commits").glob("[0-9]*")) + 1
    counters = session.read.format("statestore").option("stateVarName", "count")
    [total] = counters.load(str(checkpoint)).selectExpr("sum(value.value)").collect()
    return bool(total[0] == committed * records)


def began_at(report: dict[str, Any]) -> float:
    """Return when a batch began, in seconds."""
    return datetime.fromisoformat(report["timestamp"]).timestamp()


def measure(chosen: argparse.Namespace, directory: Path) -> Result:
    """Run the query in a directory, and check what it has stored."""
    session = start_session(chosen.cores, directory)
    checkpoint = directory / "checkpoint"
    try:
        stream = counting(session, chosen.records, chosen.keys)
        reports = reports_of(stream, checkpoint, chosen.seconds)
        checked = adds_up(session, checkpoint, chosen.records)
    finally:
        session.stop()
    last = reports[-1]
    spent_s = began_at(last) + last["batchDuration"] / 1_000 - began_at(reports[0])
    updated = sum(one["stateOperators"][0]["numRowsUpdated"] for one in reports)
    return Result(
        records_per_s=round(sum(one["numInputRows"] for one in reports) / spent_s, 1),
        keys_per_s=round(updated / spent_s, 1),
        batch_ms=median(one["batchDuration"] for one in reports),
        batches=len(reports),
        records=chosen.records,
        keys=chosen.keys,
        cores=chosen.cores,
        checked=checked,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--records", type=int, default=10_000, help="in each micro-batch")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory, prefix="penstock-spark-") as name:
        result = measure(chosen, Path(name))
    print(json.dumps(asdict(result)))
    sys.exit(not result.checked)


if __name__ == "__main__":
    main()
