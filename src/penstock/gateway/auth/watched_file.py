"""A file that other processes replace while this process runs.

Promises that a new content is in use within a second, that a check every `LOOK_S` costs one `stat`,
and that a damaged file is not treated as an absent one: while the file cannot be read, its former
content is not used either. For one thread.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from penstock.errors import Corrupt, OperationalError, PenstockError
from penstock.files import shared_file

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.5

T = TypeVar("T")
_Identity = tuple[int, int, int, int]


class WatchedFile(Generic[T]):
    """The decoded content of a file, kept up to date."""

    def __init__(self, path: Path, read: Callable[[bytes | None], T]) -> None:
        """Read the file.

        Args:
            path: The file; writers replace it as a whole.
            read: Decodes the bytes of the file; None if the file does not exist.

        Raises:
            OperationalError: It cannot be read.
            PenstockError: `read` raised it.
        """
        self._path = path
        self._read = read
        self._failed = False
        self._identity = self._identity_now()
        self._value = shared_file.read(path, read)
        self._look_at_s = time.monotonic() + LOOK_S

    def value(self) -> T:
        """Return the decoded content, which is at most a second old."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._look()
        if self._failed:
            raise Corrupt(f"{self._path} cannot be used; the gateway's log says why")
        return self._value

    def _look(self) -> None:
        try:
            identity = self._identity_now()
            if identity == self._identity and not self._failed:
                return
            # Read before the bytes: the next check sees a file that is replaced in between.
            self._identity = identity
            self._value = shared_file.read(self._path, self._read)
        except PenstockError as error:
            if not self._failed:
                _log.error("requests are refused, because they need a file: %s", error)
            self._failed = True
            return
        self._failed = False
        _log.info("%s has changed", self._path)

    def _identity_now(self) -> _Identity | None:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OperationalError(f"cannot read {self._path}: {error.strerror}") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
