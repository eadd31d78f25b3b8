"""`penstock view serve` and `penstock sql` as a person uses them."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.ids import RequestId
from penstock.cli.queries.sql import parameters_of
from penstock.errors import ConfigError
from penstock.log.api import Entry
from penstock.process import presence
from penstock.process.config import Config
from tests import forked
from tests.checkout import SHOP
from tests.serial_driver import SerialDriver
from tests.view_process import view_process

pytestmark = pytest.mark.long

DEADLINE_S = 60.0


def run_shop(data: Path, *names: str) -> None:
    """Let the shop of a data directory have items, and stop it."""
    driver = SerialDriver(SHOP, Config(data))
    driver.start()
    for name in names:
        body, hint = driver.app.request("Item", name, "create", (), {"price": 3, "stock": 5})
        driver.log.append([Entry(RequestId(name), body, hint, 0)])
    assert driver.wait_until(driver.log.end(), 20_000)
    driver.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the data directory of a shop with two items, where nothing runs."""
    folder = tmp_path_factory.mktemp("sql")
    run_shop(folder, "i1", "i2")
    return folder


@pytest.fixture(scope="module")
def running(data: Path) -> Iterator[Path]:
    """Run a view in a process of its own; it must end well when its standard input does."""
    with view_process(SHOP, data):
        yield data


def test_socket_is_its_owners_alone(running: Path) -> None:
    """No other user of the machine can ask."""
    [found] = presence.find(running, "view")
    assert Path(str(found.details["socket"])).stat().st_mode & 0o777 == 0o600


def test_table_names_its_epoch(running: Path) -> None:
    """A person sees a table, and below it which epoch it is of."""
    shown = forked.command("sql", "FROM Item ORDER BY item_id", "--data", str(running))
    assert shown.returncode == 0, shown.stderr
    assert "item_id" in shown.stdout.decode()
    assert "epoch " in shown.stdout.decode()
    assert "2 rows" in shown.stdout.decode()


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["status"]])
def test_a_running_view_is_asked_without_slow_packages(running: Path, command: list[str]) -> None:
    """One answer over a socket needs no HTTP client; and for SQL, the view alone needs DuckDB."""
    program = "import sys; from penstock.cli.main import execute; execute(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    arguments = [sys.executable, "-c", program, *command, "--data", str(running)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert {"httpx", "duckdb"} & set(done.stderr.split()) == set()
    assert "epoch" in done.stdout + done.stderr


@pytest.mark.parametrize("shape", ["csv", "json", "arrow"])
def test_programs_get_the_answer_alone(running: Path, shape: str) -> None:
    """Standard output holds only the answer; the epoch is on standard error."""
    query = "SELECT item_id, stock FROM Item WHERE price = $price ORDER BY item_id"
    found = forked.command(
        "sql", query, "--data", str(running), "--format", shape, "--param", "price=3"
    )
    assert found.stderr.decode().startswith("epoch ")
    match shape:
        case "csv":
            assert found.stdout == b'"item_id","stock"\n"i1",5\n"i2",5\n'
        case "json":
            assert json.loads(found.stdout)["rows"] == [["i1", 5], ["i2", 5]]
        case _:
            table = pa.ipc.open_stream(BytesIO(found.stdout)).read_all()
            assert table.to_pylist()[0] == {"item_id": "i1", "stock": 5}


def test_mistake_is_explained(running: Path) -> None:
    """A table that is a word of SQL, or nearly right, is named as it must be written."""
    for query, hint in (
        ("FROM Order", 'write the table as "Order"'),
        ("FROM Itm", 'Did you mean "Item"'),
    ):
        refused = forked.command("sql", query, "--data", str(running))
        assert refused.returncode == 2
        assert hint in refused.stderr.decode()


def test_query_cannot_take_the_memory_of_all(running: Path) -> None:
    """Memory that DuckDB does not count is bounded by the process: the query fails, the view goes on."""
    greedy = forked.command("sql", "SELECT range(1000000000)", "--data", str(running))
    assert greedy.returncode == 2
    assert "view.memory_mb" in greedy.stderr.decode()
    assert forked.command("sql", "SELECT 1", "--data", str(running)).returncode == 0


def test_second_view_is_refused(running: Path) -> None:
    """One view at a time serves a directory; a second one gets the first one's process id."""
    second = forked.command("view", "serve", SHOP, "--data", str(running))
    assert second.returncode == 2
    assert "open already" in second.stderr.decode()


def test_where_nothing_runs_the_view_is_opened_here(tmp_path: Path) -> None:
    """Without a view the command brings one up to date itself, if it knows the application."""
    run_shop(tmp_path, "i9")
    query = ("sql", "SELECT item_id FROM Item", "--data", str(tmp_path), "--format", "csv")
    assert forked.command(*query, SHOP).stdout == b'"item_id"\n"i9"\n'
    assert "name the application" in forked.command(*query).stderr.decode()


def test_journal_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A view that cannot come up to date says why, instead of retrying without end."""
    run_shop(tmp_path, "i9")
    for part in (tmp_path / "journal").rglob("kind=changes/*.parquet"):
        part.write_bytes(b"noise")
    refused = forked.command("sql", "FROM Item", SHOP, "--data", str(tmp_path))
    assert refused.returncode == 1
    assert "cannot go on from epoch -1: part kind=changes" in refused.stderr.decode()


def test_view_ends_at_sigterm(tmp_path: Path) -> None:
    """A signal ends the view in good order, and its socket and presence with it."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)  # too long a path for a socket
    command = [sys.executable, "-m", "penstock", "view", "serve", SHOP, "--data", str(deep)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + DEADLINE_S
    while not (found := presence.find(deep, "view")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    socket = Path(str(found[0].details["socket"]))
    assert socket.is_socket()
    process.send_signal(signal.SIGTERM)
    _, messages = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, messages
    assert not socket.exists()
    assert presence.find(deep, "view") == []


def test_parameters_are_json_or_text() -> None:
    """A parameter is JSON where it reads as such; all have names, or none has."""
    assert parameters_of(["1", "x", "[1]", "a b=c"]) == [1, "x", [1], "a b=c"]
    assert parameters_of(["n=1", "name=x=y"]) == {"n": 1, "name": "x=y"}
    with pytest.raises(ConfigError, match="either all"):
        parameters_of(["n=1", "2"])
