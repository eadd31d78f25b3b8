"""`--processes`: tests in several processes have the reports and the fixtures that they have in one."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.checkout import TOP

CONFTEST = """
import os
import pytest
from tests.processes import pytest_addoption, pytest_runtestloop

@pytest.fixture(scope="session")
def whole(request):
    print("session of", os.getpid())
    yield
    (request.config.rootpath / f"ended-{os.getpid()}").touch()

@pytest.fixture(scope="module")
def part(request, whole):
    yield request.config.rootpath
    (request.config.rootpath / f"{request.path.stem}-ended-{os.getpid()}").touch()
"""
PASSES = """
import os

def test_one(part, tmp_path):
    (tmp_path / "file").write_text("here")

def test_two(part):
    assert not list(part.glob("test_passes-ended-*"))
"""
FAILS = """
import os, signal, warnings
import pytest

def test_output(part):
    print("seen")
    assert os.getpid() == 0

def test_skipped(part):
    pytest.skip("not here")

def test_killed(part):
    os.kill(os.getpid(), signal.SIGKILL)

def test_behind(part):
    warnings.warn("told", UserWarning)
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-ra",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
    ]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    return subprocess.run(
        [*command, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_test_is_reported_once_and_a_dead_process_is_replaced(tmp_path: Path) -> None:
    """Failures have their output, the tests behind a death run, and fixtures end where they end in one process."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(3):
        (tmp_path / f"test_passes{number}.py").write_text(PASSES)
    (tmp_path / "test_fails.py").write_text(FAILS)
    done = run(tmp_path, "--processes", "2", "--junitxml", "junit.xml", "--basetemp", "temporary")
    assert done.returncode == 1, done.stderr
    assert "2 failed, 7 passed, 1 skipped" in done.stdout
    assert "seen" in done.stdout
    assert "UserWarning: told" in done.stdout
    assert "test_killed - the process of this test has ended with -9" in done.stdout
    cases = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")
    assert (
        len({case.get("name", "") + case.get("classname", "") for case in cases})
        == len(cases)
        == 10
    )
    assert len(list(tmp_path.glob("ended-*"))) == 2, "two of three processes have ended in order"
    assert len(list(tmp_path.glob("test_passes?-ended-*"))) == 3
    assert len(list(tmp_path.glob("test_fails-ended-*"))) == 1
    assert len(list((tmp_path / "temporary").glob("process*/test_one[0-9]/file"))) == 3
