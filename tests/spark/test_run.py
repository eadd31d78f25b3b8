"""`penstock run` as a whole, with Spark: it survives kills, and leaves no process behind."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from penstock.process import presence
from penstock.process.status import status_in
from penstock.process.view_files import ROLE
from penstock.process.view_standing import view_standings
from tests.checkout import TOP
from tests.private_files import open_to_others
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark]

REPORTING = str(TOP / "examples" / "shop" / "reporting.py")

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
                [sys.executable, "-c", textwrap.dedent(RUN), REPORTING, str(data)],
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

    def applier_other_than(self, pid: int) -> int:
        return next((one.pid for one in presence.find(self.data, ROLE) if one.pid != pid), 0)

    def shown(self, query: str) -> list[tuple[Any, ...]]:
        """Return rows of the reporting database; none before it is filled."""
        path = self.data / "views" / "reporting" / "view.sqlite"
        if not path.exists():
            return []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            try:
                return file.execute(query).fetchall()
            except sqlite3.OperationalError:
                return []

    def shows_the_newest(self) -> bool:
        """Whether the reporting database follows, and shows the newest epoch."""
        # Not by a command: it takes half a second of a processor each time that a test looks.
        newest = status_in(self.data, "shop").epoch
        found = [(view.state, view.lag) for view in view_standings(self.data, newest)]
        return found == [("following", 0)]

    def reporting(self) -> dict[str, Any]:
        """Return how the reporting database stands."""
        code, out = self.penstock("view", "list", "--json")
        assert code == 0, out
        (view,) = json.loads(out)["views"]
        return dict(view)

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


@contextmanager
def running(data: Path) -> Iterator[Running]:
    found = Running(data)
    try:
        wait_for(found.is_announced, "the start")
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        wait_for(lambda: not found.left(), f"the end of {found.left()}")


def check_reporting_survives_a_kill(running: Running, item: str) -> None:
    """The view stands at the newest epoch; its applier is killed, comes back, and goes on where it was."""
    stocks = f"SELECT stock FROM Item WHERE item_id = '{item}'"
    wait_for(lambda: running.shown(stocks) == [(0,)], "the first row")
    wait_for(running.shows_the_newest, "the end of the fill")
    killed = running.applier_other_than(0)
    os.kill(killed, signal.SIGKILL)
    running.ask(f"/stock/add/{item}/4", "c")
    wait_for(lambda: running.shown(stocks) == [(4,)], "the row after the kill")
    assert running.applier_other_than(killed)
    assert "applier ended with SIGKILL" in running.output.read_text()
    wait_for(running.shows_the_newest, "the newest epoch")
    view, newest = running.reporting(), running.status()["epoch"]
    assert (view["state"], view["epoch"], view["incomplete"]) == ("following", newest, False)


def check_killed_supervisor_leaves_nobody(running: Running) -> None:
    """The gateway, the driver, its JVM and its workers end by themselves when their supervisor is gone."""
    running.note_below()
    running.process.kill()
    running.process.wait()
    wait_for(lambda: not running.left(), "the end of all below")


def check_stop_leaves_nobody(running: Running) -> None:
    """SIGTERM ends all with 0, also the applier of a view."""
    running.note_below()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(120) == 0
    assert running.output.read_text().splitlines()[-1] == "stopped"
    wait_for(lambda: not running.left(), "the end of all below")
    after = running.status()
    assert (after["running"], after["processes"], after["log_end"]) == (False, [], 3)


@pytest.mark.turns(
    1,
    *("runtime", "process", "engine", "cli/running", "views"),
    of="faults of an application under load",
)
def test_killed_application_goes_on_where_it_was_and_a_stop_leaves_nobody(tmp_path: Path) -> None:
    """Applier and supervisor are killed; the next start has all requests, and the view follows it.

    All files, Java's too, are readable for their owner only. `test_live_changes` kills the driver of a run.
    """
    data = tmp_path / "data"
    with running(data) as first:
        item = json.loads(first.ask("/stock/item/create/3", "a"))["item_id"]
        wait_for(lambda: first.applier_other_than(0), "the applier")
        before = first.status()
        roles = {one["role"] for one in before["processes"]}
        assert roles == {"supervisor", "driver", "jvm", "worker", "gateway", ROLE}
        assert (before["app"], before["log_end"], before["lag"]) == ("shop", 1, 0)
        check_reporting_survives_a_kill(first, item)
        check_killed_supervisor_leaves_nobody(first)
    with running(data) as second:
        for _ in range(2):
            answer = second.ask(f"/stock/add/{item}/5", "b")
            assert answer == f"Item: {item} stock updated to: 9"
        wait_for(
            lambda: second.shown("SELECT stock FROM Item") == [(9,)], "the row after the start"
        )
        assert {"scratch", "checkpoint", "state"} <= {one.name for one in data.iterdir()}
        assert open_to_others(data) == []
        check_stop_leaves_nobody(second)
