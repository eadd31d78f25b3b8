"""The log output of Java: Spark's errors on standard error, in the format of the process's own log.

A successful start prints nothing, and in the JSON format an event is one line. Messages that the JVM
prints before it reads these settings are not affected.
"""

from pathlib import Path
from typing import Final

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


def java_log_option(folder: Path, form: str) -> str:
    """Write the settings of Java's log output into a folder; return the JVM option that names them."""
    path = folder / "log4j2.properties"
    path.write_text(_SETTINGS.format(pattern=_PATTERNS[form]))
    return f"-Dlog4j2.configurationFile={path.absolute().as_uri()}"
