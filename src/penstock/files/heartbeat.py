"""Heartbeats: names that change as long as a process lives, for processes of other hosts.

A process id says nothing on another host, and clocks disagree. So a living process replaces a name again and again, and whoever
must know whether it is dead watches the name: it is dead when the watcher's own monotonic clock has seen the name
unchanged for `DEAD_S`. A process that was only stopped is taken for dead, too; what it does afterwards must be harmless.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from penstock.base.cause import cause_text
from penstock.files.shared_root import SharedRoot

_log = logging.getLogger(__name__)

DEAD_S: Final = 60.0
_BEAT_S: Final = 10.0
_LATE: Final = "a sign of life is late"
_LATE_S: Final = DEAD_S / 2
"""After so long without a beat a process stops by itself: it is not known how long others have watched it."""


class Beat(msgspec.Struct, frozen=True):
    """The content of a name that changes.

    Attributes:
        about: The facts that the process has written about itself.
        count: How often the name was written.
    """

    about: msgspec.Raw
    count: int = 0


class Sight(msgspec.Struct, frozen=True):
    """The last look of a host at a name.

    Attributes:
        stamp: A value that changes with each writing of the name.
        since_s: Since when it has not changed, by the monotonic clock of the host.
        boot: The start of the host whose clock it is.
    """

    stamp: str
    since_s: float
    boot: str

    @property
    def is_dead(self) -> bool:
        """Whether the name has not changed for so long that its process is dead."""
        return time.monotonic() - self.since_s >= DEAD_S


def seen_again(root: SharedRoot, name: str, former: Sight | None, boot: str) -> Sight | None:
    """Look at a name, and return the result; None if the name does not exist any more."""
    stamp = root.stamp(name)
    if stamp is None:
        return None
    if former is not None and (former.stamp, former.boot) == (str(stamp), boot):
        return former
    return Sight(str(stamp), time.monotonic(), boot)


def is_alive(root: SharedRoot, name: str, pause_s: float = 1.0) -> bool:
    """Watch a name until it has changed, is gone, or its process is dead; return whether the process may live."""
    sight = first = seen_again(root, name, None, "")
    while sight is not None and sight is first and not sight.is_dead:
        time.sleep(pause_s)
        sight = seen_again(root, name, sight, "")
    return sight is not first


class Heartbeat:
    """Changes a name in a thread of its own, from `begin` to `end`.

    Args:
        say: Returns the present facts about the process; any thread calls it.
    """

    def __init__(self, root: SharedRoot, name: str, say: Callable[[], object]) -> None:
        self._root = root
        self._name = name
        self._say = say
        self._count = 0
        self._written_s = 0.0
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="penstock-heartbeat", daemon=True)

    def begin(self, *, may_be_late: bool = False) -> None:
        """Write the name; others see it from now on.

        Args:
            may_be_late: Whether nothing depends on it, so that a root that is away for a moment is no error.
        """
        try:
            self.beat()
        except OSError as error:
            if not may_be_late:
                raise
            _log.warning(_LATE, extra={"cause": cause_text(error)})
        self._thread.start()

    def beat(self) -> None:
        """Write the name again, with the present facts."""
        with self._turn:
            began_s = time.monotonic()
            said = msgspec.Raw(msgspec.json.encode(self._say()))
            self._root.replace(self._name, msgspec.json.encode(Beat(said, self._count)))
            self._count += 1
            self._written_s = began_s

    def check(self) -> None:
        """Make sure that no watcher takes this process for dead, or will soon.

        Raises:
            OSError: It was stopped, or the root out of reach, for too long.
        """
        if time.monotonic() - self._written_s > _LATE_S:
            raise OSError(
                errno.ESTALE,
                f"others may take this process for dead, because {self._name} was not written for too long",
            )

    def end(self) -> None:
        """Remove the name; if that fails, others see that it does not change any more."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            self._root.remove(self._name)

    def _go_on(self) -> None:
        while not self._ended.wait(_BEAT_S):
            try:
                self.beat()
            except OSError as error:
                _log.warning(_LATE, extra={"cause": cause_text(error)})


@contextmanager
def beating(root: SharedRoot, name: str, about: object) -> Iterator[Heartbeat]:
    """Change a name while a block runs."""
    heart = Heartbeat(root, name, lambda: about)
    heart.begin()
    try:
        yield heart
    finally:
        heart.end()
