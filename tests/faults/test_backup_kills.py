"""Backups, restoring and forking, killed at every step and continued (F1, F15, F20)."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import execute
from penstock.history.backup import Backups
from penstock.history.restore import restore
from penstock.process.fault import COPYING_STEPS
from tests.checkout import SHOP
from tests.faults.copies import LAST, Place, check_sound, digest_at


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def steps(*prefixes: str) -> list[str]:
    return [step for step in COPYING_STEPS if step.startswith(prefixes)]


@pytest.mark.parametrize("fault", [*steps("backup"), "backup-file-copied@3"])
@pytest.mark.turns(
    4, "history", "files", "journal", "log", "process", of="a copy killed at every step"
)
def test_killed_backup_leaves_the_earlier_ones_and_is_continued(place: Place, fault: str) -> None:
    """After a kill at any step the earlier backup can be restored, and the next run completes."""
    backups = Backups(place.backups)
    backups.make(place.data, "shop")
    place.add("more")
    place.kill("backup", fault)
    restore(place.backups, place.target, LAST)
    assert digest_at(place.target, LAST) == digest_at(place.data, LAST)
    assert place.run("backup").returncode == 0
    (left,) = backups.every()
    assert left.contents.epoch == LAST + 1
    names = {path.name for path in (place.backups / "files").iterdir()}
    assert names == {file.checksum for file in left.files}
    restore(place.backups, place.target.with_name("newer"), None)
    assert digest_at(place.target.with_name("newer"), 3) == digest_at(place.data, 3)


@pytest.mark.parametrize(
    "fault", [*steps("restore", "fork"), "restore-file-copied@4", "fork-file-linked@4"]
)
@pytest.mark.turns(
    4, "history", "files", "journal", "log", "process", of="a copy killed at every step"
)
def test_killed_copy_is_whole_or_not_there(place: Place, fault: str) -> None:
    """After a kill at any step of restoring or forking the new directory is whole, or absent."""
    what = fault.partition("-")[0]
    Backups(place.backups).make(place.data, "shop")
    place.kill(what, fault)
    if place.target.exists():
        assert fault.endswith("after-rename")
    else:
        assert place.run(what).returncode == 0
    assert place.run(what).stderr.startswith("config: ")
    assert digest_at(place.target, 1) == digest_at(place.data, 1)
    check_sound(place.target)
    check_sound(place.data)
    assert sorted(path.name for path in place.target.parent.iterdir()) == [
        "backups",
        "data",
        "target",
    ]


def test_backup_that_is_killed_again_and_again_gets_done(place: Place) -> None:
    """Every run copies at least one file more, so that they come to an end."""
    runs = 0
    while place.run("backup", "backup-file-copied@2").returncode == -signal.SIGKILL:
        runs += 1
        assert runs < 20
    assert runs > 2
    restore(place.backups, place.target, None)
    check_sound(place.target)


def test_switch_is_a_setting_of_the_commands(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`PENSTOCK_FAULT` kills `penstock backup`, and nothing else is needed to go on."""
    words = ["backup", str(place.backups), SHOP, "--data", str(place.data)]
    monkeypatch.setenv("PENSTOCK_FAULT", "backup-before-manifest")
    done = subprocess.run([sys.executable, "-m", "penstock", *words], check=False)
    assert done.returncode == -signal.SIGKILL
    monkeypatch.delenv("PENSTOCK_FAULT")
    assert execute(words) == 0
    assert "copied 1," in capfd.readouterr().out
