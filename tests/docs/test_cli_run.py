"""`penstock run`, `status` and `dev` with everything real but Spark: small programs are the children."""

import json
import os
import re
import shlex
import signal
import socket
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from penstock import App
from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn, RequestId
from penstock.cli.main import execute
from penstock.cli.running.foreground import Foreground, first_request
from penstock.cli.running.processes import ChildOptions, children_of
from penstock.cli.running.source_deployer import SourceDeployer, SourceFiles
from penstock.cli.running.supervisor import Child, Supervisor
from penstock.deployment.loading import load_app, locate
from penstock.errors import ConfigError
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, PartKind
from penstock.log.api import Entry
from penstock.process import presence
from penstock.process.config import Config, GatewayConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.reports import ReportWriter
from tests.checkout import SHOP
from tests.serial_driver import SerialDriver

pytestmark = pytest.mark.long

PRESENT = """
    import signal, sys
    from pathlib import Path
    from penstock.process.presence import present
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    data = Path(sys.argv[1])
    if data.with_name("refused").exists():
        sys.exit(2)
    with present(data, sys.argv[2], "app"):
        print("here", flush=True)
        sys.stdin.read()
"""
APP = """
    from penstock import App, entity, key

    @entity
    class Item:
        item_id: str = key()
        stock: int = {stock}

    app = App("edited", Item)
"""
CALLING = """
import urllib.request
from penstock import transactional

@transactional
def call(address: str) -> None:
    urllib.request.urlopen(address)

app = App("edited", Item, call)
"""


def small_children(given: ChildOptions, settings: Config) -> Sequence[Child]:
    """Return children that do nothing but to be there, unless a file says that they may not."""
    commands = {
        child.role: [sys.executable, "-c", textwrap.dedent(PRESENT), str(settings.data), child.role]
        for child in children_of(given, settings)
    }
    return [Child(one.role, commands[one.role], one.ready) for one in children_of(given, settings)]


def foreground(app: str, data: Path, output: StringIO, **gateway: str | int) -> Foreground:
    settings = Config(data, gateway=replace(GatewayConfig(port=0), **gateway))  # type: ignore[arg-type]
    console = Console(file=output, width=200)
    return Foreground(load_app(app), ChildOptions(app, None, []), settings, console, small_children)


def then_stop(act: Callable[[Supervisor], bool]) -> Callable[[Supervisor], None]:
    """Look until something is done, then ask to stop as Ctrl-C does."""
    done = False

    def look(supervisor: Supervisor) -> None:
        nonlocal done
        supervisor.look()
        if not done and supervisor.ready and act(supervisor):
            done = True
            signal.raise_signal(signal.SIGINT)

    return look


def test_run_says_where_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    """URLs and a request to try are printed when all processes are ready; after the stop none is left."""
    output, found = StringIO(), list[presence.Presence]()

    def look(supervisor: Supervisor) -> bool:
        found[:] = presence.find(tmp_path, "supervisor")
        return "try" in output.getvalue()

    foreground(SHOP, tmp_path, output).run(then_stop(look))
    (supervisor,) = found
    url = supervisor.details["url"]
    text = output.getvalue()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", str(url))
    for line in (f"requests  {url}", f"console   {url}/console/", f"docs      {url}/docs"):
        assert line in text
    assert f"curl -X POST {url}/stock/item/create/1" in text
    assert {"driver here", "view here", "gateway here"} <= set(text.splitlines())
    assert text.splitlines()[-1] == "stopped"
    assert [one for role in presence.ROLES for one in presence.find(tmp_path, role)] == []


def test_calls_to_the_outside_are_warned_of_at_the_start(tmp_path: Path) -> None:
    """Before the application is announced, each such line is shown with the remedy."""
    path, output = tmp_path / "calling.py", StringIO()
    write_app(path, "0", CALLING)
    announced = then_stop(lambda _: "running" in output.getvalue())
    foreground(str(path), tmp_path / "data", output).run(announced)
    text = output.getvalue().partition("running")[0]
    (warning,) = [line for line in text.splitlines() if line.startswith("source")]
    assert warning.startswith(
        "source calling.py:16: call: urllib.request.urlopen reaches outside: "
    )
    assert warning.endswith("pass its result in the request")


def test_killed_child_comes_back(tmp_path: Path) -> None:
    """A killed driver is replaced while the others stay, and two lines say so."""
    output, killed = StringIO(), list[int]()

    def kill_once(supervisor: Supervisor) -> bool:
        if not killed:
            killed.extend(supervisor.pids("driver"))
            os.kill(killed[0], signal.SIGKILL)
        return "driver runs again" in output.getvalue()

    foreground(SHOP, tmp_path, output).run(then_stop(kill_once))
    assert "driver ended with SIGKILL; it is started again at once" in output.getvalue()
    assert killed


def test_children_are_told_what_the_supervisor_was_told(tmp_path: Path) -> None:
    """Each process is started with the same application, directory and settings, port included."""
    settings = Config(tmp_path, gateway=GatewayConfig(port=8_123, processes=2))
    given = ChildOptions(SHOP, tmp_path / "a.toml", ["cores=2"], development=True)
    children = children_of(given, settings)
    assert [one.role for one in children] == ["driver", "view", "gateway", "gateway"]
    for child in children:
        words = shlex.join(child.command)
        command = "view serve" if child.role == "view" else child.role
        assert f"penstock {command} {SHOP} --supervised" in words
        assert f"--data {tmp_path} --config {tmp_path}/a.toml" in words
        assert words.endswith("--set cores=2 --set gateway.port=8123")
        assert ("--dev" in child.command) == (child.role == "gateway")


def test_port_in_use_is_refused(tmp_path: Path) -> None:
    """No process is started if another application has the port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .* in use"):
            foreground(SHOP, tmp_path, StringIO(), port=port).run()


def test_strangers_are_not_let_in(tmp_path: Path) -> None:
    """An address that other machines reach wants keys, tokens or a word, before Spark starts."""
    with pytest.raises(ConfigError, match="reached from other machines"):
        foreground(SHOP, tmp_path, StringIO(), host="0.0.0.0").run()


@pytest.mark.parametrize("role", ["supervisor", "driver"])
def test_second_run_on_the_same_data_is_refused(tmp_path: Path, role: str) -> None:
    """A running application is named by its process id."""
    with (
        presence.present(tmp_path, role, "first"),
        pytest.raises(ConfigError, match=f"process {os.getpid()} runs first"),
    ):
        foreground(SHOP, tmp_path, StringIO()).run()


def test_status_tells_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get processes and figures as JSON, people a table; both come with exit code 0."""
    driver = SerialDriver(SHOP, Config(tmp_path))
    driver.on_epoch.append(ReportWriter(tmp_path).take)
    body, hint = driver.app.request("Item", "i1", "create", (), {"price": 3})
    driver.log.append([Entry(RequestId("a"), body, hint, 0)])
    driver.start()
    assert driver.wait_until(Lsn(1), 30_000)
    with presence.present(tmp_path, "driver", SHOP, partitions=2):
        assert execute(["status", "--data", str(tmp_path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert execute(["status", "--data", str(tmp_path)]) == 0
        table = capsys.readouterr().out
    driver.stop()
    (process, *_) = found["processes"]
    assert (process["role"], process["pid"]) == ("driver", os.getpid())
    assert process["memory_mb"] > 1
    assert process["details"] == {"partitions": 2}
    figures = {name: found[name] for name in ("running", "app", "epoch", "log_end", "lag")}
    assert figures == {"running": True, "app": "shop", "epoch": 0, "log_end": 1, "lag": 0}
    assert found["requests_per_s"] == 0.1
    assert found["view_epoch"] is None
    assert re.search(rf"driver +{os.getpid()} .* partitions 2", table)
    assert "epoch 0, view at -, log at 1, lag 0" in table


def test_status_of_what_does_not_run_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing runs, that is said, and a missing directory is named; looking makes no files."""
    assert execute(["status", "--data", str(tmp_path)]) == 1
    assert "nothing runs" in capsys.readouterr().out
    assert execute(["status", "--data", str(tmp_path / "data")]) == 2
    assert "data does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_status_without_a_name_takes_the_only_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single application need not be named; with two, the error names both."""
    monkeypatch.chdir(tmp_path)
    assert execute(["status"]) == 2
    (tmp_path / ".penstock" / "one").mkdir(parents=True)
    assert execute(["status"]) == 1
    assert str(Path(".penstock/one")) in capsys.readouterr().out
    (tmp_path / ".penstock" / "two").mkdir()
    assert execute(["status"]) == 2
    assert "one, .penstock/two" in capsys.readouterr().err


def write_app(path: Path, stock: str, more: str = "") -> None:
    path.write_text(textwrap.dedent(APP.format(stock=stock)) + more)


def test_changed_source_is_noticed_when_it_rests(tmp_path: Path) -> None:
    """A change is reported once, when two looks in a row have seen the same."""
    path = tmp_path / "edited.py"
    write_app(path, "0")
    sources = SourceFiles(locate(str(path)))
    assert not sources.changed()
    write_app(path, "10")
    assert not sources.changed()
    assert sources.changed()
    assert not sources.changed()
    (tmp_path / "other.py").touch()
    assert [sources.changed() for _ in range(3)] == [False, True, False]
    (tmp_path / "notes.txt").touch()
    assert [sources.changed() for _ in range(3)] == [False, False, False]


def execute_deployment(data: Path, app: App) -> bool:
    """Commit the epoch of the only record in the log, as the driver does; return False if there is none yet."""
    with (
        closing(DataDirectory(data).open_journal(app)) as journal,
        closing(DataDirectory(data).open_log()) as log,
    ):
        if not log.end() or journal.last() is not None:
            return False
        (record,) = log.read(Lsn(0), log.end())
        row = {"epoch": 0, "partition": 0, "lsn": 0, "request_id": record.request_id, "time_us": 1}
        row |= {"request": record.body, "error": None, "reply": b"\xc0"}
        table = pa.Table.from_pylist([row], TRANSACTIONS)
        part = journal.write(PartKind.TRANSACTIONS, table, "transactions-0")
        journal.commit(Commit(Epoch(0), {ONLY_PARTITION: Lsn(1)}, (part,), 1))
        return True


def test_development_deploys_what_is_right_and_keeps_the_processes(tmp_path: Path) -> None:
    """A mistake is shown and changes nothing; put right, the source is deployed, with its warnings."""
    path, output, data = tmp_path / "edited.py", StringIO(), tmp_path / "data"
    write_app(path, "0")
    shown = foreground(str(path), data, output)
    app = load_app(str(path))
    deploying = SourceDeployer(shown, SourceFiles(locate(str(path))))
    steps: list[list[int]] = []

    def look(supervisor: Supervisor) -> None:
        deploying.look(supervisor)
        pids, text = supervisor.pids("driver") + supervisor.pids("gateway"), output.getvalue()
        if not supervisor.ready:
            return
        if not steps:
            steps.append(pids)
            DataDirectory(data).open_journal(app).close()
            write_app(path, "nonsense")
        elif len(steps) == 1 and "keeps the code that runs" in text:
            steps.append(pids)
            write_app(path, "1234", CALLING)
        elif len(steps) == 2 and execute_deployment(data, app):
            steps.append(pids)
        elif len(steps) == 3 and "reaches outside" in text:
            steps.append(pids)
            signal.raise_signal(signal.SIGINT)

    shown.run(look)
    assert len(steps) == 4
    assert all(pids == steps[0] for pids in steps)
    assert "nonsense" in output.getvalue()
    assert "the new code is in force since epoch 1" in output.getvalue()
    assert "source edited.py:16: call: urllib.request.urlopen reaches outside" in output.getvalue()


def test_development_keeps_the_code_that_fits_the_data(tmp_path: Path) -> None:
    """A class that changes after it was stored is shown with its difference; running processes go on."""
    path, output, data = tmp_path / "stored.py", StringIO(), tmp_path / "data"
    write_app(path, "0")
    app = load_app(str(path))
    state = app.entities["Item"].encode({"item_id": "i1", "stock": 1})
    row = {"epoch": 0, "entity": "Item", "key": "i1", "state": state}
    shown = foreground(str(path), data, output)
    deploying = SourceDeployer(shown, SourceFiles(locate(str(path))))
    steps: list[list[int]] = []

    def look(supervisor: Supervisor) -> None:
        deploying.look(supervisor)
        pids, text = supervisor.pids("driver") + supervisor.pids("gateway"), output.getvalue()
        if not supervisor.ready:
            return
        if not steps:
            steps.append(pids)
            with closing(DataDirectory(data).open_journal(app)) as journal:
                journal.write(PartKind.CHANGES, pa.Table.from_pylist([row], CHANGES), "part")
            path.write_text(path.read_text().replace("stock: int = 0", "stock: list[str]"))
        elif len(steps) == 1 and "keeps the code that runs" in text:
            steps.append(pids)
            write_app(path, "1234")
        elif len(steps) == 2 and execute_deployment(data, app):
            signal.raise_signal(signal.SIGINT)

    shown.run(look)
    assert steps[0] == steps[1]
    assert "stock: int is stored, list[str] is declared" in output.getvalue()
    assert "go back to the code that wrote them" in output.getvalue()


def test_development_waits_for_a_change_where_nothing_can_run(tmp_path: Path) -> None:
    """A process that refuses to run ends nothing: the next change of the source is tried."""
    path, refused, output = tmp_path / "refusing.py", tmp_path / "refused", StringIO()
    write_app(path, "0")
    refused.touch()
    shown = foreground(str(path), tmp_path / "data", output)
    deploying = SourceDeployer(shown, SourceFiles(locate(str(path))))

    def look(supervisor: Supervisor) -> None:
        deploying.look(supervisor)
        if "waits for a change" in output.getvalue() and refused.exists():
            refused.unlink()
            write_app(path, "1234")
        if supervisor.ready:
            signal.raise_signal(signal.SIGINT)

    shown.run(look)
    assert not refused.exists()
    assert "the source has changed: it starts again" in output.getvalue()


def test_run_gives_up_where_a_process_refuses(tmp_path: Path) -> None:
    """Outside of development, a process that cannot run ends the whole command with an error."""
    (tmp_path / "refused").touch()
    with pytest.raises(ConfigError, match="cannot run: correct the error"):
        foreground(SHOP, tmp_path / "data", StringIO()).run()
    assert presence.find(tmp_path / "data", "supervisor") == []


def test_first_request_fits_the_application() -> None:
    """The proposed request creates an entity, at a path of the application's own or by name."""
    bank = str(Path(SHOP).with_name("bank"))
    body = """--json '{"item_id": "text", "stock": 1}'"""
    assert first_request(load_app(SHOP), "U") == f"curl -X POST U/stock/item/create/1 {body}"
    body = """--json '{"balance": 1, "overdraft_limit": 1}'"""
    assert first_request(load_app(bank), "U") == f"curl -X POST U/call/Account/k1/create {body}"


def test_first_request_of_streams_is_an_append() -> None:
    """An application of streams alone gets an append; without an open stream, a request that always works."""
    streams = load_app("tests.counting_app:app")
    assert first_request(streams, "U") == """curl -X POST U/streams/lines --json '["text"]'"""
    assert first_request(App("empty"), "U") == "curl U/readyz"
