"""A bell wakes those who wait for a file, and whoever it cannot wake looks often."""

import os
import threading
import time
from pathlib import Path

import pytest

from penstock.files import bell as bells
from penstock.files.bell import QUIET_S, Bell
from penstock.files.durable import temporary_of
from penstock.files.store_root import StoreRoot
from tests.waiting import wait_for

OFTEN = (0.001, 0.005)


def until_rung(bell: Bell, heard: int) -> None:
    wait_for(lambda: bell.rings > heard, "a ring")


def until_unwatched(bell: Bell) -> None:
    wait_for(lambda: not bell.is_watched, "the end of the watch")


def test_each_new_name_rings(tmp_path: Path) -> None:
    """A folder is watched until nobody waits any more; each name that appears rings, also one that was moved there."""
    bell = Bell(OFTEN)
    assert bell.watch_names(tmp_path)
    assert bell.look_s == (QUIET_S, QUIET_S)
    (tmp_path / "first").touch()
    until_rung(bell, 0)
    heard = bell.rings
    (tmp_path.parent / "second").touch()
    (tmp_path.parent / "second").rename(tmp_path / "second")
    until_rung(bell, heard)


def test_a_system_that_starts_no_thread_makes_waiters_look_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process goes on without the thread that hears of changes."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bells, "_watchers", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    bell = Bell(OFTEN)
    assert not bell.watch_names(tmp_path)
    assert bell.look_s == OFTEN


def test_temporary_name_rings_nothing(tmp_path: Path) -> None:
    """Each commit has a temporary name first, and whoever follows would look for it in vain."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    bell, later = Bell(OFTEN), Bell(OFTEN)
    for each, ringing in ((folder, bell), (other, later)):
        each.mkdir()
        assert ringing.watch_names(each)
    temporary_of(folder / "commit").touch()
    (other / "name").touch()
    until_rung(later, 0)  # Linux tells in the order of the changes
    assert bell.rings == 0


def test_next_write_rings_once(tmp_path: Path) -> None:
    """A busy file costs its readers nothing: it rings for one write, and then they look for themselves."""
    file = tmp_path / "log"
    file.touch()
    bell, other = Bell(OFTEN), Bell(OFTEN)
    assert bell.watch_write(file)
    assert other.watch_write(file)
    file.write_bytes(b"1")
    for each in (bell, other):
        until_rung(each, 0)
        until_unwatched(each)
        assert each.look_s == OFTEN
    assert bell.watch_write(file)


def test_processes_of_a_host_tell_each_other_of_names_in_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store rings nothing, so a process that knows of a name tells, once for all; without rings, the others look often."""
    ours, others = (StoreRoot("s3://bucket/app", tmp_path / host) for host in ("ours", "others"))
    bell, elsewhere = ours.folder("log").bell(), others.folder("log").bell()
    now = time.monotonic
    for name in ("00001", "00001", "00002"):
        ours.folder("log").tell(name)
    others.folder("log").tell("00003")
    until_rung(elsewhere, 0)  # Linux tells in the order of the changes
    assert (bell.rings, elsewhere.rings) in {(1, 1), (2, 1)}, "events that come together ring once"
    seldom = bell.look_s
    monkeypatch.setattr(time, "monotonic", lambda: now() + 10)
    assert seldom > bell.look_s, "the process that told may have ended"
    monkeypatch.undo()
    ours.folder("other").tell("00004")  # nobody waits there, so nothing is written
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("0*")) == [
        "others/log/told/00003",
        "ours/log/told/00002",
    ]


def test_ring_before_the_wait_ends_it() -> None:
    """A ring between the look and the wait is not lost."""
    bell = Bell(OFTEN)
    heard = bell.rings
    bell.ring()
    began = time.monotonic()
    bell.wait(heard, 60)
    assert time.monotonic() - began < 60


def test_all_who_wait_are_woken() -> None:
    """Several threads may wait for one bell."""
    bell = Bell(OFTEN)
    threads = [threading.Thread(target=bell.wait, args=(0, 60)) for _ in range(3)]
    for thread in threads:
        thread.start()
    bell.ring()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_folder_that_is_gone_is_not_watched(tmp_path: Path) -> None:
    """Whoever waits for a missing or a removed folder looks often."""
    missing = Bell(OFTEN)
    assert not missing.watch_names(tmp_path / "missing")
    assert (missing.look_s, missing.can_be_watched) == (OFTEN, False)
    removed = Bell(OFTEN)
    (tmp_path / "folder").mkdir()
    assert removed.watch_names(tmp_path / "folder")
    (tmp_path / "folder").rmdir()
    until_unwatched(removed)
    assert removed.look_s == OFTEN


def test_user_without_watches_looks_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux may refuse another watcher."""

    def refused() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(bells, "_watchers", [])
    monkeypatch.setattr(bells, "_Watcher", refused)
    bell = Bell(OFTEN)
    assert not bell.watch_names(tmp_path)
    assert bell.look_s == OFTEN


def test_fork_is_woken_by_nobody_and_watches_for_itself(tmp_path: Path) -> None:
    """A fork has a bell of its parent as one without a watch, can watch again, and takes no ring from its parent."""
    bell = Bell(OFTEN)
    assert bell.watch_names(tmp_path)
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            fine = bell.look_s == OFTEN and bell.watch_names(tmp_path)
            os.write(tell, b"1" if fine else b"0")
            until_rung(bell, 0)
            os.write(tell, b"1")
        finally:
            os._exit(0)
    assert os.read(told, 1) == b"1"
    (tmp_path / "name").touch()
    assert os.read(told, 1) == b"1"
    until_rung(bell, 0)
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
