"""Leases and savepoints keep history from being removed."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, Corrupt, OperationalError
from penstock.files import durable
from penstock.history.reader import HistoryReader
from penstock.retention import savepoints
from penstock.retention.leases import RetentionLease, active_leases, lease
from penstock.retention.savepoints import Savepoint
from tests.checkout import SHOP
from tests.unit.history.copied_shop import made

HOLD_AND_DIE = """
import os, signal, sys
from pathlib import Path
from penstock.retention.leases import lease
with lease(Path(sys.argv[1]), "backup", 3):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_savepoint_holds_its_epoch_until_it_is_removed(tmp_path: Path) -> None:
    """A savepoint is found, listed and held, until it is removed."""
    first = Savepoint("before", Epoch(7), 1, "the day before")
    savepoints.create(tmp_path, first)
    savepoints.create(tmp_path, Savepoint("earlier", Epoch(2), 2))
    assert savepoints.find(tmp_path, "before") == first
    assert active_leases(tmp_path) == [
        RetentionLease("savepoint earlier", Epoch(2)),
        RetentionLease("savepoint before", Epoch(7)),
    ]
    savepoints.remove(tmp_path, "before")
    assert [one.name for one in savepoints.every(tmp_path)] == ["earlier"]
    assert active_leases(tmp_path) == [RetentionLease("savepoint earlier", Epoch(2))]


def test_a_savepoint_is_never_replaced(tmp_path: Path) -> None:
    """A name that is taken keeps its epoch."""
    savepoints.create(tmp_path, Savepoint("one", Epoch(1), 1))
    with pytest.raises(ConfigError, match="already, at epoch 1"):
        savepoints.create(tmp_path, Savepoint("one", Epoch(2), 2))
    assert savepoints.find(tmp_path, "one").epoch == Epoch(1)


@pytest.mark.parametrize("name", ["", "7", "2026-11-21", "../x", "a/b", ".a", "a" * 101])
def test_a_name_is_neither_an_epoch_nor_a_path(tmp_path: Path, name: str) -> None:
    """A name that could be an epoch, a time or another file is refused."""
    with pytest.raises(ConfigError, match="cannot name a savepoint"):
        savepoints.create(tmp_path, Savepoint(name, Epoch(0), 0))


def test_who_looks_for_a_name_is_told_which_there_are(tmp_path: Path) -> None:
    """An unknown name is refused with the known ones."""
    savepoints.create(tmp_path, Savepoint("known", Epoch(0), 0))
    with pytest.raises(ConfigError, match="its savepoints: known"):
        savepoints.find(tmp_path, "unknown")


def test_a_damaged_savepoint_stops_whoever_asks_what_is_held(tmp_path: Path) -> None:
    """No history is removed while one savepoint cannot be read."""
    savepoints.create(tmp_path, Savepoint("one", Epoch(1), 1))
    (tmp_path / "savepoints" / "one.json").write_bytes(b"{")
    with pytest.raises(Corrupt, match=r"one\.json is damaged"):
        active_leases(tmp_path)


def test_a_process_holds_for_as_long_as_it_does(tmp_path: Path) -> None:
    """A lease counts inside its block and is gone after it."""
    with lease(tmp_path, "backup", Epoch(4)):
        (held,) = active_leases(tmp_path)
        assert held.epoch == Epoch(4)
        assert held.who.startswith("backup (process ")
    assert active_leases(tmp_path) == []
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_who_may_only_read_reads_without_a_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A copy on a medium that takes no file can be read all the same; it has no lease."""
    refuse(monkeypatch, number)
    with lease(tmp_path, "replay", Epoch(0)):
        assert active_leases(tmp_path) == []


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a lease cannot be taken, the reader fails instead of reading."""
    refuse(monkeypatch, errno.ENOSPC)
    with (
        pytest.raises(OperationalError, match="No space left"),
        lease(tmp_path, "replay", Epoch(0)),
    ):
        pytest.fail("the block was entered")


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let every file be refused from here on."""

    def refused(path: Path, data: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(durable, "replace", refused)


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    """The lease of a killed process does not count, and the next process removes it."""
    subprocess.run([sys.executable, "-c", HOLD_AND_DIE, str(tmp_path)], check=False)
    assert len(list((tmp_path / "run").iterdir())) == 1
    assert active_leases(tmp_path) == []
    with lease(tmp_path, "replay", Epoch(0)):
        assert len(list((tmp_path / "run").iterdir())) == 1


def test_the_past_is_held_while_it_is_read(tmp_path: Path) -> None:
    """Nothing is forgotten under a command that reads history, and everything may be after it."""
    data = made(tmp_path / "data")
    with HistoryReader(data, load_app(SHOP), "replay"):
        (held,) = active_leases(data)
        assert held.epoch == Epoch(0)
        assert held.who.startswith("replay (process ")
    assert active_leases(data) == []
