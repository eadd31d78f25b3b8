"""The Spark session, configured for many small epochs; comments give the cost that a setting saves.

Figures are medians on a machine with 2 cores (docs/PERFORMANCE.md describes the measurement).
"""

from pathlib import Path
from typing import Any, Final

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

# Hadoop's local file system forks `chmod` for each file it creates, about ten for each epoch. The
# checkpoint is only a hint, and its files need no permissions of their own.
_FILE_SYSTEM: Final = """
package penstock;
public class QuietFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission) {}
}
"""


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
    _quiet_checkpoints(session)
    return session


def _quiet_checkpoints(session: SparkSession) -> None:
    """Let Spark's checkpoint use a file system that forks no processes."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 -- PySpark has no public API for this
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_FILE_SYSTEM)
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    hadoop.setClassLoader(compiler.getClassLoader())
    hadoop.set("fs.file.impl", "penstock.QuietFileSystem")
