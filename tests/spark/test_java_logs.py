"""Java's standard error while Spark runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pathlib import Path
from penstock.process.config import Config
from penstock.runtime.spark.session import start_session
folder = Path(sys.argv[1])
session = start_session("logs", Config(folder, cores=1, log_format=sys.argv[2]), folder)
java = session.sparkContext._jvm
log = java.org.slf4j.LoggerFactory.getLogger("org.apache.spark.Somewhere")
log.warn("it is nothing")
log.error('lost\\n2026-01-01 "all is well"')
log.error("failed", java.java.lang.RuntimeException("because\\nof it"))
session.stop()
"""
BEFORE_ANY_SETTING = "WARNING: Using incubator modules"
EVENT = {"level": "error", "logger": "org.apache.spark.Somewhere", "role": "driver"}


def written(folder: Path, form: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder), form]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    return [line for line in lines if not line.startswith(BEFORE_ANY_SETTING)]


def test_java_writes_json_for_programs(tmp_path: Path) -> None:
    """Errors are one object each, with the usual fields of the log output; all else is quiet."""
    first, second = (json.loads(line) for line in written(tmp_path, "json"))
    assert EVENT.items() <= first.items()
    assert first.keys() == {"time", "level", "logger", "role", "pid", "event"}
    assert first["event"] == 'lost\n2026-01-01 "all is well"'
    assert second["exception"].startswith("java.lang.RuntimeException: because\nof it")


def test_java_writes_lines_for_people(tmp_path: Path) -> None:
    """A start that goes well says nothing; an error is one line, and its trace below."""
    first, second, third, *_ = written(tmp_path, "text")
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf'{time} error org\.apache\.spark\.Somewhere: lost\\n2026.*"', first)
    assert second.endswith(": failed")
    assert third == "java.lang.RuntimeException: because"
