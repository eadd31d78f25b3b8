"""Spark's Java process: the lines that it writes, and its heap."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import logging
import sys
from pathlib import Path
from penstock.process.config import Config
from penstock.runtime.spark.session import session_of_context, start_context
logging.disable()  # Python may tell that the connection ends with the session; only Java's lines count here
folder = Path(sys.argv[1])
config = Config(folder, cores=1, log_format=sys.argv[2], driver_memory_mb=700)
start_context("logs", config, folder)
session = session_of_context()
java = session.sparkContext._jvm
print(*java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
log = java.org.slf4j.LoggerFactory.getLogger("org.apache.spark.Somewhere")
log.warn("it is nothing")
log.error('lost\\n2026-01-01 "all is well"')
log.error("failed", java.java.lang.RuntimeException("because\\nof it"))
process = session.sparkContext._gateway.proc
session.stop()
process.close()  # it waits for the rest of the output
"""
BEFORE_ANY_SETTING = "WARNING: Using incubator modules"
EVENT = {"level": "error", "logger": "org.apache.spark.Somewhere", "role": "driver"}


Ran = subprocess.CompletedProcess[str]


def run(folder: Path, form: str) -> Ran:
    command = [sys.executable, "-c", PROGRAM, str(folder), form]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def written(ran: Ran) -> list[str]:
    lines = ran.stderr.splitlines()
    return [line for line in lines if not line.startswith(BEFORE_ANY_SETTING)]


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tmp_path_factory.mktemp("java"), "text")


def test_java_writes_json_for_programs(tmp_path: Path) -> None:
    """Errors are one object each, with the usual fields of the log output; all else is quiet."""
    first, second = (json.loads(line) for line in written(run(tmp_path, "json")))
    assert EVENT.items() <= first.items()
    assert first.keys() == {"time", "level", "logger", "role", "pid", "event"}
    assert first["event"] == 'lost\n2026-01-01 "all is well"'
    assert second["exception"].startswith("java.lang.RuntimeException: because\nof it")


def test_java_writes_lines_for_people(text_run: Ran) -> None:
    """A start that goes well says nothing; an error is one line, and its trace below."""
    first, second, third, *_ = written(text_run)
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf'{time} error org\.apache\.spark\.Somewhere: lost\\n2026.*"', first)
    assert second.endswith(": failed")
    assert third == "java.lang.RuntimeException: because"


def test_heap_has_the_size_of_the_setting(text_run: Ran) -> None:
    """Java gets `driver_memory_mb` as the limit of its heap."""
    assert "-Xmx700m" in text_run.stdout.split()
