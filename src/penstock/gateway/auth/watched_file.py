"""A file of settings that others replace while this process runs.

Promises that a new content is in use within a second, that looking costs nothing between two looks
(`LOOK_S`) and one `stat` at a look, and that damage is never taken for absence: while the file
cannot be read, nothing is answered from what it said before. For one thread.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from penstock.errors import Corrupt, OperationalError, PenstockError

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.5

T = TypeVar("T")
_Identity = tuple[int, int, int, int]


class WatchedFile(Generic[T]):
    """What a file says now."""

    def __init__(self, path: Path, read: Callable[[bytes | None], T]) -> None:
        """Read the file.

        Args:
            path: The file, which writers replace as a whole.
            read: Makes a value of its bytes, or of None where there is no such file.

        Raises:
            OperationalError: It cannot be read.
            PenstockError: Whatever `read` raises.
        """
        self._path = path
        self._read = read
        self._failed = False
        self._identity = self._identity_now()
        self._value = self._load()
        self._look_at_s = time.monotonic() + LOOK_S

    def value(self) -> T:
        """Return what the file said within the last second.

        Raises:
            Corrupt: It cannot be read now; the log says why.
        """
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_S
            self._look()
        if self._failed:
            raise Corrupt(f"{self._path} cannot be used; the log says why")
        return self._value

    def _look(self) -> None:
        try:
            identity = self._identity_now()
            if identity == self._identity and not self._failed:
                return
            # Taken before the bytes are read: what is replaced in between is seen at the next look.
            self._identity = identity
            self._value = self._load()
        except PenstockError as error:
            if not self._failed:
                _log.error("%s cannot be used; nobody gets in by it: %s", self._path, error)
            self._failed = True
            return
        self._failed = False
        _log.info("%s has changed", self._path)

    def _load(self) -> T:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return self._read(None)
        except OSError as error:
            raise OperationalError(f"cannot read {self._path}: {error.strerror}") from error
        return self._read(data)

    def _identity_now(self) -> _Identity | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OperationalError(f"cannot read {self._path}: {error.strerror}") from error
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
