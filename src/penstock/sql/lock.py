"""The lock of a view's directory: one process at a time has its file open."""

import fcntl
import os
from pathlib import Path

from penstock.errors import ConfigError, StateUnavailable


def locked(folder: Path) -> int:
    """Keep other processes from this directory; return what holds the lock.

    Raises:
        ConfigError: Another process has it.
        StateUnavailable: The directory cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "view.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnavailable(f"{folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode()
        os.close(descriptor)
        raise ConfigError(
            f"process {holder} has the SQL view in {folder} open already; stop it, or ask it"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
