"""The Spark session, configured for many small epochs; comments give the cost that a setting saves.

Figures are medians on a machine with 2 cores (docs/PERFORMANCE.md describes the measurement).
"""

from pathlib import Path
from typing import Final

from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from penstock.process.config import Config
from penstock.runtime.spark.jvm import Jvm, choose_python

_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing"

_SETTINGS: Final = {
    # A JVM and its Python workers on TCP loopback wait 40 ms a task for delayed acknowledgements.
    "spark.python.unix.domain.socket.enabled": "true",
    # Plain files with rename, instead of a file context that forks processes for each file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.file.impl.disable.cache": "true",
    "spark.sql.streaming.pollingDelay": "1ms",  # the source itself waits for records
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The status store of Spark's web page is not used; keep it small and lazy.
    "spark.ui.liveUpdate.period": "-1",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "penstock.runtime.spark.daemon",  # loads once for all workers
    "spark.executorEnv.PYTHONHASHSEED": "0",
    "spark.python.worker.faulthandler.enabled": "false",  # the guard uses faulthandler itself
    "spark.locality.wait": "0s",
    "spark.rpc.message.maxSize": "512",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.eventLog.enabled": "false",
}


def start_session(name: str, config: Config, scratch: Path, jvm: Jvm | None = None) -> SparkSession:
    """Start Spark in a Java process, bound to loopback, and return its session.

    Args:
        name: The name of the application.
        config: The settings.
        scratch: A directory that only this session uses.
        jvm: The Java process; None stands for the one that this process already uses, or for a new one,
            which ends with this process.

    Raises:
        ConfigError: Spark finds no Java that it can run on.
        OperationalError: Java has ended.
    """
    choose_python(scratch)
    if SparkContext._gateway is None:  # noqa: SLF001 -- there is no public way
        (jvm or Jvm(config, scratch)).connect()
    builder = SparkSession.builder.appName(f"penstock-{name}").master(config.spark_master)
    for setting, value in _SETTINGS.items():
        builder = builder.config(setting, value)
    builder = (
        builder.config("spark.driver.memory", f"{config.driver_memory_mb}m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(config.partitions))
        .config("spark.default.parallelism", str(config.partitions))
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
