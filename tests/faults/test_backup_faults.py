"""Backups and copies during writes, while files move, and on a full disk (F6, F20)."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import ConfigError
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.checkout import SHOP
from tests.faults.copies import LAST, Place, check_sound, digest_at
from tests.serial_driver import SerialDriver

AT_ONCE = CompactionPolicy(newest=1, epochs=3, grace_s=0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def once(action: Callable[[], None]) -> Callable[[str], None]:
    """Act at the first step that is reached."""
    waiting = [action]

    def reached(_: str) -> None:
        while waiting:
            waiting.pop()()

    return reached


def test_files_that_move_while_they_are_copied_are_followed(place: Place) -> None:
    """When parts are merged after they were listed, the copy has the segment, and the same state."""
    for number in range(6):
        place.add(f"more{number}")

    def merge() -> None:
        with closing(DeltaJournal(place.data / "journal", "shop")) as journal:
            assert journal.compact(AT_ONCE).removed

    backup = Backups(place.backups).make(place.data, "shop", once(merge)).backup
    assert any("_segments" in file.path for file in backup.files)
    restore(place.backups, place.target, None)
    check_sound(place.target)
    for number in range(6):
        place.add(f"again{number}")
    forked = fork(place.data, "shop", place.target.with_name("fork"), None, once(merge))
    assert digest_at(Path(forked.data), 14) == digest_at(place.data, 14)
    check_sound(Path(forked.data))


def test_log_that_is_truncated_meanwhile_makes_the_backup_newer(place: Place) -> None:
    """If the log has lost requests that the listed epoch had not processed, a newer epoch is taken."""

    def go_on() -> None:
        place.add("meanwhile")
        with closing(DataDirectory(place.data).open_log()) as log:
            log.truncate(log.end())

    backup = Backups(place.backups).make(place.data, "shop", once(go_on)).backup
    assert backup.contents.epoch == LAST + 1
    restore(place.backups, place.target, None)
    check_sound(place.target)


def test_second_backup_into_a_directory_is_refused(place: Place) -> None:
    """While one is being written another one stops at once, and the first is not disturbed."""

    def second() -> None:
        with pytest.raises(ConfigError, match="another backup is being written"):
            Backups(place.backups).make(place.data, "shop")

    Backups(place.backups).make(place.data, "shop", once(second))
    assert len(Backups(place.backups).every()) == 1


def test_backups_of_a_running_application_are_what_it_was(place: Place) -> None:
    """Each of several backups during writes and maintenance is the state at its epoch."""
    driver = SerialDriver(SHOP, Config(place.data))
    driver.start()
    body, hint = driver.app.request("Item", "i1", "add", (1,), {})
    stopping = threading.Event()

    def write() -> None:
        number = 0
        while not stopping.is_set():
            (lsn,) = driver.log.append([Entry(RequestId(f"w{number}"), body, hint, 0)])
            assert driver.wait_until(Lsn(lsn + 1), 20_000)
            number += 1
            if number % 7 == 0:
                driver.journal.compact(AT_ONCE)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [Backups(place.backups).make(place.data, "shop").backup for _ in range(5)]
    finally:
        stopping.set()
        writer.join()
        driver.stop()
    for number, backup in enumerate(made):
        epoch = backup.contents.epoch
        target = place.target.with_name(f"target{number}")
        assert restore(place.backups, target, epoch).epoch == epoch
        assert digest_at(target, epoch) == digest_at(place.data, epoch)
    restore(place.backups, place.target, None)
    check_sound(place.target)


@pytest.mark.parametrize("limit", ["300", "2000"])
def test_full_disk_leaves_nothing_half(place: Place, limit: str) -> None:
    """Whichever file does not fit, the reason is told, and all goes well when there is space."""
    for what in ("backup", "restore", "fork"):
        done = place.run(what, limit=limit)
        assert done.returncode == 1
        assert done.stderr.split(":")[0] in (
            "operational",
            "log-unavailable",
            "journal-unavailable",
        )
        assert not place.target.exists()
        assert not list(place.target.parent.glob(".*"))
        assert not list(place.backups.rglob(".*"))
        if what == "backup":
            assert Backups(place.backups).every() == []
            assert place.run("backup").returncode == 0
    assert place.run("restore").returncode == 0
    check_sound(place.target)
