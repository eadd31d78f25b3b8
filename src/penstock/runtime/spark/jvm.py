"""The Java process of Spark, which starts while Python still imports PySpark.

PySpark itself starts Java through a shell script and a second Java process, and waits for both. Penstock
starts Java directly. The process reads the class archive, if there is one, and ends when this process
ends.

Java and PySpark write a trace of many lines for events that are normal, such as a worker that ends while it is idle.
`JavaOutput` writes all of the output to `run/java.log` in the data directory. On standard error, a trace is one line that
names this file; while Java is stopped, it is no line at all, and neither is the end of an idle worker. All other lines
appear unchanged, such as those that a handler prints.
"""

import atexit
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, TextIO
from uuid import uuid4

from penstock.errors import ConfigError, OperationalError
from penstock.files import private
from penstock.files.layout import RUN
from penstock.files.temporary_folder import temporary_folder
from penstock.process import startup
from penstock.process.config import Config
from penstock.runtime.spark.class_archive import ClassArchive
from penstock.runtime.spark.java import Java, find_java
from penstock.runtime.spark.launcher import write_python

FILE_NAME: Final = "java.log"
BYTES_MAX: Final = 8 << 20
"""The size at which the file becomes `java.log.1`, whose predecessor is removed."""

QUIET_S: Final = 0.2
"""The time without output after which a trace is complete."""

_BLOCK: Final = 64 << 10
_PYTHON: Final = "Traceback (most recent call last):"
_FLUSH: Final = "PySpark daemon failed to flush the output to the worker process:"
"""PySpark's line before some traces of a worker whose connection has ended."""

_FRAME: Final = re.compile(r'\s+File "')
_LAST_FLUSH: Final = re.compile(r'\s+File ".*pyspark/daemon\.py", line \d+, in worker$')
"""The innermost frame of a worker whose connection has ended: usually Spark has ended an idle worker."""

_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_JAVA: Final = re.compile(r"\s+at [\w.$/<>@-]+\(.*\)$")
_JAVA_MORE: Final = re.compile(r"\s+\.\.\. \d+ |\s*(Caused by|Suppressed): ")
_THROWN: Final = re.compile(r"([a-z][\w$]*\.)+[A-Z]\w*(Exception|Error)\b")

_MAIN_ENDED: Final = 'Exception in thread "main" '
_TIME: Final = "%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC}"
_PATTERNS: Final = {
    "text": f"{_TIME} %level{{lowerCase=true}} %c: %enc{{%m}}{{CRLF}}%n%throwable",
    "json": (
        f'{{"time": "{_TIME}", "level": "%level{{lowerCase=true}}", "logger": "%c", '
        '"role": "driver", "pid": %pid, "event": "%enc{%m}{JSON}"'
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
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""
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
_UNVERIFIED: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Without a class archive, Java would check the code of each class that it loads, a fifth of the work of
such a start. The classes are those of the installed Spark and of Penstock. Classes in an archive are checked."""
# Java 17 does not know these.
_OPTIONS_SINCE: Final = {
    22: "--enable-native-access=ALL-UNNAMED",
    23: "--sun-misc-unsafe-memory-access=allow",
}


class TraceFolder:
    """Makes one line of each trace; it keeps the newest line until it knows the next one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: str | None = None
        self._thrown: str | None = None  # below the kept line; a trace of Java may follow it
        self._folded = False
        self._in_python = False  # between "Traceback" and the line with the error
        self._at_flush = False  # the innermost frame of the trace is a worker's last flush
        self.is_ending = False  # a stop interrupts workers: their traces tell nothing

    def take(self, line: str) -> list[str]:
        """Take a line; return the lines that are complete now."""
        if line == _FLUSH:
            return self.flush()
        if line == _PYTHON:
            ready = [] if self._folded and self._kept is None else self.flush()
            self._in_python = self._folded = True
            return ready
        if self._in_python:
            self._take_of_python(line)
            return []
        if self._belongs_to_kept(line):
            return []
        ready = self.flush()
        self._kept = line
        return ready

    def _take_of_python(self, line: str) -> None:
        """Take a line of a trace of Python; keep the error in its last line."""
        if _FRAME.match(line):
            self._at_flush = _LAST_FLUSH.match(line) is not None
        elif line and not line[0].isspace():  # the error itself
            is_normal = self._at_flush and line.startswith("BrokenPipeError")
            self._kept = None if is_normal else line
            self._in_python = self._at_flush = False

    def _belongs_to_kept(self, line: str) -> bool:
        """Say whether a line continues the trace of the line that is kept."""
        if self._folded and line.startswith(_CHAINED):
            self._kept = None  # the error that follows is the one that matters
        elif self._kept is not None and _JAVA.match(line):
            self._folded, self._thrown = True, None
        elif self._kept is not None and not self._folded and _THROWN.match(line):
            if self._thrown is not None:
                return False
            self._thrown = line
        else:
            return self._folded and (not line.strip() or _JAVA_MORE.match(line) is not None)
        return True

    def flush(self) -> list[str]:
        """Return the lines that were kept."""
        kept = [line for line in (self._kept, self._thrown) if line is not None]
        folded, self._folded, self._in_python = self._folded, False, False
        self._kept = self._thrown = None
        if folded and self.is_ending:
            return []
        return [f"{line} (all of it is in {self._path})" for line in kept] if folded else kept


class JavaOutput:
    """Passes the output of a process on, in a thread that ends with the output.

    Attributes:
        failure: The exception that has ended the main thread, in one line; empty before. Java itself goes on then.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], data: Path, stream: TextIO | None = None
    ) -> None:
        """Begin to read the output of a process.

        Args:
            process: The process; its standard output is a pipe.
            stream: The file for the lines; None stands for standard error.
        """
        assert process.stdout is not None
        self.path = data / RUN / FILE_NAME
        self.failure = ""
        self._source = process.stdout
        self._stream = stream or sys.stderr
        self._folder = TraceFolder(self.path)
        self._thread = threading.Thread(
            target=self._pass_on, name="penstock-java-output", daemon=True
        )
        self._thread.start()

    def expect_end(self) -> None:
        """Keep traces in the file only, from now on: the process is being stopped."""
        self._folder.is_ending = True

    def close(self) -> None:
        """Wait for the rest of the output; workers that Java left behind may keep it open."""
        self._thread.join(QUIET_S * 5)

    def _pass_on(self) -> None:
        """Read until the end; no error of the file or of the stream may end it, or Java would block."""
        rest = b""
        while True:
            readable, _, _ = select.select([self._source], [], [], QUIET_S)
            if not readable:
                self._show(self._folder.flush())
                continue
            block = os.read(self._source.fileno(), _BLOCK)
            self._keep(block)
            *lines, rest = (rest + block).split(b"\n")
            if not block:
                lines, rest = [rest] if rest else [], b""
            for line in lines:
                text = line.decode(errors="replace")
                self.failure = self.failure or text.partition(_MAIN_ENDED)[2]
                self._show(self._folder.take(text))
            if not block:
                self._show(self._folder.flush())
                self._source.close()
                return
            if len(rest) > _BLOCK:  # a line without an end
                self._show(self._folder.take(rest.decode(errors="replace")))
                rest = b""

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            with suppress(OSError, ValueError):
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def _keep(self, block: bytes) -> None:
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(block)
                size = file.tell()
            if size >= BYTES_MAX:
                self.path.replace(self.path.with_name(f"{FILE_NAME}.1"))


# A successful start prints nothing, and in the JSON format an event is one line. Messages that the JVM
# prints before it reads these settings are not affected.


def java_log_option(folder: Path, form: str) -> str:
    """Write the settings of Java's log output into a folder; return the JVM option that names them."""
    path = folder / "log4j2.properties"
    path.write_text(_SETTINGS.format(pattern=_PATTERNS[form]))
    return f"-Dlog4j2.configurationFile={path.absolute().as_uri()}"


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
            env=self._environment(java.home, spark),
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
        sharing = sharing or list(_UNVERIFIED)
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

    def _environment(self, home: Path, spark: Path) -> dict[str, str]:
        """Set the variables that PySpark reads, and return those of Java and of the workers."""
        os.environ["JAVA_HOME"] = str(home)
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
