"""The surface of live deployments: code is stored, checked in a process of its own, and appended to the log."""

from contextlib import closing
from pathlib import Path

import psutil
import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.deployment.archives import Archives, file_of, pack
from penstock.deployment.code_check import check_code
from penstock.deployment.deploy_order import append_deployment, store_code
from penstock.deployment.dropped_classes import dropped
from penstock.deployment.loading import load_app
from penstock.errors import ClassChanged, ConfigError, Corrupt, PenstockError
from penstock.log.api import Entry
from penstock.model.control import Deploy, DeployedCode, decode_control
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance import maintain
from tests.deployments import KIOSK, kiosk_in
from tests.history import journal_of
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("forked_children")

MIGRATING = (
    KIOSK.replace("import App", "import App, migrate")
    .replace("app =", "@migrate(Item, since=2)\ndef made(old):\n    {body}\n\napp =")
    .replace("Item)", "Item, made)")
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the file of an application that has run an epoch."""
    return kiosk_in(tmp_path)


def controls(data: Path) -> list[DeployedCode]:
    """Return the code of all deployments in the log."""
    with closing(DataDirectory(data).open_log()) as log:
        bodies = [log.read(lsn, Lsn(lsn + 1))[0].body for lsn in log.controls(Lsn(0), log.end())]
    return [control.code for control in map(decode_control, bodies) if isinstance(control, Deploy)]


def test_a_deployment_is_appended_once(source: Path) -> None:
    """Equal code is no deployment, whether the former one is in force or still waits; its archive stays."""
    config = Config(source.parent / "data")
    assert append_deployment(config, store_code(config.data, str(source))) is None
    source.write_text(KIOSK.format(type="int | float") + "# a longer file\n")
    code = store_code(config.data, str(source))
    appended = append_deployment(config, code)
    assert appended is not None
    assert appended.changes == ["Item: price: int became int | float"]
    assert append_deployment(config, code) is None
    with pytest.raises(ConfigError, match="--drop Nothing"):  # a mistyped name is told also then
        append_deployment(config, code, drop=dropped(["Nothing"]))
    assert controls(config.data) == [code]
    maintain(load_app(str(source)), config, snapshot=True)
    assert Archives(config.data).read(code.archive)


def test_waiting_requests_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """The deployment says what its check says: which requests the former code accepts, and the new code does not."""
    file, config = tmp_path / "waitingkiosk.py", Config(tmp_path / "data")
    method = "\n    def order(self, {}) -> None:\n        pass\n\napp ="
    text = KIOSK.format(type="int")
    file.write_text(text.replace("\napp =", method.format("count: int, gift: bool")))
    journal_of(str(file), config.data, [], deploys=True)
    app = load_app(str(file))
    with closing(DataDirectory(config.data).open_log()) as log:
        body, hint = app.request("Item", "tea", "order", [1, True])
        log.append([Entry(RequestId("waits"), body, hint, 1)])
        body, hint = app.request("Item", "tea", "create", [], {"price": 1})
        log.append([Entry(RequestId("fits"), body, hint, 1)])
        body, hint = app.request("Item", "tea", "order", [], {"count": 1, "gift": True})
        log.append([Entry(RequestId("wrong"), body.replace(b"count", b"other"), hint, 1)])
    file.write_text(text.replace("\napp =", method.format("gift: bool, number: int = 0")))
    appended = append_deployment(config, store_code(config.data, str(file)))
    assert appended is not None
    assert appended.unfit == [
        "request waits, Item/tea.order(1, True), waits and would fail: Item.order has no parameter count"
    ]


def test_code_that_does_not_fit_is_refused_before_the_log(source: Path) -> None:
    """Nothing is appended for classes that cannot read their rows, or for code that cannot be imported."""
    config = Config(source.parent / "data")
    text = KIOSK.format(type="int")
    wrong: list[tuple[str, type[PenstockError], str]] = [
        (KIOSK.format(type="str"), ClassChanged, "price"),
        ("print('x' * 100_000)\nimport nowhere_at_all", ConfigError, "nowhere_at_all"),
        ("import os, signal\nos.kill(0, signal.SIGKILL)", ConfigError, "exit code -9"),
        (text.replace("kiosk", "stall"), ConfigError, "stall"),
        *(
            (MIGRATING.format(type="str", body=body), ClassChanged, f"Item/tea.*since=2\\) {part}")
            for body, part in (
                ("raise ValueError(old)", "raised ValueError"),
                ("import os; os._exit(4)", ".*exit code 4"),
            )
        ),
    ]
    for content, error, part in wrong:
        source.write_text(content)
        with pytest.raises(error, match=part):
            append_deployment(config, store_code(config.data, str(source)))
    code = store_code(config.data, str(source))
    (config.data / file_of(code.archive)).unlink()
    with pytest.raises(Corrupt, match="missing"):
        append_deployment(config, code)
    assert controls(config.data) == []


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_an_import_that_never_returns_is_ended(source: Path) -> None:
    """The check gives up after its time, and ends the process and those that it has started."""
    data = source.parent / "data"
    started = source.parent / "started"
    text = f"""
import pathlib, subprocess, threading
child = subprocess.Popen(["sleep", "600"])
pathlib.Path({str(started)!r}).write_text(str(child.pid))
threading.Event().wait()
"""
    archive = Archives(data).put(pack({"endless.py": text.encode()}))
    with pytest.raises(ConfigError, match="the import of endless has taken"):
        check_code(data, DeployedCode(archive, "endless", "app", "3", {}), import_s=3.0)
    if started.exists():  # a slow machine may not have come so far
        pid = int(started.read_text())
        wait_for(lambda: has_ended(pid), "the end of the process that the import has started")


def test_a_deployment_needs_a_journal(tmp_path: Path) -> None:
    """Without a journal the message says to start the application."""
    with pytest.raises(ConfigError, match="start the application"):
        append_deployment(Config(tmp_path), DeployedCode("0", "shop", "app", "3", {}))


def test_a_data_file_that_is_too_large_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A deployment warns of the file that processes will not find in the archive."""
    source = tmp_path / "largekiosk.py"
    source.write_text('PRICES = "prices.csv"\n')
    (tmp_path / "prices.csv").write_bytes(b"1" * ((1 << 20) + 1))
    (tmp_path / "data").mkdir()
    code = store_code(tmp_path / "data", str(source))
    assert Archives(tmp_path / "data").files(code.archive).keys() == {"largekiosk.py"}
    assert f"{tmp_path / 'prices.csv'} has more than 1 MB" in caplog.text
