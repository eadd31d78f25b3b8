"""Files that are made durable together."""

import _thread
import errno
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.files import durable
from penstock.files.durable import create_all, done_together, is_temporary, publish, sync_all

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


NAME = "name"
EVERY = [f".{NAME}", "changes", "changes.part", "sent", "sent.part"]
"""The names of the files and of their folders, and that of the temporary file of a name that comes after them."""


def without_token(name: str) -> str:
    return f".{NAME}" if is_temporary(name) else name


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


def test_a_file_and_those_before_it_are_synced_at_the_same_time(
    files: dict[Path, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sync ends before all have begun, and all have ended before the name is visible."""
    together = threading.Barrier(len(EVERY), timeout=WAIT_S)
    names = watch(monkeypatch, lambda _: together.wait())
    create_all(files)
    assert names == []
    link, seen = os.link, list[str]()

    def linked(*paths: Path) -> None:
        seen.extend(names)
        link(*paths)

    monkeypatch.setattr(os, "link", linked)
    publish(tmp_path / NAME, b"both", files)
    assert sorted(map(without_token, seen)) == EVERY
    assert (tmp_path / NAME).read_bytes() == b"both"
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize("broken", EVERY)
def test_a_sync_that_fails_leaves_no_name(
    files: dict[Path, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The error of each thread is that of the call, which waits for the other syncs before it closes their files."""
    has_failed = threading.Event()

    def before(name: str) -> None:
        if without_token(name) == broken:
            has_failed.set()
            raise OSError(errno.EIO, "Input/output error")
        assert has_failed.wait(WAIT_S)

    create_all(files)
    names = watch(monkeypatch, before)
    with pytest.raises(OSError, match="Input"):
        publish(tmp_path / NAME, b"both", files)
    assert sorted(map(without_token, names)) == [name for name in EVERY if name != broken]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["changes", "sent"]


def test_a_missing_file_before_another_leaves_no_name(tmp_path: Path) -> None:
    """A name never speaks of a file that is not there."""
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / NAME, b"both", [tmp_path / "sent.part"])
    assert not list(tmp_path.iterdir())


def test_more_files_than_a_process_may_open_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch may have thousands of parts; each is synced before the name is visible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = {tmp_path / f"{number}.part": b"" for number in range(400)}
    create_all(files)
    names = watch(monkeypatch)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 200, hard))
    try:
        publish(tmp_path / NAME, b"all", files)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {path.name for path in files} <= {*names}


def test_a_name_that_is_taken_leaves_no_file(files: dict[Path, bytes]) -> None:
    """Of several files, none stays if one cannot be created; the file of others stays."""
    first, taken = files
    taken.write_bytes(b"of others")
    with pytest.raises(FileExistsError):
        create_all(files)
    assert not first.exists()
    assert taken.read_bytes() == b"of others"


def test_syncs_need_no_thread(
    files: dict[Path, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a process can start no further thread, each file and folder is synced nevertheless."""

    def refused(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(durable, "_free", [])
    monkeypatch.setattr(_thread, "start_new_thread", refused)
    names = watch(monkeypatch)
    create_all(files)
    publish(tmp_path / NAME, b"both", files)
    assert sorted(map(without_token, names)) == EVERY


def test_a_fork_syncs_with_threads_of_its_own(files: dict[Path, bytes]) -> None:
    """A fork lacks the threads that its parent keeps for syncs; it syncs nevertheless."""
    create_all(files)
    sync_all(files)
    fork = os.fork()
    if not fork:
        signal.alarm(120)
        sync_all(files)
        os._exit(os.EX_OK)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == os.EX_OK


def test_a_work_that_fails_ends_no_thread() -> None:
    """The first error of several works is raised when all of them have ended, and the next works have their threads."""
    ended = []

    def fails(name: str) -> None:
        time.sleep(0.01)
        ended.append(name)
        raise OSError(name)

    for _ in range(2):
        with pytest.raises(OSError, match="second"):
            done_together([tuple, partial(fails, "second"), partial(fails, "third")])
        with pytest.raises(OSError, match="first"):
            done_together([partial(fails, "first"), partial(fails, "second")])
    assert sorted(ended) == sorted(2 * ["second", "third", "first", "second"])
