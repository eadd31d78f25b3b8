"""Files that are made durable together."""

import _thread
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.files.durable import create_all

WAIT_S = 60


def synced(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


@pytest.fixture
def files(tmp_path: Path) -> dict[Path, bytes]:
    """Two files, each in a folder of its own."""
    made = {tmp_path / folder / f"{folder}.part": folder.encode() for folder in ("changes", "sent")}
    for path in made:
        path.parent.mkdir()
    return made


EVERY = ["changes", "changes.part", "sent", "sent.part"]
"""The names of the files and of their folders."""


def watch(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[str], object] = lambda _: None
) -> list[str]:
    """Note the name of each descriptor whose sync has ended."""
    fsync, names = os.fsync, list[str]()

    def watched(descriptor: int) -> None:
        name = synced(descriptor)
        before(name)
        fsync(descriptor)
        names.append(name)

    monkeypatch.setattr(os, "fsync", watched)
    return names


def test_files_and_folders_are_synced_at_the_same_time(
    files: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sync ends before all have begun, and all have ended on return."""
    together = threading.Barrier(len(EVERY), timeout=WAIT_S)
    names = watch(monkeypatch, lambda _: together.wait())
    create_all(files)
    assert sorted(names) == EVERY
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize("broken", EVERY)
def test_a_sync_that_fails_leaves_no_file(
    files: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The error of each thread is that of the call, which waits for the other syncs before it closes their files."""
    has_failed = threading.Event()

    def before(name: str) -> None:
        if name == broken:
            has_failed.set()
            raise OSError(errno.EIO, "Input/output error")
        assert has_failed.wait(WAIT_S)

    names = watch(monkeypatch, before)
    with pytest.raises(OSError, match="Input"):
        create_all(files)
    assert sorted(names) == [name for name in EVERY if name != broken]
    assert not [path for path in files if path.exists()]


def test_syncs_need_no_thread(files: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process can start no further thread, each file and folder is synced nevertheless."""

    def refused(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    names = watch(monkeypatch)
    create_all(files)
    assert sorted(names) == EVERY
