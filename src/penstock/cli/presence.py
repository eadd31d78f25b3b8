"""`run.json`: says which process runs an application, for as long as it does.

A hint for people and other commands, never a lock: a second driver is fenced by the journal. A file
that a killed process left behind is recognised, because a process id comes with its start time.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil

from penstock.errors import ConfigError

FILE_NAME: Final = "run.json"
_SAME_START_S: Final = 1.0


class Presence(msgspec.Struct, frozen=True):
    """Who runs an application.

    Attributes:
        pid: The process.
        app: The application as the command line named it.
        started_s: When the process started, seconds since the Unix epoch.
    """

    pid: int
    app: str
    started_s: float

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        try:
            started_s: float = psutil.Process(self.pid).create_time()
        except psutil.NoSuchProcess:
            return False
        return abs(started_s - self.started_s) < _SAME_START_S


def find(data: Path) -> Presence | None:
    """Return who runs the application of a data directory now, or None."""
    try:
        found = msgspec.json.decode((data / FILE_NAME).read_bytes(), type=Presence)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.alive else None


@contextmanager
def present(data: Path, app: str) -> Iterator[None]:
    """Say that this process runs the application, until the block ends.

    Raises:
        ConfigError: Another process runs it.
    """
    other = find(data)
    if other is not None:
        raise ConfigError(
            f"process {other.pid} runs {other.app} in {data} already; stop it, or give --data"
        )
    data.mkdir(parents=True, exist_ok=True)
    path = data / FILE_NAME
    mine = Presence(os.getpid(), app, psutil.Process().create_time())
    written = path.with_suffix(".new")
    written.write_bytes(msgspec.json.encode(mine))
    written.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
