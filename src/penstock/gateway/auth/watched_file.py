"""A file that other processes replace while this process runs.

Promises that a new content is in use within a second, and that a damaged file is not treated as an absent one: while
the file cannot be read, its former content is not used either. In a folder a check costs one `stat` every `LOOK_S`. An object
store is asked by a thread, because the caller is an event loop, which must not wait for it. Nobody asks it while the file is not
used, because each question is paid for; so its user awaits `awake` first. For one thread.
"""

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from penstock.errors import Corrupt, OperationalError, PenstockError
from penstock.files import shared_file
from penstock.files.shared_root import SharedRoot

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
SILENT_S: Final = 5.0
"""The seconds after which the content of a store that does not answer is not used any more, and one that is not used is not asked for."""

_ALIVE_S: Final = 60.0
"""How often a thread that rests checks whether its file is still there."""

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """The decoded content of a file, kept up to date.

    Attributes:
        is_far: Whether it is in an object store, so that its user awaits `awake` first.

    Args:
        root: Where the file is.
        name: Its name there; writers replace it as a whole.
        read: Decodes the bytes of the file; None if the file does not exist.

    Raises:
        OperationalError: It cannot be read.
        PenstockError: `read` raised it.
    """

    def __init__(self, root: SharedRoot, name: str, read: Callable[[bytes | None], T]) -> None:
        self._root = root
        self.is_far = root.is_far
        self._name = name
        self._read = read
        self._failure: PenstockError | None = None
        self._stamp = self._stamp_now()
        self._value = shared_file.read(root, name, read)
        self._looked_s = self._used_s = time.monotonic()
        self._looking = threading.Lock()
        self._rests = False
        self._wanted = threading.Event()
        self._waking: asyncio.Future[None] | None = None
        if root.is_far:
            follow = partial(_follow, weakref.WeakMethod(self._look_if_used), self._wanted)
            threading.Thread(target=follow, name="penstock-watch", daemon=True).start()

    async def awake(self) -> None:
        """Look at the file before its next use, if nobody has looked for some seconds; all who wait share a look."""
        self._used_s = time.monotonic()  # first: the thread does not begin to rest after that
        # On a busy host the thread may have had no turn for seconds. One that looks waits for a store that does not answer.
        is_old = self._used_s - self._looked_s > SILENT_S and not self._looking.locked()
        if not (self._rests or (is_old and self._root.is_far)):
            return
        if self._waking is None or self._waking.done():
            self._waking = asyncio.ensure_future(asyncio.to_thread(self._look))
        waking = self._waking
        await asyncio.shield(waking)
        if self._waking is waking:  # the first of those who have waited
            self._waking, self._rests = None, False
            self._wanted.set()

    def value(self) -> T:
        """Return the decoded content, which is at most a second old."""
        self._used_s = time.monotonic()
        age_s = self._used_s - self._looked_s
        if age_s >= LOOK_S and not self._root.is_far:
            self._look()
        if self._failure is not None:
            error_type = OperationalError if self._root.is_far else Corrupt
            raise error_type(f"{self._place} cannot be used; the gateway's log says why")
        if self._root.is_far and age_s > SILENT_S:
            raise OperationalError(
                f"{self._place} cannot be used: the object store does not answer"
            )
        return self._value

    def _look_if_used(self) -> bool:
        """Look, unless nobody has used the file for some seconds; say whether somebody has."""
        self._rests = True
        if time.monotonic() - self._used_s >= SILENT_S:
            return False
        self._rests = False
        self._look()
        return True

    def _look(self) -> None:
        # One at a time: else the thread and `awake` could leave a former content with the stamp of the newer one, for good.
        with self._looking:
            try:
                stamp = self._stamp_now()
                if stamp != self._stamp or self._failure is not None:
                    # Read before it is used: the next check sees a file that is replaced in between.
                    self._value = shared_file.read(self._root, self._name, self._read)
                    self._stamp, self._failure = stamp, None
                    _log.info("%s has changed", self._place)
            except PenstockError as error:
                if self._failure is None:
                    _log.error("requests are refused, because they need a file: %s", error)
                self._failure = error
            self._looked_s = time.monotonic()

    @property
    def _place(self) -> str:
        return f"{self._root}/{self._name}"

    def _stamp_now(self) -> object:
        try:
            return self._root.stamp(self._name)
        except OSError as error:
            raise OperationalError(f"cannot read {self._place}: {error.strerror}") from error


def _follow(look_of: "weakref.WeakMethod[Callable[[], bool]]", wanted: threading.Event) -> None:
    """Look again and again while the file is used, and rest while it is not."""
    while (look := look_of()) is not None:
        is_used = look()
        del look
        wanted.wait(LOOK_S if is_used else _ALIVE_S)
        wanted.clear()
