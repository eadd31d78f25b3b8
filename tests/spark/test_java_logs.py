"""Spark's Java process: the lines that it writes, and its heap."""

import json
import re
import subprocess
import sys
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import logging
import sys
from pathlib import Path
from penstock.process.config import Config
from penstock.runtime.spark.jvm import java_log_option
from penstock.runtime.spark.session import session_of_context, start_context
logging.disable()  # Python may tell that the connection ends with the session; only Java's lines count here
folder = Path(sys.argv[1])
config = Config(folder, cores=1, log_format="json", driver_memory_mb=700)
start_context("logs", config, folder)
session = session_of_context()
java = session.sparkContext._jvm
print(*java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
log = java.org.slf4j.LoggerFactory.getLogger("org.apache.spark.Somewhere")
def write():
    log.warn("it is nothing")
    log.error('lost\\n2026-01-01 "all is well"')
    log.error("failed", java.java.lang.RuntimeException("because\\nof it"))
write()
# A start of Java takes seconds, so this one gets the other configuration, too.
other = folder / "text"
other.mkdir()
_, _, path = java_log_option(other, "text").partition("=")
java.org.apache.logging.log4j.core.config.Configurator.reconfigure(java.java.net.URI(path))
write()
process = session.sparkContext._gateway.proc
session.stop()
process.close()  # it waits for the rest of the output
"""
BEFORE_ANY_SETTING = "WARNING: Using incubator modules"
EVENT = {"level": "error", "logger": "org.apache.spark.Somewhere", "role": "driver"}


class Ran(NamedTuple):
    """What a Java process has been started with, and what it has written."""

    options: list[str]
    lines: list[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Write the same messages in both forms, first in JSON."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("java"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    return Ran(
        done.stdout.split(), [line for line in lines if not line.startswith(BEFORE_ANY_SETTING)]
    )


def test_java_writes_json_for_programs(ran: Ran) -> None:
    """Errors are one object each, with the usual fields of the log output; all else is quiet."""
    first, second = (json.loads(line) for line in ran.lines[:2])
    assert EVENT.items() <= first.items()
    assert first.keys() == {"time", "level", "logger", "role", "pid", "event"}
    assert first["event"] == 'lost\n2026-01-01 "all is well"'
    assert second["exception"].startswith("java.lang.RuntimeException: because\nof it")


def test_java_writes_lines_for_people(ran: Ran) -> None:
    """A start that goes well says nothing; an error is one line, and its trace below."""
    first, second, third, *_ = ran.lines[2:]
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf'{time} error org\.apache\.spark\.Somewhere: lost\\n2026.*"', first)
    assert second.endswith(": failed")
    assert third == "java.lang.RuntimeException: because"


def test_heap_has_the_size_of_the_setting(ran: Ran) -> None:
    """Java gets `driver_memory_mb` as the limit of its heap, and begins with a heap that does not depend on the machine."""
    assert {"-Xmx700m", "-Xms96m"} <= set(ran.options)
