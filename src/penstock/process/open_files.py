"""The limit of open files of a process: raised at its start, and shared between connections and other files.

Most systems allow few files (1,024) until a process asks for more, for the sake of programs that cannot have many.
"""

import logging
import os
import resource
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

RESERVE: Final = 256
"""Files that a gateway may open apart from connections: of the journal, of queries, of readers and other children."""

_OF_A_STORE: Final = 8
_LEAST: Final = 16
_MOST: Final = 1 << 20
"""The limit where the system has none; some libraries try to close every possible file of a child."""

_OF_LINUX: Final = Path("/proc/self/fd")
_OPEN_FILES: Final = (_OF_LINUX, Path("/dev/fd"))
_log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit of this process and its children to the hard limit, and return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has a lower limit of its own
            return soft
        return wanted
    return _MOST if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """Return the number of files that this process has open; 0 where the system does not say."""
    for folder in _OPEN_FILES:
        try:
            # Linux 6.2 and newer says the number as the size of the folder; to list 1,000 files takes 0.8 ms.
            told = folder.stat().st_size if folder is _OF_LINUX else 0
            return told or len(os.listdir(folder))  # noqa: PTH208 -- thousands of names need no paths
        except OSError:
            continue
    return 0


def connections_within(wanted: int, partitions: int) -> int:
    """Return how many connections a process may have at most, so that its other files can be opened at any time."""
    limit = raise_limit()
    most = min(wanted, limit - open_files() - RESERVE - _OF_A_STORE * partitions)
    if most < _LEAST:
        raise ConfigError(
            f"this process may open {limit} files, which leaves no room for connections and its own files; raise the "
            "hard limit (ulimit -Hn, or LimitNOFILE of systemd)"
        )
    if most < wanted:
        facts = {"connections": most, "files": limit, "setting": wanted}
        _log.info("the limit of open files lowers gateway.connections_max", extra=facts)
    return most
