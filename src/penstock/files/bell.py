"""Bells: a thread that waits for the writes of another process is woken, so that an idle process need not look.

Linux tells of changes of files (inotify), and one thread of each process takes these events. A bell may ring for
nothing, so whoever hears it looks. A ring may be missing, because a folder may lie on another machine, so a wait ends after
`QUIET_S` in any case. Where no events come (another system, a store, no watch left for this user, a fork of
the process), a bell asks for short pauses between two looks.
"""

import errno
import math
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from penstock.files.durable import is_temporary

QUIET_S: Final = 0.25
"""The pause between two looks at a file or folder, in seconds."""

Looks = tuple[float, float]
"""The shortest and the longest pause between two looks, in seconds."""

_NEW_NAMES: Final = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_NEXT_WRITE: Final = 0x80000000 | 0x2  # IN_ONESHOT, IN_MODIFY
_ADD: Final = 0x20000000  # IN_MASK_ADD: a path has one watch, for all its bells
_REMOVED: Final = 0x8000  # IN_IGNORED
_EVENT: Final = struct.Struct("iIII")
_EVENTS_BYTES: Final = 65_536


class Bell:
    """Wakes threads that wait for a change; without a watch, only `ring` rings it.

    Attributes:
        rings: How often it has rung.
        rung_s: When it has rung last, in seconds of `time.monotonic`.
        is_watched: Whether Linux will tell of the next change.
        can_be_watched: False after a try that has failed.
    """

    def __init__(
        self,
        look_s: Looks,
        watched_s: Looks = (QUIET_S, QUIET_S),
        trusted_s: float = math.inf,
    ) -> None:
        """Make a bell that rings for no change yet.

        Args:
            look_s: The pauses between two looks while no events come.
            watched_s: The same while events come.
            trusted_s: If the last event is older than these seconds, no events come.
        """
        self.rings = 0
        self.rung_s = time.monotonic()
        self.is_watched = False
        self.can_be_watched = True
        self._look_s, self._watched_s, self._trusted_s = look_s, watched_s, trusted_s
        self._changed = threading.Condition()
        _bells.add(self)

    @property
    def look_s(self) -> Looks:
        """The pauses between two looks."""
        is_trusted = self.is_watched and time.monotonic() - self.rung_s <= self._trusted_s
        return self._watched_s if is_trusted else self._look_s

    def ring(self) -> None:
        """Wake all who wait."""
        with self._changed:
            self.rings += 1
            self.rung_s = time.monotonic()
            self._changed.notify_all()

    def wait(self, heard: int, timeout_s: float) -> None:
        """Wait until it has rung more often than `heard` says, or until the time is up."""
        with self._changed:
            if self.rings == heard:
                self._changed.wait(timeout_s)

    def watch_names(self, folder: Path) -> bool:
        """Let it ring whenever a name appears directly in a folder, but for temporary ones; return whether that is possible."""
        return _watch(self, folder, _NEW_NAMES)

    def watch_write(self, file: Path) -> bool:
        """Let it ring once, when a file is written to the next time; return whether that is possible."""
        return _watch(self, file, _NEXT_WRITE)

    def leave_parent(self) -> None:
        """Be the bell of a fork, which has no watches, and no thread that would give the lock back."""
        self._changed = threading.Condition()
        self.is_watched = False


_bells: Final[WeakSet[Bell]] = WeakSet()


class _Watcher:
    """The thread that takes the events of Linux.

    Raises:
        OSError: This user can watch nothing more.
        AttributeError: This system is not Linux.
    """

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 -- help and mistakes in a command line need no watch

        self._errno = ctypes.get_errno
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._source = self._checked(self._libc.inotify_init1(os.O_CLOEXEC))
        self._bells: dict[int, WeakSet[Bell]] = {}
        self._lock = threading.Lock()
        try:
            threading.Thread(target=self._run, name="penstock-bells", daemon=True).start()
        except RuntimeError as error:  # the system starts no further thread
            os.close(self._source)
            raise OSError(errno.EAGAIN, str(error)) from error

    def add(self, bell: Bell, path: Path, changes: int) -> None:
        with self._lock:  # an event must not come before its bell
            watch = self._libc.inotify_add_watch(self._source, os.fsencode(path), changes | _ADD)
            self._bells.setdefault(self._checked(watch), WeakSet()).add(bell)
            bell.is_watched = True

    def leave_parent(self) -> None:
        """Leave the events of Linux to the parent of this process."""
        os.close(self._source)

    def _checked(self, number: int) -> int:
        if number < 0:
            raise OSError(self._errno(), "cannot watch a file")
        return number

    def _run(self) -> None:
        while True:
            told = os.read(self._source, _EVENTS_BYTES)
            rung: dict[Bell, None] = {}  # once for all that was told at once
            at = 0
            while at < len(told):
                watch, change, _, length = _EVENT.unpack_from(told, at)
                begin, at = at + _EVENT.size, at + _EVENT.size + length
                if not is_temporary(os.fsdecode(told[begin:at].rstrip(b"\0"))):
                    rung |= dict.fromkeys(self._told(watch, change))
            for bell in rung:
                bell.ring()

    def _told(self, watch: int, change: int) -> list[Bell]:
        """Return the bells that an event rings."""
        with self._lock:
            bells = list(self._bells.get(watch, ()))
            if change & _REMOVED:  # the path is gone, or its one write was told
                self._bells.pop(watch, None)
                for bell in bells:
                    bell.is_watched = False
            elif not bells:
                self._libc.inotify_rm_watch(self._source, watch)
            return bells


_watchers: Final[list[_Watcher]] = []
_lock = threading.Lock()


def _watch(bell: Bell, path: Path, changes: int) -> bool:
    try:
        with _lock:
            if not _watchers:
                _watchers.append(_Watcher())
            _watchers[0].add(bell, path, changes)
    except (OSError, AttributeError):
        bell.can_be_watched = False
        return False
    return True


def _leave_parent() -> None:
    global _lock
    _lock = threading.Lock()
    while _watchers:
        _watchers.pop().leave_parent()
    for bell in _bells:
        bell.leave_parent()


os.register_at_fork(after_in_child=_leave_parent)
