"""One driver for a data directory: a lock that the operating system frees when its holder dies.

It refuses a second driver before that one touches anything. Where a lock does not reach (another
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
        """Name the directory; `take` takes it."""
        self._path = data / _FILE
        self._file: int | None = None

    def take(self) -> None:
        """Become the owner until `release`, or until this process ends, however it ends.

        Raises:
            Fenced: Another driver is the owner.
        """
        assert self._file is None, "taken once"
        try:
            self._file = claim(self._path)
        except Claimed as error:
            raise Fenced(
                f"another driver (process {error.holder}) runs the application in "
                f"{self._path.parent}; stop it, or choose another data directory"
            ) from error

    def release(self) -> None:
        """Let another driver take over; does nothing where nothing was taken."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
