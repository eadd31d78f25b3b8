"""No file holds readable personal data, and everything that reads history still works."""

import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError
from penstock.files.layout import SUBJECT_KEYS
from penstock.history.backup import Backups
from penstock.history.restore import restore
from penstock.journal.api import CompactionPolicy
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.presence import boot_id
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from penstock.state.stores import Stores
from tests.history import Call, journal_of
from tests.readable_files import readable_in

PERSONS = "tests.unit.history.person_app:app"
ADA = "Lovelace"
EPOCHS: list[list[Call]] = [
    [
        ("User", "ada", "create", {"name": f"first {ADA}"}),
        ("User", "bob", "create", {"name": "Babbage"}),
        ("Page", "home", "create", {}),
    ],
    [("User", "ada", "rename", (f"second {ADA}",)), ("User", "ada", "refuse", (f"no {ADA}",))],
    [("Page", "home", "visit", {"user": "ada", "greeting": f"hello {ADA}"})],
    [("User", "bob", "rename", ("Charles",))],
]
LAST = Epoch(len(EPOCHS) - 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Make a directory with segments, epochs, a snapshot, states, and what a view leaves behind."""
    folder = tmp_path / "data"
    journal_of(PERSONS, folder, EPOCHS)
    app = load_app(PERSONS)
    with closing(DataDirectory(folder).open_journal(app)) as journal:
        snapshots = Snapshots(folder / "snapshots", journal.identity)
        for epoch in (1, 2):
            write_next_snapshot(app, journal, snapshots, Epoch(epoch))
        journal.compact(CompactionPolicy(newest=1, epochs=2, grace_s=0))
        with (
            closing(Stores(folder / "state", journal, 2, boot_id=boot_id())) as stores,
            stores.at(LAST),
        ):
            pass
        with closing(View(folder, app, journal, ViewConfig(memory_mb=256))) as view:
            view.start()
            assert view.await_epoch(LAST, 60.0)
            names = view.ask(Query("SELECT name FROM User ORDER BY ALL")).table["name"]
            assert names.to_pylist() == ["Charles", f"second {ADA}"]
            past = view.ask(Query("SELECT name FROM User AS OF EPOCH 0 ORDER BY ALL")).table
            assert past["name"].to_pylist() == ["Babbage", f"first {ADA}"]
            replies = view.ask(Query("SELECT value FROM replies WHERE epoch = 2")).table["value"]
            assert replies.to_pylist() == [f'"hello {ADA} second {ADA}"']
    return folder


def test_no_file_holds_readable_personal_data(data: Path, tmp_path: Path) -> None:
    """Log, journal, segments, snapshots, stores, the view's files and backups are encrypted."""
    Backups(tmp_path / "backups").make(data, "persons")
    assert readable_in(tmp_path, ADA) == []
    assert readable_in(tmp_path, "Charles") == []
    assert readable_in(tmp_path, "ada") != []  # the key of an entity is readable: the search works


def test_history_of_personal_data_replays_and_verifies(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests with encrypted arguments run again, with equal replies and rows."""
    for command in ("replay", "verify"):
        assert execute([command, PERSONS, "--data", str(data), "--json"]) == 0
        capsys.readouterr()
    assert execute(["trace", "r5", PERSONS, "--data", str(data), "--json"]) == 0
    trace = msgspec.json.decode(capsys.readouterr().out)
    assert trace["reply"] == {"value": f"hello {ADA} second {ADA}"}


@pytest.mark.parametrize("command", ["restore", "fork"])
def test_missing_keys_are_told_before_anything_is_copied(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Also where the copy fails then; a directory without personal classes needs no word."""
    backups, target = tmp_path / "backups", tmp_path / "new"
    backup = Backups(backups).make(data, "persons").backup
    words = (
        [str(backups), str(target)]
        if command == "restore"
        else [str(target), PERSONS, "--data", str(data)]
    )
    assert execute([command, *words, "--json"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert f"{SUBJECT_KEYS}, the keys of User: {target} is refused until your own copy" in told
    assert execute(["verify", PERSONS, "--data", str(target)]) == 2
    shutil.copy(data / SUBJECT_KEYS, target)
    assert execute(["verify", PERSONS, "--data", str(target)]) == 0
    capsys.readouterr()
    shutil.rmtree(target)
    part = next(file for file in backup.files if "kind=changes" in file.path)
    (backups / "files" / part.checksum if command == "restore" else data / part.path).unlink()
    assert execute([command, *words]) == 1
    assert "the keys of User" in capsys.readouterr().err
    assert not target.exists()


def test_backup_is_read_with_the_keys_of_its_directory(data: Path, tmp_path: Path) -> None:
    """A backup has no keys: without them a restored directory is refused, with them it is read."""
    backup = Backups(tmp_path / "backups").make(data, "persons").backup
    assert SUBJECT_KEYS not in {file.path for file in backup.files}
    restore(tmp_path / "backups", tmp_path / "restored", None)
    app = load_app(PERSONS)
    with pytest.raises(ConfigError, match=SUBJECT_KEYS):
        DataDirectory(tmp_path / "restored").open_journal(app)
    (tmp_path / "restored" / SUBJECT_KEYS).write_bytes((data / SUBJECT_KEYS).read_bytes())
    assert execute(["replay", PERSONS, "--data", str(tmp_path / "restored"), "--json"]) == 0
