"""Views as an operator has them: a deployment starts and ends their appliers, and orders reach them."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from penstock.base.ids import Epoch, RequestId
from penstock.cli.main import execute
from penstock.cli.running.processes import ChildOptions, Followers
from penstock.cli.running.supervisor import Supervisor
from penstock.files.layout import JOURNAL
from penstock.history.restore import fork
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry
from penstock.model.request import Request, encode_request
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.view_files import ROLE
from tests.deployments import kept_imports, stored_code, write_version
from tests.differential.inline import Inline
from tests.waiting import meanwhile, wait_for

__all__ = ["kept_imports"]

JAR = """
    from penstock import App, Entity, key, sqlite, view

    class Jar(Entity):
        name: str = key()
        beans: int = 0

        def put(self) -> int:
            self.beans += 1
            return self.beans

    app = App("jars", Jar{views})
"""
SECRET = "sqlite://hunter2"

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kept_imports")]


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Inline]:
    """Return a driver with an epoch of an application without views."""
    spec = write_version(tmp_path / "1", "jars", JAR.format(views=""))
    data = tmp_path / "data"
    data.mkdir()
    runtime = Inline(data, 1, spec, "jars")
    Deployments(data / JOURNAL).record(Epoch(0), 0, stored_code(data, spec), {})
    append(runtime, "create")
    runtime.advance(runtime.log.end())
    yield runtime
    runtime.close()


def append(runtime: Inline, method: str) -> None:
    body = encode_request(Request("Jar", "tin", method, Raw(b"\x90"), Raw(b"\x80")))
    runtime.log.append([Entry(RequestId(f"r{runtime.log.end()}"), body, b"", 0)])


@contextmanager
def supervised(data: Path, said: list[str]) -> Iterator[Supervisor]:
    """Keep the appliers of a data directory as `penstock run` does."""
    appliers = Followers(ChildOptions("jars.py", None, ()), Config(data))
    supervisor = Supervisor(
        [], lambda _, line: said.append(line), lambda _, line: said.append(line), appliers
    )

    def keep(stop: threading.Event) -> None:
        while not stop.wait(0.05):
            supervisor.look()

    try:
        with meanwhile(keep):
            yield supervisor
    finally:
        supervisor.stop()


def shown(path: Path) -> list[tuple[Any, ...]]:
    """Return the rows of the table in a view's file; none before it is there."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        try:
            return file.execute("SELECT name, beans FROM Jar").fetchall()
        except sqlite3.OperationalError:
            return []


def views(capsys: pytest.CaptureFixture[str], data: Path) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert execute(["view", "list", "--data", str(data), "--json"]) == 0
    return {view["name"]: view for view in json.loads(capsys.readouterr().out)["views"]}


def state(capsys: pytest.CaptureFixture[str], data: Path, name: str) -> str:
    return str(views(capsys, data).get(name, {}).get("state"))


def pause_and_rebuild(
    inline: Inline, data: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pause the view, resume it, and rebuild it after a change by hand."""
    at = ["--data", str(data)]
    assert execute(["view", "pause", "counts", "--reason", "the disk moves", *at]) == 0
    wait_for(lambda: "paused" in (data / "views/counts/report.json").read_text(), "the pause")
    append(inline, "put")
    wait_for(lambda: views(capsys, data)["counts"]["lag"] == 1, "the lag")
    assert shown(path) == [("tin", 1)]
    assert execute(["view", "resume", "counts", *at]) == 0
    wait_for(lambda: shown(path) == [("tin", 2)], "the resume")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE Jar SET beans = 77")
    assert execute(["view", "rebuild", "counts", *at]) == 0
    wait_for(lambda: shown(path) == [("tin", 2)], "the rebuild")
    wait_for(lambda: not views(capsys, data)["counts"]["rebuilding"], "the end of the order")


def test_deployments_and_orders_govern_views(
    inline: Inline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A view begins, follows, is paused, resumed and rebuilt, and ends; one without a right address harms none."""
    monkeypatch.setenv("PENSTOCK_VIEWS_WRONG_URL", SECRET)
    data, said = tmp_path / "data", list[str]()
    at = ["--data", str(data)]
    two = JAR.format(views=', view("counts", sqlite(), Jar), view("wrong", sqlite(), Jar)')
    second = write_version(tmp_path / "2", "jars", two)
    third = write_version(
        tmp_path / "3", "jars", JAR.format(views=', view("wrong", sqlite(), Jar)')
    )
    path = data / "views" / "counts" / "view.sqlite"
    with inline.following(), supervised(data, said):
        assert execute(["deploy", second, *at]) == 0
        wait_for(lambda: shown(path) == [("tin", 0)], "the fill")
        append(inline, "put")
        wait_for(lambda: shown(path) == [("tin", 1)], "the change")
        wait_for(lambda: state(capsys, data, "wrong") == "waiting", "the view that cannot be fed")
        assert "views.wrong.url names no file" in views(capsys, data)["wrong"]["reason"]
        pause_and_rebuild(inline, data, path, capsys)
        (pid,) = [each.pid for each in presence.find(data, ROLE) if each.details["view"] == "wrong"]
        assert execute(["deploy", third, *at]) == 0
        wait_for(lambda: len(presence.find(data, ROLE)) == 1, "the end of the applier")
        assert presence.find(data, ROLE)[0].pid == pid, "the other applier stays"
        assert state(capsys, data, "counts") == "undeclared"
        assert execute(["view", "remove", "counts", *at]) == 0
        assert not path.exists()
        assert execute(["status", *at]) == 0
        assert "view wrong (sqlite): waiting" in capsys.readouterr().out
    written = "".join(said) + "".join(each.read_text() for each in data.glob("views/*/*.json"))
    assert "hunter2" not in written


def test_copy_writes_nothing_until_it_is_resumed(inline: Inline, tmp_path: Path) -> None:
    """The fork of an application with a view begins held, says so, and fills its own file after the resume."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    second = write_version(
        tmp_path / "2", "jars", JAR.format(views=', view("counts", sqlite(), Jar)')
    )
    with inline.following():
        assert execute(["deploy", second, "--data", str(data)]) == 0
    assert fork(data, "jars", copy, None).held == ("counts",)
    path = copy / "views" / "counts" / "view.sqlite"
    with supervised(copy, []):
        report = copy / "views" / "counts" / "report.json"
        wait_for(lambda: report.exists() and "held" in report.read_text(), "the hold")
        assert not path.exists()
        assert execute(["resume", "--data", str(copy)]) == 0
        wait_for(lambda: shown(path) == [("tin", 0)], "the fill")
