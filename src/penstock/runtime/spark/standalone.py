"""Spark's own cluster: its address, its secret, and its master and workers as processes of a host.

Both are Java programs of the PySpark that Penstock installs. This module as a program takes the place of its process by
Java, so the id that a supervisor has is that of Java, and Java ends with the supervisor.
"""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.files import private
from penstock.process.config import Config
from penstock.process.process_limits import end_with_parent
from penstock.runtime.spark.java import java_home
from penstock.runtime.spark.jvm import UNVERIFIED, jars, java_log_option, spark_home

FOLDER: Final = "spark"
"""The folder of Spark's files of a host, below `run`: settings with the secret, output of executors."""

PORT: Final = 7077
MASTER: Final = "spark-master"
WORKER: Final = "spark-worker"

SILENT_S: Final = 45
"""Spark gives up a host that was silent for so long, and with it the executors there. It looks at the end of a beat, which is a quarter
of it, so an executor outlives a cut of 30 seconds."""

_DEPLOY: Final = "org.apache.spark.deploy"
_MEMORY: Final = "64g"
"""What Spark may hand out on a host. It counts the heaps of executors alone, which are small."""

_PROPERTIES: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Nobody sends programs here but drivers, and no page ends what they run.
    "spark.master.rest.enabled": "false",
    "spark.ui.killEnabled": "false",
    # A master that comes back knows its applications: another one would end their executors.
    "spark.deploy.recoveryMode": "FILESYSTEM",
    # An application whose executors fail again and again is not ended: its driver decides.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.worker.timeout": str(SILENT_S),
    # The output of executors, which run for months.
    "spark.worker.cleanup.enabled": "true",
    "spark.worker.cleanup.appDataTtl": "86400",
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": "8388608",
    "spark.executor.logs.rolling.maxRetainedFiles": "4",
}
_JAVA: Final = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx256m"),
    *UNVERIFIED,
)

REGISTERED: Final = ("Successfully registered with master", "Master has changed, new master is at")
"""What a worker prints when the master has taken it, also one that came back."""
ELECTED: Final = "New state: ALIVE"
"""What a master prints when it serves; after a recovery `RECOVERED`."""
RECOVERED: Final = "Recovery complete"
LOST: Final = ("Connection to master failed", "Retrying connection to master")
"""What a worker prints when it looks for the master."""
REFUSED: Final = "Exception while bootstrapping client"
"""What it prints when it cannot prove that it has the secret of the master."""
_EVENTS: Final = {
    f"{_DEPLOY}.worker.Worker": "info",
    f"{_DEPLOY}.master.Master": "info",
}


class MasterPlace(NamedTuple):
    """The address of Spark's master."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as Spark writes it."""
        return f"spark://{self.host}:{self.port}"


def place_of_master(url: str) -> MasterPlace:
    """Return the address in the URL of a master.

    Raises:
        ConfigError: It has none.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise ConfigError(f"master = {url!r}: {error}") from error
    if not host:
        raise ConfigError(f"master = {url!r}: must be spark://HOST:PORT")
    return MasterPlace(host, port)


def own_address(master: str) -> str:
    """Return the address of this host from which the master of a cluster, and so its hosts, are reached.

    Raises:
        ConfigError: The master has no address, or its host is not found.
    """
    place = place_of_master(master.partition(",")[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"master = {master!r}: its host is not found: {error}") from error


def secret_of_cluster(config: Config) -> str:
    """Return the secret of the cluster.

    Raises:
        ConfigError: Its file cannot be read, or is empty.
    """
    try:
        secret = config.master_secret.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"master_secret = {config.master_secret}: {reason}") from error
    if not secret:
        raise ConfigError(f"master_secret = {config.master_secret}: the file is empty")
    return secret


def prepare(folder: Path, config: Config) -> None:
    """Write what Spark's master and workers of this host read: their settings, with the secret of the cluster.

    Args:
        folder: The folder of Spark's files.

    Raises:
        ConfigError: There is no Java, no PySpark, or no secret.
    """
    secret = secret_of_cluster(config)
    private.create(folder)
    java_home(folder)
    settings = {
        **_PROPERTIES,
        "spark.deploy.recoveryDirectory": str(folder.absolute() / "recovery"),
        "spark.authenticate.secret": secret,
    }
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    # The umask of Penstock's processes keeps it from others.
    (folder / "spark.conf").write_text(lines)
    for role in (MASTER, WORKER):
        own = folder / role
        own.mkdir(exist_ok=True)
        java_log_option(own, config.log_format, role=role, levels=_EVENTS)


def master_command(folder: Path, config: Config) -> list[str]:
    """Return the command of the master at the address of the setting `master`."""
    place = place_of_master(config.master)
    options = ["--host", place.host, "--port", str(place.port), "--webui-port", "0"]
    return _program(folder, MASTER, f"{_DEPLOY}.master.Master", options)


def worker_command(folder: Path, config: Config, cores: int) -> list[str]:
    """Return the command of a worker.

    Args:
        cores: The number of tasks that it may run at a time.
    """
    options = ["--host", own_address(config.master), "--cores", str(cores), "--memory", _MEMORY]
    options += ["--webui-port", "0", "--work-dir", str(folder.absolute() / "work")]
    options.append(place_of_master(config.master).url)
    return _program(folder, WORKER, f"{_DEPLOY}.worker.Worker", options)


def _program(folder: Path, role: str, java_class: str, options: Sequence[str]) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        __name__,
        str(folder.absolute()),
        role,
        java_class,
        *options,
    ]


def main() -> None:
    """Become the Java program of the command line: a folder, a role, a class, and its options."""
    parent = os.getppid()
    folder, role, java_class, *options = sys.argv[1:]
    end_with_parent(parent, signal.SIGTERM)
    spark, home = spark_home(), java_home(Path(folder))
    logs = (Path(folder) / role / "log4j2.properties").absolute().as_uri()
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "SPARK_SCALA_VERSION": "2.13",
        "JAVA_HOME": str(home),
    }
    java = str(home / "bin" / "java")
    command = [java, *_JAVA, f"-Dlog4j2.configurationFile={logs}", "-cp"]
    command += [os.pathsep.join(map(str, jars(spark))), java_class]
    properties = ["--properties-file", f"{folder}/spark.conf"]
    os.execve(java, [*command, *properties, *options], environment)  # noqa: S606 -- no shell


if __name__ == "__main__":
    main()
