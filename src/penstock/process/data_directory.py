"""The data directory of an application: creates it durably, and keeps it private.

A directory is its owner's alone (0700), and so are all files in it (0600), with any umask at the
start. A new directory survives the loss of power with its contents, because its name is durable
before anything is written in it.

SQLite, LMDB, DuckDB, Arrow, delta-rs and Java write files, too, and take no mode. So a process that
opens a data directory removes all rights of others in its umask, for itself and for the processes
that it starts.
"""

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.files import durable

_log = logging.getLogger(__name__)

UMASK: Final = 0o077
_OTHERS: Final = 0o077
_CONTENTS: Final = frozenset({"log.sqlite", "journal", "keys.json", "run", "backups"})
"""Names of which at least one lies in a directory of Penstock's: of data, or of backups."""


def keep_private() -> None:
    """Let this process, and those that it starts, create files for their owner only."""
    os.umask(UMASK)


def create(path: Path) -> None:
    """Create a directory and its parents where they are missing, durably, and keep it private.

    A directory of Penstock's that others may read is closed to them. A directory with other files,
    or one that every user may write to (`/tmp`), keeps its rights; a warning names it.

    Raises:
        ConfigError: It cannot be created, or is a file.
    """
    keep_private()
    try:
        new = _created(path.absolute())
        for one in new:
            durable.sync_directory(one.parent)
        if not new:
            _close_to_others(path)
    except OSError as error:
        raise ConfigError(
            f"the directory {path} cannot be used: {error.strerror}; name another one"
        ) from error


def _created(path: Path) -> list[Path]:
    """Create the missing directories of a path; return them, also if another process was faster."""
    missing = []
    place = path
    while not place.is_dir():
        missing.append(place)
        place = place.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    return missing


def _close_to_others(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return
    names = {one.name for one in path.iterdir()}
    is_ours = not names or not names.isdisjoint(_CONTENTS)
    if is_ours and not mode & stat.S_ISVTX:
        with suppress(PermissionError):  # another user's: the warning says so
            path.chmod(mode & ~_OTHERS)
            _log.info("a directory is closed to others", extra={"path": str(path)})
            return
    _log.warning(
        "others may look into a directory; chmod 700 closes it",
        extra={"path": str(path), "mode": f"{mode:o}"},
    )
