"""Folders in the system's temporary directory; the folder of a killed process is removed.

The owner holds the lock of its folder, which the kernel frees when the process dies. The next process that makes such a
folder removes the others. The id of a process is not enough: containers may share the directory.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.files.lock import locked_directory

_PREFIX: Final = "penstock."


@contextmanager
def temporary_folder(purpose: str, within: Path | None = None) -> Iterator[Path]:
    """Make a folder for this process; it is removed after the block.

    Args:
        purpose: A word of its name, for people.
        within: The directory of the folder; None: the system's temporary directory.

    Raises:
        OSError: The disk is full or fails.
    """
    directory = Path(tempfile.gettempdir()) if within is None else within
    _remove_orphans(directory)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-", dir=directory))
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # taken for an orphan before it had a lock
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not folder.exists():  # as above
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
        finally:
            os.close(descriptor)


def _remove_orphans(directory: Path) -> None:
    for folder in directory.glob(f"{_PREFIX}*"):
        # Another user's folder cannot be opened; another process may have removed this one.
        with suppress(OSError):
            if folder.stat().st_uid == os.getuid():
                with locked_directory(folder, timeout_s=0) as lock:
                    if lock is not None:
                        shutil.rmtree(folder, ignore_errors=True)
