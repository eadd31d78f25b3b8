"""Presence files: which processes run, and the traces of a killed process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.errors import ConfigError
from penstock.files.layout import RUN
from penstock.process.presence import Presence, find, present

ANNOUNCE = """
import sys
from pathlib import Path
from penstock.process.presence import present
with present(Path(sys.argv[1]), sys.argv[2], "other"):
    print("present", flush=True)
    sys.stdin.read()
"""


def another(data: Path, role: str) -> "subprocess.Popen[str]":
    """Start a process that is present until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCE, str(data), role],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "present\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.communicate(timeout=300)


def files(data: Path) -> list[str]:
    return sorted(path.name for path in (data / RUN).iterdir())


def test_process_is_found_while_it_is_present(tmp_path: Path) -> None:
    """Others see role, application and details, until the block ends and not a file is left."""
    with present(tmp_path, "gateway", "shop", url="http://127.0.0.1:1"):
        (found,) = find(tmp_path, "gateway")
        assert (found.pid, found.role, found.app) == (os.getpid(), "gateway", "shop")
        assert found.details == {"url": "http://127.0.0.1:1"}
        assert find(tmp_path, "driver") == []
    assert find(tmp_path, "gateway") == []
    assert files(tmp_path) == []


def test_roles_of_one_process_refuse_a_second(tmp_path: Path) -> None:
    """A second driver is told which process is the first; a second gateway is welcome."""
    driver, gateway = another(tmp_path, "driver"), another(tmp_path, "gateway")
    with (
        pytest.raises(ConfigError, match=f"process {driver.pid} runs other"),
        present(tmp_path, "driver", "app"),
    ):
        pytest.fail("entered")
    with present(tmp_path, "gateway", "app"):
        assert {one.pid for one in find(tmp_path, "gateway")} == {os.getpid(), gateway.pid}
    assert [one.pid for one in find(tmp_path, "driver")] == [driver.pid]
    end(driver)
    end(gateway)


def test_killed_process_is_neither_found_nor_in_the_way(tmp_path: Path) -> None:
    """The file of a killed process counts for no process, not even as a zombie; the next removes it."""
    driver = another(tmp_path, "driver")
    os.kill(driver.pid, signal.SIGKILL)
    os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert find(tmp_path, "driver") == []
    with present(tmp_path, "view", "app"):
        assert files(tmp_path) == [f"view-{os.getpid()}.json"]
    end(driver)


def test_process_id_that_was_given_again_names_nobody(tmp_path: Path) -> None:
    """A process is its id and the time at which it started."""
    with present(tmp_path, "driver", "app"):
        (path,) = (tmp_path / RUN).iterdir()
        mine = msgspec.json.decode(path.read_bytes(), type=Presence)
        older = msgspec.structs.replace(mine, start="of another process")
        path.write_bytes(msgspec.json.encode(older))
        assert find(tmp_path, "driver") == []
        path.write_bytes(b"{")
        assert find(tmp_path, "driver") == []


def test_process_is_found_after_the_clock_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system computes the time of a start from the present clock; a running process stays known."""
    with present(tmp_path, "driver", "app"):
        before = psutil.Process().create_time()
        monkeypatch.setattr(psutil.Process, "create_time", lambda _: before + 60.0)
        assert [running.pid for running in find(tmp_path, "driver")] == [os.getpid()]
        with present(tmp_path, "view", "app"):
            assert len(files(tmp_path)) == 2
