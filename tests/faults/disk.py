"""A disk of its own for a test: an ext4 file system in a file, which can lose its power and become full."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

import pytest

from tests.waiting import wait_for

_SHUTDOWN: Final = 0x8004587D  # EXT4_IOC_SHUTDOWN
_NO_FLUSH: Final = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH: nothing that is only in memory reaches the disk
_CHUNK: Final = bytes(1 << 16)


def missing_for_disks() -> str:
    """Return why this machine cannot mount such a disk; empty if it can."""
    if os.geteuid() != 0:
        return "only root may mount a file system"
    if shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        return "mkfs.ext4 is not installed"
    return "" if Path("/dev/loop-control").exists() else "there are no loop devices"


class Disk:
    """The disk, mounted at `path` until the `with` block ends."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.path = folder / "disk"
        self._image = folder / "disk.img"
        self._megabytes = megabytes

    def __enter__(self) -> Self:
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self.path.mkdir()
        self._mount()
        (self.path / "lost+found").rmdir()
        return self

    def __exit__(self, *_: object) -> None:
        if self.path.is_mount():  # a failed test may leave a user of it
            _run("umount", "--lazy", str(self.path))

    def cut_power(self) -> None:
        """Stop all writes at once; what no fsync has written is lost, and the files cannot be used any more.

        A flush is durable if it has ended before this call begins. A flush that ends during the call may report a success
        and lose everything: Linux 6.18 did so in 21 of 460 cuts, in a program that only extends a file and calls
        `fdatasync`. All 21 ended during the call, or within a few milliseconds of its end. A real machine that loses its
        power cannot acknowledge such a flush.
        """
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
        finally:
            os.close(descriptor)

    def power_up(self) -> None:
        """Mount the disk again; no process may use it meanwhile."""
        self._unmount()
        self._mount()

    def fill(self) -> None:
        """Take all the space that is left."""
        with (self.path / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(_CHUNK)

    def make_space(self) -> None:
        """Give the space back that `fill` has taken."""
        (self.path / "ballast").unlink()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def _unmount(self) -> None:
        def unmounted() -> bool:
            return subprocess.run(["umount", str(self.path)], capture_output=True).returncode == 0

        wait_for(unmounted, "the end of all uses of the disk", look_s=0.2)


@contextmanager
def read_only(folder: Path, place: Path) -> Iterator[Path]:
    """Show a folder at a place for reading only, as a disk is after a failure; others write to it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    place.mkdir()
    _run("mount", "--bind", str(folder), str(place))
    try:
        _run("mount", "-o", "remount,bind,ro", str(place))
        yield place
    finally:
        _run("umount", "--lazy", str(place))


def _run(*words: str) -> None:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    subprocess.run(words, check=True, env=environment)
