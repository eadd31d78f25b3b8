"""`penstock run` as a whole, with Spark: it survives kills, and leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from penstock.process import presence
from tests.checkout import SHOP, TOP
from tests.private_files import open_to_others
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RUN = """
    import sys
    from pathlib import Path
    from rich.console import Console
    from penstock.cli.running.foreground import Foreground
    from penstock.cli.running.processes import ChildOptions, children_of
    from penstock.process.config import Config, GatewayConfig
    from penstock.deployment.loading import load_app
    from penstock.runtime.spark.class_archive import ClassArchive
    from penstock.runtime.spark.java import find_java
    from penstock.runtime.spark.jvm import jars, spark_home

    def without_view(options, settings):
        return [child for child in children_of(options, settings) if child.role != "view"]

    app, data = sys.argv[1:]
    settings = Config(Path(data), cores=2, gateway=GatewayConfig(port=0))
    # The process that makes a missing class archive outlives its driver.
    archive = ClassArchive.of(find_java(), jars(spark_home()))
    options = ChildOptions(app, None, ["cores=2", f"class_archive={int(archive.exists)}"])
    Foreground(load_app(app), options, settings, Console(), without_view).run()
"""


class Running:
    """A supervisor in a process of its own, with a driver and a gateway."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.output = data.with_suffix(".out")
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(RUN), SHOP, str(data)],
                stdout=output,
                stderr=output,
                cwd=TOP,
            )
        self._below: dict[int, psutil.Process] = {}

    def is_announced(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()
        return "try  " in self.output.read_text()

    def note_below(self) -> None:
        for one in psutil.Process(self.process.pid).children(recursive=True):
            self._below[one.pid] = one

    def left(self) -> list[psutil.Process]:
        """Return who still runs of all that was ever noted."""
        return [one for one in self._below.values() if is_running(one)]

    def driver_other_than(self, pid: int) -> int:
        for one in presence.find(self.data, "driver"):
            if one.pid != pid:
                return one.pid
        return 0

    def penstock(self, command: str, *words: str) -> tuple[int, str]:
        arguments = [sys.executable, "-m", "penstock", command, *words, "--data", str(self.data)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=TOP)
        return done.returncode, done.stdout

    def status(self) -> dict[str, Any]:
        code, out = self.penstock("status", "--json")
        found: dict[str, Any] = json.loads(out)
        assert found["running"] == (code == 0)
        return found

    def ask(self, path: str, request_id: str) -> str:
        """Send a request over HTTP and wait for its answer."""
        (supervisor,) = presence.find(self.data, "supervisor")
        headers = {"Idempotency-Key": request_id}
        answer = httpx.post(f"{supervisor.details['url']}{path}", headers=headers, timeout=120)
        assert answer.status_code == 200, (answer.text, self.output.read_text())
        return answer.text


def is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path / "data")
    try:
        wait_for(found.is_announced, "the start")
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        wait_for(lambda: not found.left(), f"the end of {found.left()}")


def test_killed_driver_comes_back_and_a_stop_leaves_nobody(running: Running) -> None:
    """Requests before and during the driver's death are answered; SIGTERM ends all with 0.

    All files, Java's too, are readable for their owner only.
    """
    item = json.loads(running.ask("/stock/item/create/3", "a"))["item_id"]
    before = running.status()
    roles = {one["role"] for one in before["processes"]}
    assert roles == {"supervisor", "driver", "jvm", "worker", "gateway"}
    assert (before["app"], before["log_end"], before["lag"]) == ("shop", 1, 0)

    killed = running.driver_other_than(0)
    running.note_below()
    os.kill(killed, signal.SIGKILL)
    for _ in range(2):
        answer = running.ask(f"/stock/add/{item}/5", "b")
        assert answer == f"Item: {item} stock updated to: 5"
    assert running.driver_other_than(killed)
    assert "driver ended with SIGKILL" in running.output.read_text()
    assert {"scratch", "checkpoint", "state"} <= {one.name for one in running.data.iterdir()}
    assert open_to_others(running.data) == []

    running.note_below()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(120) == 0
    assert running.output.read_text().splitlines()[-1] == "stopped"
    wait_for(lambda: not running.left(), "the end of all below")
    after = running.status()
    assert (after["running"], after["processes"], after["log_end"]) == (False, [], 2)


def test_killed_supervisor_leaves_nobody(running: Running) -> None:
    """The gateway, the driver, its JVM and its workers end by themselves when their supervisor is gone."""
    running.note_below()
    running.process.kill()
    running.process.wait()
    wait_for(lambda: not running.left(), "the end of all below")
