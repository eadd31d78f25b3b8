"""The driver lock: at most one driver for a data directory; the system frees it when its process dies.

It refuses a second driver before that driver changes anything. Where file locks do not work (another
host on a shared file system), the journal fences the second driver at its first commit.
"""

import os
from pathlib import Path
from typing import Final

from penstock.errors import Fenced
from penstock.files.lock import Claimed, claim

_FILE: Final = "driver.lock"


class DriverLock:
    """The right to drive the application in a data directory."""

    def __init__(self, data: Path) -> None:
        """Name the data directory; `take` locks it."""
        self._path = data / _FILE
        self._file: int | None = None

    def take(self) -> None:
        """Lock the directory until `release`, or until this process ends.

        Raises:
            Fenced: Another driver has the lock.
        """
        assert self._file is None, "the lock is taken once"
        try:
            self._file = claim(self._path)
        except Claimed as error:
            raise Fenced(
                f"another driver (process {error.holder}) runs the application in "
                f"{self._path.parent}; stop it, or choose another data directory"
            ) from error

    def release(self) -> None:
        """Unlock the directory; do nothing if it is not locked."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
