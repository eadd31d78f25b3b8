"""The Java process of Spark, which starts while Python still imports PySpark.

PySpark itself starts Java through a shell script and a second Java process, and waits for both. Penstock
starts Java directly. The process reads the class archive, if there is one, and ends when this process
ends. Its output goes through `JavaOutput`.
"""

import atexit
import os
import struct
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from penstock.errors import ConfigError, OperationalError
from penstock.files import private
from penstock.files.temporary_folder import temporary_folder
from penstock.process import startup
from penstock.process.config import Config
from penstock.runtime.spark.class_archive import ClassArchive
from penstock.runtime.spark.java import Java, find_java
from penstock.runtime.spark.java_output import JavaOutput
from penstock.runtime.spark.launcher import write_python

# A successful start prints nothing, and in the JSON format an event is one line. Messages that the JVM
# prints before it reads these settings are not affected.


_TIME: Final = "%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC}"
_PATTERNS: Final = {
    "text": f"{_TIME} %level{{lowerCase=true}} %c: %enc{{%m}}{{CRLF}}%n%throwable",
    "json": (
        f'{{"time": "{_TIME}", "level": "%level{{lowerCase=true}}", "logger": "%c", '
        '"role": "ROLE", "pid": %pid, "event": "%enc{%m}{JSON}"'
        '%notEmpty{, "exception": "%enc{%throwable}{JSON}"}}%n'
    ),
}
_SETTINGS: Final = """\
status = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.alwaysWriteExceptions = false
appender.stderr.layout.pattern = {pattern}
# PySpark's gateway prints that it changes the log level, unless its own level equals the root level.
logger.door.name = org.apache.spark.api.python.PythonGatewayServer
logger.door.level = error
{levels}rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""


def java_log_option(
    folder: Path, form: str, *, role: str = "driver", levels: Mapping[str, str] | None = None
) -> str:
    """Write the settings of Java's log output into a folder; return the JVM option that names them.

    Args:
        role: The role of the process, in lines for programs.
        levels: The lowest level of some loggers, in place of `error`. Then lines for people have no traces, since such a
            process prints one for each attempt to connect.
    """
    path = folder / "log4j2.properties"
    lines = "".join(
        f"logger.l{number}.name = {name}\nlogger.l{number}.level = {level}\n"
        for number, (name, level) in enumerate((levels or {}).items())
    )
    path.write_text(_SETTINGS.format(pattern=_PATTERNS[form].replace("ROLE", role), levels=lines))
    return f"-Dlog4j2.configurationFile={path.absolute().as_uri()}"


_UNUSED: Final = (
    *("spark-mllib", "spark-graphx", "breeze", "spire", "arpack", "blas", "lapack", "JTransforms"),
    *("spark-kubernetes", "kubernetes-", "volcano-", "vertx-", "spark-yarn"),
    *("spark-hive", "hive-beeline", "hive-cli", "hive-exec", "hive-jdbc", "hive-metastore"),
    *("datanucleus-", "spark-connect", "spark-pipelines", "spark-repl"),
)
"""The first letters of archives that no application of Penstock uses: machine learning, other
masters than Spark's own, Hive, Spark Connect, the shell."""

_SERVER: Final = "org.apache.spark.api.python.PythonGatewayServer"
_SOCKET_BYTES: Final = 103
"""The longest path of a socket, on Linux and macOS."""

_LOOK_S: Final = 0.005
_END_S: Final = 60.0
_RECORD_S: Final = 1_800.0
"""The time that Java may take to end after it was asked to write a class archive, at low priority."""


# The packages that Spark's own launcher opens (`JavaModuleOptions`). The launcher also adds the module
# jdk.incubator.vector, which prints a warning, slows the start, and serves only Spark's machine learning.
_OPENED: Final = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net")),
    *(f"java.base/java.{name}" for name in ("nio", "util", "util.concurrent")),
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    *(f"java.base/sun.{name}" for name in ("nio.ch", "nio.cs", "security.action")),
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_OPTIONS: Final = (
    # Without it, Java begins with 1/64 of the memory of the machine, and collects the old part only when that is full: on
    # 25 GB, 41 MB in use grew for hours towards 375 MB. The heap still grows up to -Xmx where more is in use.
    "-Xms96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xss4m",
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "-Dderby.connection.requireAuthentication=false",
)
UNVERIFIED: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Without a class archive, Java would check the code of each class that it loads, a fifth of the work of
such a start. The classes are those of the installed Spark and of Penstock. Classes in an archive are checked."""
# Java 17 does not know these.
_OPTIONS_SINCE: Final = {
    22: "--enable-native-access=ALL-UNNAMED",
    23: "--sun-misc-unsafe-memory-access=allow",
}


class Jvm:
    """Spark's Java process; it is started by the constructor."""

    def __init__(self, config: Config, scratch: Path, *, record: Path | None = None) -> None:
        """Start Java; return without waiting for it.

        Args:
            scratch: A directory that only this process uses; it is created if it is missing.
            record: Where Java writes a class archive when it ends; None if it writes none.
        """
        private.create(config.data)
        startup.note(config.data, "driver", "Java starts")
        self.scratch = scratch.absolute()
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._connection = self.scratch / "java-connection"
        self._connection.unlink(missing_ok=True)
        self._end_s = _END_S if record is None else _RECORD_S
        spark = spark_home()
        class_path = jars(spark)
        # The Java that has written an archive need not be tried; a try would take a fifth of a second.
        java = find_java(lambda tried: ClassArchive.of(tried, class_path).exists)
        self.archive = ClassArchive.of(java, class_path)
        # Java unpacks libraries and makes sockets there, and a killed one leaves them. The path of the scratch is too
        # long for sockets.
        self._temporary = ExitStack()
        temporary = self._temporary.enter_context(temporary_folder("java"))
        atexit.register(
            self._temporary.close
        )  # a driver that stops leaves the end of Java to the end of its process
        self._process = subprocess.Popen(  # noqa: S603 -- the command is our own
            self._command(config, java, class_path, record, temporary),
            env=self._environment(config, java.home, spark),
            stdin=subprocess.PIPE,  # Java ends when this pipe closes
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C in a terminal does not reach it
        )
        self._output = JavaOutput(self._process, config.data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def gateway(self) -> Any:
        """Wait until Java takes connections, and connect to it without Spark's Python."""
        from py4j.clientserver import ClientServer, JavaParameters  # noqa: PLC0415 -- while Java starts

        port, secret = self._await_connection()
        return ClientServer(JavaParameters(port=port, auth_token=secret))

    def connect(self) -> None:
        """Wait until Java takes connections, and let PySpark use this process."""
        port, secret = self._await_connection()
        from pyspark.core.context import SparkContext  # noqa: PLC0415 -- while Java starts
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

        chosen = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(chosen)
        try:
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in chosen:
                del os.environ[name]
        gateway.proc = self  # PySpark keeps the process here, too, for as long as it uses it
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 -- there is no public way

    def poll(self) -> int | None:
        """Return the exit code of Java; None while it runs. `subprocess.Popen` has the same method."""
        return self._process.poll()

    def expect_end(self) -> None:
        """Show no traces of interrupted workers from now on."""
        self._output.expect_end()

    def kill(self) -> None:
        """End Java at once; every call of it that runs fails."""
        self.expect_end()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End Java, and wait until it has ended."""
        assert self._process.stdin is not None
        self.expect_end()
        self._process.stdin.close()
        try:
            self._process.wait(self._end_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._temporary.close()

    def _command(
        self,
        config: Config,
        java: Java,
        class_path: list[Path],
        record: Path | None,
        temporary: Path,
    ) -> list[str]:
        if record is not None:
            sharing = [f"-XX:ArchiveClassesAtExit={record}", "-Xlog:disable"]
        else:
            sharing = self.archive.options() if config.class_archive else []
        # Java reads a class archive only with the class path with which it was written.
        own = [self.archive.classes] if sharing else []
        sharing = sharing or list(UNVERIFIED)
        return [
            str(java.home / "bin" / "java"),
            *sharing,
            f"-Xmx{config.driver_memory_mb}m",
            *_OPTIONS,
            *(option for since, option in _OPTIONS_SINCE.items() if java.version >= since),
            *_temporary_options(temporary),
            f"-Dderby.system.home={self.scratch}",
            java_log_option(self.scratch, config.log_format),
            "-cp",
            os.pathsep.join(map(str, [*own, *class_path])),
            _SERVER,
        ]

    def _environment(self, config: Config, home: Path, spark: Path) -> dict[str, str]:
        """Set the variables that PySpark reads, and return those of Java and of the workers."""
        os.environ["JAVA_HOME"] = str(home)
        if not config.is_cluster:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYTHONHASHSEED"] = "0"  # inherited by workers: sets iterate alike everywhere
        choose_python(self.scratch)
        return {
            **os.environ,
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
        }

    def _await_connection(self) -> tuple[int, str]:
        """Return the port and the secret that Java has written."""
        while not self._connection.exists():  # Java renames the complete file to this name
            if (code := self._process.poll()) is not None:
                raise OperationalError(
                    f"Java has ended with exit code {code} before Spark started; "
                    f"{self._output.path} has its messages"
                )
            if self._output.failure:
                self._process.kill()  # its other threads would go on without end
                raise OperationalError(
                    f"Java cannot start: {self._output.failure}; {self._output.path} has its messages"
                )
            time.sleep(_LOOK_S)
        answer = self._connection.read_bytes()
        self._connection.unlink()
        port, length = struct.unpack_from(">ii", answer)
        return port, answer[8 : 8 + length].decode()


def _temporary_options(folder: Path) -> list[str]:
    """Let Java use a folder for temporary files, if the paths of Spark's sockets there are not too long."""
    longest = folder / f".{uuid4()}.sock"
    return [f"-Djava.io.tmpdir={folder}"] if len(os.fsencode(longest)) <= _SOCKET_BYTES else []


def java_has_ended() -> bool:
    """Say whether the Java process that PySpark uses has ended; False if it uses none."""
    from pyspark.core.context import SparkContext  # noqa: PLC0415 -- as in `Jvm.connect`

    process: Any = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 -- there is no public way
    return process is not None and process.poll() is not None


def choose_python(scratch: Path) -> None:
    """Let PySpark start its workers through a launcher, which is written into `scratch`."""
    python = str(write_python(scratch.absolute() / "python"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python


def spark_home() -> Path:
    """Return the folder of the installed Spark, without importing PySpark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is not installed; install it: pip install 'penstock[server]'")
    # Environments that are links to each other share the class archive, which holds these paths.
    return Path(spec.origin).resolve().parent


def jars(spark: Path) -> list[Path]:
    """Return Spark's archives without those of unused parts, in the same order in every process."""
    # Spark's machine learning registers itself with every session, which takes a fifth of a start. The other parts are
    # left out because Java searches all archives for a class.
    archives = sorted((spark / "jars").glob("*.jar"))
    return [path for path in archives if not path.name.startswith(_UNUSED)]
