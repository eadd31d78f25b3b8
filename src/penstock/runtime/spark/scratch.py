"""The scratch directories of drivers: temporary files, each directory of one run alone.

A killed driver leaves its directory, and workers of it may still write there. So every run has a directory
of its own, and the next driver removes those whose process has ended.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def new_scratch(data: Path) -> Path:
    """Return a path for temporary files of this run alone; nothing is created."""
    return data.absolute() / "scratch" / f"{os.getpid()}-{secrets.token_hex(8)}"


def clear_scratch(own: Path) -> None:
    """Delete the directories of earlier runs; those of other processes that run stay, such as a standby's."""
    for left in own.parent.iterdir():
        if left != own and not _belongs_to_another_process(left):
            shutil.rmtree(left, ignore_errors=True)


def new_folder_of_run(root: Path, run: str) -> Path:
    """Create a directory for the notes of one task of a run on a host, whose root is given."""
    folder = root / "scratch" / f"{os.getpid()}-{run}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    return folder


def take_left(root: Path, own: Path) -> Iterator[Path]:
    """Yield the directories on a host whose process has ended, under a new name, and delete each after that.

    Of several processes that find one, only the first takes it.
    """
    for left in (root / "scratch").iterdir():
        if left == own or _belongs_to_another_process(left) or _is_of_this(left):
            continue
        taken = left.with_name(f"{os.getpid()}-taken-{secrets.token_hex(4)}-{left.name}")
        with suppress(OSError):  # another process was faster
            left.rename(taken)
            yield taken
            shutil.rmtree(taken, ignore_errors=True)


def _is_of_this(scratch: Path) -> bool:
    return scratch.name.startswith(f"{os.getpid()}-")


def _belongs_to_another_process(scratch: Path) -> bool:
    """Say whether another process that runs may have made a directory; its id may have been given again."""
    pid, _, _ = scratch.name.partition("-")
    if not pid.isdecimal() or int(pid) == os.getpid():
        return False
    try:
        state = psutil.Process(int(pid)).status()
    except psutil.Error:
        return False
    return bool(state != psutil.STATUS_ZOMBIE)
