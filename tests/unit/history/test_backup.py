"""Backups: their content, which are kept, and which are refused."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import ConfigError, Corrupt, Diverged
from penstock.files.sealed import checksum_of
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.checkout import SHOP
from tests.serial_driver import SerialDriver
from tests.unit.history.copied_shop import CREATED, EPOCHS, add, made


def test_second_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    """Immutable files that are there are not copied again, and each backup is whole."""
    data = made(tmp_path / "data", EPOCHS[:3])
    backups = Backups(tmp_path / "b")
    first = backups.make(data, "shop")
    assert len(first.copied) == len(first.backup.files) == 2 + 3 * 3 + 1
    driver = SerialDriver(SHOP, Config(data))
    driver.start()
    body, hint = driver.app.request("Item", "i1", "add", (1,), {})
    driver.log.append([Entry(RequestId("more"), body, hint, 0)])
    assert driver.wait_until(Lsn(6), 20_000)
    driver.stop()
    second = backups.make(data, "shop")
    assert len(second.copied) == 3 + 1
    assert [one.contents.epoch for one in backups.every()] == [3, 2]
    assert restore(tmp_path / "b", tmp_path / "new", 3).epoch == 3


def test_what_a_killed_backup_was_writing_is_removed(tmp_path: Path) -> None:
    """Files under temporary names are gone after the next backup, those of the log too."""
    data = made(tmp_path / "data", CREATED)
    files = tmp_path / "b" / "files"
    files.mkdir(parents=True)
    for name in (".0123.89ab.tmp", ".log.sqlite.89ab.tmp", ".log.sqlite.89ab.tmp-wal"):
        (files / name).touch()
    backup = Backups(tmp_path / "b").make(data, "shop").backup
    assert {path.name for path in files.iterdir()} == {file.checksum for file in backup.files}


def test_only_the_newest_backups_are_kept(tmp_path: Path) -> None:
    """Files that only dropped backups needed are removed, and the other backups can be restored."""
    data = made(tmp_path / "data", EPOCHS[:2])
    backups = Backups(tmp_path / "b")
    for number in range(3):
        backups.make(data, "shop")
        add(data, f"late{number}")
    files = {path.name for path in (tmp_path / "b" / "files").iterdir()}
    assert len(backups.keep(1)) == 2
    left = {path.name for path in (tmp_path / "b" / "files").iterdir()}
    assert left == {file.checksum for file in backups.every()[0].files}
    assert len(files - left) == 2
    assert restore(tmp_path / "b", tmp_path / "new", None).waiting == 2


def test_backups_of_two_applications_do_not_mix(tmp_path: Path) -> None:
    """A directory that has one application's backups refuses another's, also a fork's."""
    data = made(tmp_path / "data", CREATED)
    Backups(tmp_path / "b").make(data, "shop")
    fork(data, "shop", tmp_path / "fork", None)
    with pytest.raises(ConfigError, match="another copy of shop"):
        Backups(tmp_path / "b").make(tmp_path / "fork", "shop")


def test_api_keys_come_along_and_stay_private(tmp_path: Path) -> None:
    """A restored application has the same keys, and only its owner can read them, also in the backup."""
    data = made(tmp_path / "data", CREATED)
    (data / "keys.json").touch(0o600)
    (data / "keys.json").write_text("{}")
    backup = Backups(tmp_path / "b").make(data, "shop").backup
    (file,) = [one for one in backup.files if one.path == "keys.json"]
    restore(tmp_path / "b", tmp_path / "new", None)
    for path in (tmp_path / "b" / "files" / file.checksum, tmp_path / "new" / "keys.json"):
        assert path.read_text() == "{}"
        assert path.stat().st_mode & 0o777 == 0o600


def test_damaged_part_stops_the_backup(tmp_path: Path) -> None:
    """The file is named, and no backup contains it."""
    data = made(tmp_path / "data")
    part = next((data / "journal" / "kind=transactions").glob("000000000002-*"))
    content = bytearray(part.read_bytes())
    content[40] ^= 1
    part.write_bytes(content)
    with pytest.raises(Corrupt, match=part.name):
        Backups(tmp_path / "b").make(data, "shop")
    assert Backups(tmp_path / "b").every() == []
    part.unlink()
    with pytest.raises(Corrupt, match=f"{part.name} is missing"):
        Backups(tmp_path / "b").make(data, "shop")


def test_log_that_does_not_fit_its_journal_stops_the_backup(tmp_path: Path) -> None:
    """One that is missing, ends too early or begins too late is named; none is created."""
    data = made(tmp_path / "data", CREATED)
    for path in data.glob("log.sqlite*"):
        path.unlink()
    with pytest.raises(Corrupt, match=r"log\.sqlite is missing"):
        Backups(tmp_path / "b").make(data, "shop")
    assert not (data / "log.sqlite").exists()
    DataDirectory(data).open_log().close()
    with pytest.raises(Diverged, match="holds 0 to 0, but the journal has read it up to 1"):
        Backups(tmp_path / "b").make(data, "shop")
    add(data, "a")
    add(data, "b")
    with closing(DataDirectory(data).open_log()) as log:
        log.truncate(Lsn(2))
    with pytest.raises(Diverged, match="holds 2 to 2, but the journal has read it up to 1"):
        Backups(tmp_path / "b").make(data, "shop")
    assert Backups(tmp_path / "b").every() == []


@pytest.mark.parametrize("path", ["../escaped", "/escaped", "a/../../escaped"])
def test_backup_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    """A forged manifest cannot write outside of the new directory."""
    data = made(tmp_path / "data", CREATED)
    Backups(tmp_path / "b").make(data, "shop")
    (manifest,) = (tmp_path / "b" / "backups").iterdir()
    found = msgspec.json.decode(manifest.read_bytes())
    found["backup"]["log"]["path"] = path
    inner = msgspec.json.encode(found["backup"])
    sealed = {"checksum": checksum_of(inner), "backup": msgspec.Raw(inner)}
    manifest.write_bytes(msgspec.json.encode(sealed))
    with pytest.raises(ConfigError, match="there is no backup"):
        restore(tmp_path / "b", tmp_path / "new", None)


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_damaged_backup_is_not_restored(tmp_path: Path, how: str) -> None:
    """The file in the backup is named, and the new directory does not exist, not even in part."""
    data = made(tmp_path / "data", CREATED)
    backup = Backups(tmp_path / "b").make(data, "shop").backup
    file = next(one for one in backup.files if "kind=changes" in one.path)
    path = tmp_path / "b" / "files" / file.checksum
    content = bytearray(path.read_bytes())
    content[30] ^= 4
    match how:
        case "flipped":
            path.write_bytes(content)
        case "cut":
            path.write_bytes(content[:50])
        case _:
            path.unlink()
    with pytest.raises(Corrupt, match=rf"{path.name}, which is {file.path}"):
        restore(tmp_path / "b", tmp_path / "new", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "data"]


def test_damaged_manifest_hides_one_backup_and_loses_no_file(tmp_path: Path) -> None:
    """The other backups can be restored, and nothing is removed that the damaged one may need."""
    data = made(tmp_path / "data", CREATED)
    backups = Backups(tmp_path / "b")
    backups.make(data, "shop")
    (manifest,) = (tmp_path / "b" / "backups").iterdir()
    text = manifest.read_bytes()
    add(data, "late")
    manifest.write_bytes(text.replace(b'"epoch":0', b'"epoch":1'))
    backups.make(data, "shop")
    backups.keep(1)
    assert len(backups.every()) == 1
    assert backups.damaged() == [str(manifest)]
    manifest.write_bytes(text)
    backups.keep(2)
    assert restore(tmp_path / "b", tmp_path / "new", None).waiting == 1


def test_nothing_can_be_backed_up_where_nothing_was_committed(tmp_path: Path) -> None:
    """An empty directory is refused and stays empty."""
    with pytest.raises(ConfigError, match="there is no history"):
        Backups(tmp_path / "b").make(tmp_path / "data", "shop")
    with pytest.raises(ConfigError, match="there is no backup"):
        restore(tmp_path / "b", tmp_path / "new", None)
    assert not (tmp_path / "data").exists()
