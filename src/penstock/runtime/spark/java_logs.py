"""What Java writes to standard error: Spark's errors, in the form of the process's own log output.

Promises that nothing is said of a start that goes well, and that one event is one line in the form
for programs. What the JVM itself prints before any of it is read is not in its hands.
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
# PySpark's door announces that it changes the level, unless it finds its own like that of the rest.
logger.door.name = org.apache.spark.api.python.PythonGatewayServer
logger.door.level = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""


def java_log_option(folder: Path, form: str) -> str:
    """Write the settings of Java's log output into a folder; return the option that names them."""
    path = folder / "log4j2.properties"
    path.write_text(_SETTINGS.format(pattern=_PATTERNS[form]))
    return f"-Dlog4j2.configurationFile={path.absolute().as_uri()}"
