"""The space that files need at a start, in the data directory and among temporary files.

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
    free = shutil.disk_usage(folder).free
    why = "the disk is full" if free < LEAST_BYTES else os.strerror(error.errno or 0)
    return f"{why}: {free:,} bytes are free, and a start needs files of {LEAST_BYTES:,} bytes"
