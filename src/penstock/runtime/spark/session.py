"""The Spark session, configured for many small epochs; comments give the cost that a setting saves.

Figures are medians on a machine with 2 cores (docs/PERFORMANCE.md describes the measurement).
"""

import os
import sys
from pathlib import Path
from typing import Final

from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.process.config import Config
from penstock.runtime.spark.jvm import UNVERIFIED, Jvm, choose_python
from penstock.runtime.spark.standalone import SILENT_S, own_address, secret_of_cluster

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
    "spark.sql.ui.explainMode": "simple",  # Spark describes the plan of each batch for that page
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "penstock.runtime.spark.daemon",  # loads once for all workers
    "spark.executorEnv.PYTHONHASHSEED": "0",
    "spark.python.worker.faulthandler.enabled": "false",  # the guard uses faulthandler itself
    "spark.locality.wait": "0s",
    "spark.rpc.message.maxSize": "512",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.eventLog.enabled": "false",
}


def settings_of_cluster(config: Config) -> dict[str, str]:
    """Return the settings of Spark for tasks on the hosts of a cluster.

    Raises:
        ConfigError: The file of the secret cannot be read, or the master has no address.
    """
    host = own_address(config.master)
    return {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.cores.max": str(config.residents),
        # Java only starts the resident tasks there.
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(
            ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *UNVERIFIED)
        ),
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret_of_cluster(config),
        "spark.network.crypto.enabled": "true",
        # The driver itself notices a cut in two seconds (`reception`), and its other tasks do the work. So Spark waits longer for
        # an executor than for anything else: one that lives on takes part as soon as the link is back, a new one has to start.
        "spark.executor.heartbeatInterval": "1s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{SILENT_S}s",
        "spark.network.timeout": "6s",
        "spark.network.timeoutInterval": "2s",
        # A resident task does not end, so a second attempt would not either; and its host is never idle.
        "spark.speculation": "false",
        "spark.dynamicAllocation.enabled": "false",
    }


def start_context(name: str, config: Config, scratch: Path, jvm: Jvm | None = None) -> SparkContext:
    """Start Spark in a Java process, bound to loopback; its SQL session does not exist yet.

    Tasks can run as soon as the context exists, so that Python workers start while Java makes the session.

    Args:
        scratch: A directory that only this context uses.
        jvm: The Java process; None stands for the one that this process already uses, or for a new one,
            which ends with this process.
    """
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 -- there is no public way
        raise ConfigError(
            "Spark already runs in this process, with settings of its own, and can run only once: stop the other "
            "SparkRuntime or SparkSession first, or start this one in another process"
        )
    if config.is_cluster:
        # Each host has its Python at this path; the launcher of this host is in no place that they see.
        os.environ["PYSPARK_PYTHON"] = config.host_python or sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    else:
        choose_python(scratch)
    if SparkContext._gateway is None:  # noqa: SLF001 -- there is no public way
        (jvm or Jvm(config, scratch)).connect()
    settings = SparkConf().setAppName(f"penstock-{name}").setMaster(config.spark_master)
    settings.setAll(list(_SETTINGS.items()))
    own = {
        "spark.driver.memory": f"{config.driver_memory_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(config.partitions),
        "spark.default.parallelism": str(config.partitions),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    settings.setAll(list(own.items()))
    if config.is_cluster:
        settings.setAll(list(settings_of_cluster(config).items()))
    context = SparkContext(conf=settings)
    context.setLogLevel("ERROR")
    return context


def session_of_context() -> SparkSession:
    """Return the session of the context that `start_context` has started."""
    return SparkSession.builder.getOrCreate()
