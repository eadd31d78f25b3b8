"""The data directory: durable when it is new, and its owner's alone with all that is in it."""

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from penstock.base.ids import Epoch
from penstock.cli.main import application
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError
from penstock.files import private
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import EVERYTHING
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.journal.delta import DeltaJournal
from penstock.process import presence
from penstock.process.config import Config, HistoryConfig, ViewConfig
from penstock.retention import savepoints
from penstock.retention.maintenance import maintain
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.private_files import open_to_others
from tests.unit.history.copied_shop import EPOCHS, made


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """Start with a umask that keeps nothing private."""
    former = os.umask(0)
    yield
    os.umask(former)


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_new_directory_is_durable_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of each directory that was made is synced in its parent, up to the first that was there."""
    synced = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    private.create(tmp_path / "a" / "b" / "shop")
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert open_to_others(tmp_path / "a") == []


def test_everything_written_is_private(tmp_path: Path) -> None:
    """Log, journal, stores, snapshots, views, keys, copies: all of it is for its owner only."""
    data, app = tmp_path / "new" / "data", load_app(SHOP)
    private.create(data)
    made(data, EPOCHS)
    maintain(app, Config(data, history=HistoryConfig(merge_epochs=2, grace_s=0)), snapshot=True)
    savepoints.create(data, savepoints.Savepoint("before", Epoch(0), 0))
    with RunningGateway(SHOP, data) as gateway, presence.present(data, "driver", SHOP):
        assert httpx.get(f"{gateway.url}/entities/User/u1", timeout=60).status_code == 200
        with (
            closing(DeltaJournal(data / "journal", "shop")) as journal,
            closing(View(data, app, journal, ViewConfig(memory_mb=128))) as view,
        ):
            view.start()
            assert view.ask(Query("SELECT 1")).epoch >= 0
            assert open_to_others(data) == []
    KeyStore(data).add("web", [EVERYTHING], None, datetime.now(UTC))
    written = {path.name for path in data.iterdir()}
    assert {"log.sqlite", "journal", "state", "snapshots", "view", "run", "savepoints"} <= written
    Backups(tmp_path / "backups").make(data, "shop")
    restore(tmp_path / "backups", tmp_path / "restored", None)
    fork(data, "shop", tmp_path / "fork", None)
    for one in (tmp_path / "new", tmp_path / "backups", tmp_path / "restored", tmp_path / "fork"):
        assert open_to_others(one) == []


def test_directory_of_ours_is_closed_to_others(tmp_path: Path) -> None:
    """An empty directory, or one that an older version made, becomes its owner's alone."""
    for name, content in (("empty", ""), ("older", "journal")):
        path = tmp_path / name
        (path / content).mkdir(parents=True)
        path.chmod(0o755)
        private.create(path)
        assert rights(path) == 0o700


@pytest.mark.parametrize(("mode", "content"), [(0o755, "notes.txt"), (0o1777, "journal")])
def test_directory_of_others_is_left_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, content: str
) -> None:
    """A home, a project or `/tmp` keeps its rights; the log says that others may look into it."""
    caplog.set_level(logging.WARNING)
    path = tmp_path / "shared"
    path.mkdir()
    (path / content).touch()
    path.chmod(mode)
    private.create(path)
    assert rights(path) == mode
    assert "others may look into a directory" in caplog.text


def test_file_in_the_way_is_named(tmp_path: Path) -> None:
    """A path that cannot be a directory is the caller's to change."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(ConfigError, match=r"file.*cannot be used: .*; name another directory"):
            private.create(path)


def test_commands_write_for_their_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`penstock keys` makes a private data directory; a project of `penstock new` is the user's."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(application, ["new", "kiosk"]).exit_code == 0
    assert rights(tmp_path / "kiosk" / "app.py") == 0o666
    words = ["keys", "add", "web", "--scope", "*", str(tmp_path / "kiosk" / "app.py")]
    assert runner.invoke(application, words).exit_code == 0
    assert open_to_others(tmp_path / ".penstock") == []
