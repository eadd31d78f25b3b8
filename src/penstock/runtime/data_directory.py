"""The data directory of an application: its creation, and who may look into it.

Promises a directory that is its owner's alone (0700), with files that are their owner's alone (0600),
whatever the umask was; and that a new directory survives the loss of power with all that is made
durable in it, because its own name is durable before anything is written.

Files are written by SQLite, LMDB, DuckDB, Arrow, delta-rs and Java, too, which take no mode. So a
process that opens a data directory gives up its rights for others in its umask, for itself and for
the processes that it starts.
"""

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.journal import durable

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

    A directory of Penstock's that others may read is closed to them. One that holds other things,
    or in which everybody may write (`/tmp`), is left as it is, with a warning.

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
    """Create what is missing of a path; return that, also what another process was faster with."""
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
