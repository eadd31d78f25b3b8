"""The space that files need, in the data directory and among temporary files.

A full disk shows itself in many errors: of the log, of the journal, of stores, of Java, of workers. A look at the disk
says which disk it is.
"""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 1 << 20
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors of a full disk, of a user's share of it, and of a limit on the size of files."""


def full_text(folder: Path) -> str:
    """Return a sentence if the disk of a folder is full; empty otherwise.

    Raises:
        OSError: The folder cannot be read.
    """
    free = shutil.disk_usage(folder).free
    return f"the disk is full: {free:,} bytes are free" if free < LEAST_BYTES else ""


_TEXTS: Final = ("disk is full", *map(os.strerror, sorted(FULL)))


def tells_of_full_disk(error: BaseException | None) -> bool:
    """Say whether an error of Java, SQLite, DuckDB or another process has the words of the system, or SQLite's, for a full disk."""
    return any(text in str(error) for text in _TEXTS)


def check_space(data: Path) -> None:
    """Check that a file can grow where processes write; nothing stays.

    Args:
        data: The data directory, which may be missing.

    Raises:
        OSError: A disk is full; the message says which, and its file name is the folder.
    """
    nearest = next((path for path in (data, *data.absolute().parents) if path.is_dir()), data)
    for folder in (nearest, Path(tempfile.gettempdir())):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(LEAST_BYTES))
        except OSError as error:
            if error.errno in FULL:
                raise OSError(error.errno, _described(error, folder), str(folder)) from error


def _described(error: OSError, folder: Path) -> str:
    free = f"{shutil.disk_usage(folder).free:,} bytes are free"
    why = full_text(folder) or f"{os.strerror(error.errno or 0)}: {free}"
    return f"{why}, and Penstock needs files of {LEAST_BYTES:,} bytes"
