"""A start on a full disk says so at once, and is not tried again and again."""

import json
import resource
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.error_output import describe
from penstock.cli.main import execute
from penstock.cli.running.foreground import Foreground
from penstock.cli.running.processes import ChildOptions
from penstock.cli.running.supervisor import Child, Supervisor
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, JournalUnavailable, LogUnavailable
from penstock.process.config import Config, GatewayConfig
from tests.checkout import SHOP


def _limit(bytes_max: int) -> None:
    """Let no file of this process become longer; a full disk of a test would be one for everybody."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, most))


@pytest.fixture(autouse=True)
def _restored_limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def dying(_: ChildOptions, __: Config) -> Sequence[Child]:
    return [Child("driver", [sys.executable, "-c", "exit(1)"], lambda pid: False)]


def run(data: Path, output: StringIO) -> None:
    """Run a driver that dies; after its death, the disk is full."""

    def look(supervisor: Supervisor) -> None:
        supervisor.look()
        if supervisor.failing:
            _limit(100_000)

    settings = Config(data, gateway=GatewayConfig(port=0))
    options = ChildOptions(SHOP, None, [])
    Foreground(load_app(SHOP), options, settings, Console(file=output), dying).run(look)


def test_disk_that_is_full_before_the_start(tmp_path: Path) -> None:
    """No process is started; the message names the folder, and the advice is to make space."""
    output = StringIO()
    _limit(100_000)
    with pytest.raises(OSError, match="Penstock needs files of") as raised:
        run(tmp_path / "data", output)
    shown = describe(raised.value)
    assert (shown.code, shown.exit_code) == ("operational", 1)
    assert str(tmp_path) in shown.message
    assert shown.hint.startswith("Make space")
    assert output.getvalue() == ""


def test_disk_that_fills_during_the_start(tmp_path: Path) -> None:
    """The first process that ends shows it; there is no second try."""
    output = StringIO()
    with pytest.raises(OSError, match="Penstock needs files"):
        run(tmp_path / "data", output)
    assert output.getvalue().count("is started again") == 1  # said before the disk was looked at


def test_status_tells_of_a_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator sees it without a look at the log output."""
    execute(["status", "--data", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["disk"] == ""
    monkeypatch.setattr("penstock.process.disk_space.LEAST_BYTES", 1 << 60)
    execute(["status", "--data", str(tmp_path)])
    assert "the disk is full: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        JournalUnavailable("cannot copy to /backups: No space left on device"),
        ConfigError("the directory data cannot be used: No space left on device"),
        LogUnavailable("log.sqlite: database or disk is full (SQLITE_FULL)"),
    ],
)
def test_the_advice_about_a_full_disk_is_to_make_space(error: Exception) -> None:
    """Also where a command or a gateway has only the words of the error; a repetition alone does not help."""
    assert describe(error).hint.startswith("Make space")
