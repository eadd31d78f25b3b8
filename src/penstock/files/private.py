"""Private directories: created durably, and closed to other users.

A directory of Penstock is its owner's alone (0700), and so are all files in it (0600), with any
umask at the start. A new directory survives the loss of power with its contents, because its name
is durable before a file is written in it.

SQLite, LMDB, DuckDB, Arrow, delta-rs and Java write files, too, and take no mode. So a process that
opens such a directory removes all rights of others in its umask, for itself and for the processes
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
from penstock.files.layout import BACKUPS, JOURNAL, KEYS, LOG, PAUSES, RUN

_log = logging.getLogger(__name__)

UMASK: Final = 0o077
_OTHERS: Final = 0o077
_CONTENTS: Final = frozenset({LOG, JOURNAL, KEYS, PAUSES, RUN, BACKUPS})
"""A directory of Penstock, of data or of backups, has a file with one of these names."""


def keep_private() -> None:
    """Let this process, and those that it starts, create files for their owner only."""
    os.umask(UMASK)


def create(path: Path) -> None:
    """Create a directory and its missing parents, durably, and keep it private.

    If others may read a directory of Penstock, their rights are removed. A directory with other
    files, or a directory that every user may write to (`/tmp`), keeps its rights; a warning names it.
    """
    keep_private()
    try:
        created = _create_missing(path.absolute())
        for folder in created:
            durable.sync_directory(folder.parent)
        if not created:
            _close_to_others(path)
    except OSError as error:
        raise ConfigError(
            f"the directory {path} cannot be used: {error.strerror}; name another directory"
        ) from error


def _create_missing(path: Path) -> list[Path]:
    """Create the missing directories of a path; return them, even if another process was faster."""
    missing = []
    place = path
    while not place.is_dir():
        missing.append(place)
        place = place.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    return missing


def _close_to_others(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return
    names = {entry.name for entry in path.iterdir()}
    is_ours = not names or not names.isdisjoint(_CONTENTS)
    if is_ours and not mode & stat.S_ISVTX:
        with suppress(PermissionError):  # another user's directory: the warning says so
            path.chmod(mode & ~_OTHERS)
            _log.info("a directory is closed to others", extra={"path": str(path)})
            return
    _log.warning(
        "others may look into a directory; chmod 700 closes it",
        extra={"path": str(path), "mode": f"{mode:o}"},
    )
