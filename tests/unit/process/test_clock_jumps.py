"""Jumps of the machine's clock are noted, and shown by the status, the console and the metrics."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from penstock import App, Entity, key, now, readonly
from penstock.base.ids import RequestId
from penstock.cli.main import execute
from penstock.cli.running.status import status_of
from penstock.console.routes import Observation
from penstock.deployment.loading import load_app
from penstock.engine.limits import Limits
from penstock.gateway.telemetry.metrics import Metrics
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.process.clock_jumps import FILE_NAME, clock_jumps
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.reads.messages import ReadCall
from penstock.runtime.reads.reader import CallReader
from tests.checkout import SHOP
from tests.history import journal_of


class Watch(Entity):
    name: str = key()

    @readonly
    def seen_s(self) -> int:
        return int(now().timestamp())


app = App("watch", Watch)
HOUR_NS = 3_600_000_000_000


def later(clock_ns: Callable[[], int], ahead_ns: int) -> int:
    return clock_ns() + ahead_ns


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data directory whose log was used before, during and after a jump of 8 days."""
    journal_of(SHOP, tmp_path / "data", [[("Item", "i1", "create", {"price": 3, "stock": 10})]])
    config = Config(tmp_path / "data")
    wall_ns = time.time_ns
    with closing(DataDirectory(config.data).open_log(config)) as log:
        for number, ahead in enumerate((0, 8 * 24, 0)):
            monkeypatch.setattr(time, "time_ns", partial(later, wall_ns, ahead * HOUR_NS))
            log.append([Entry(RequestId(f"n{number}"), b"body", b"", 0)])
    return config.data


def test_each_jump_is_noted_once(data: Path) -> None:
    """The file has the seconds and their direction; a torn line is passed over."""
    jumps = clock_jumps(data)
    assert jumps.count == 2
    assert jumps.newest is not None
    assert abs(jumps.newest.seconds + 8 * 86_400) < 60
    assert "2 times" in str(jumps)
    assert "s back" in str(jumps)
    with (data / "run" / FILE_NAME).open("ab") as file:
        file.write(b'{"time_us": 1')
    assert clock_jumps(data) == jumps


def test_status_console_and_metrics_have_the_jumps(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator sees the warning without a look at the log output."""
    assert status_of(data).clock_jumps.count == 2
    execute(["status", "--data", str(data)])
    assert "a jump of the machine's clock was noted 2 times" in " ".join(
        capsys.readouterr().out.split()
    )
    execute(["status", "--data", str(data), "--json"])
    assert json.loads(capsys.readouterr().out)["clock_jumps"]["count"] == 2
    shop = load_app(SHOP)
    seen = Observation(shop, Config(data), dev=False).now()
    assert (seen.clock_jumps.count, seen.clock_text) == (2, str(clock_jumps(data)))
    with (
        closing(DataDirectory(data).open_journal(shop)) as journal,
        closing(DataDirectory(data).open_log()) as log,
    ):
        assert b"penstock_clock_jumps 2.0" in Metrics(data).exposition(journal, log, {})[0]


def test_a_data_directory_without_a_jump_warns_of_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is shown where nothing was noted, and a log without a place for jumps notes none."""
    assert clock_jumps(tmp_path).count == 0
    with closing(SqliteLog(tmp_path / "log.sqlite")) as log:
        log.append([Entry(RequestId("a"), b"body", b"", 0)])
    execute(["status", "--data", str(tmp_path)])
    assert "clock" not in capsys.readouterr().out


def test_a_read_after_a_jump_is_not_in_the_future(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest epoch keeps its time of 8 days ahead, and `now()` of a read is right again with the clock."""
    wall_ns = time.time_ns
    with monkeypatch.context() as jump:
        jump.setattr(time, "time_ns", partial(later, wall_ns, 8 * 24 * HOUR_NS))
        journal_of(f"{__file__}:app", tmp_path, [[("Watch", "w", "create", {})]])
    with closing(CallReader(app, tmp_path, Limits())) as reader:
        body, _ = app.request("Watch", "w", "seen_s", (), {})
        reply = reader.reply(ReadCall(RequestId("q"), body))
    assert abs(msgspec.msgpack.decode(reply.data) - wall_ns() // 10**9) < 3_600
