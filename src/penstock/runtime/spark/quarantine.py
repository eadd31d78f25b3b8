"""Quarantine: a transaction that kills its worker process is found and set aside.

A task notes the position it is about to run in a small shared file, which survives the process, and
its process id, for the watchdog. If the task dies, Spark runs it again, and the new attempt finds the
note: the position is suspect. A position that was suspect at two deaths of the same task is not run a
third time; it is recorded as failed.

The system's memory killer ends a process for what it holds, not for what it runs. So after a death
each transaction's growth is measured, and a death for want of memory accuses the one that grew most.
"""

import mmap
import os
import re
import resource
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

DEATHS: Final = 2
"""A worker can die by accident once while a transaction runs; twice accuses it."""

_IDLE: Final = -1
_NOTE: Final = struct.Struct("=qqqq")  # position, process id, what grew most, killed for memory
_NOBODY: Final = -1
_GROWN_BYTES: Final = 64 << 20
"""A transaction that leaves its process larger by less than this is not accused of that."""

_VMSTAT: Final = Path("/proc/vmstat")
_STATM: Final = Path("/proc/self/statm")


class Note(NamedTuple):
    """What a process was or is running.

    Attributes:
        position: In its epoch.
        pid: The process.
        grown: The position whose transaction made the process grow most, -1 for none.
        kills: How many processes the system had killed for want of memory when the task began.
    """

    position: int
    pid: int
    grown: int = _NOBODY
    kills: int = 0


def read_note(path: Path) -> Note | None:
    """Return what a task runs, or ran when its process died; None where it runs nothing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _NOTE.size:
        return None
    note = Note._make(_NOTE.unpack(data))
    return None if note.position == _IDLE else note


def memory_kills() -> int:
    """Return how many processes this machine has killed for want of memory; 0 where it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", _VMSTAT.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 0 if found is None else int(found[1])


def _own_bytes() -> int:
    """Return the memory that is this process's alone; 0 where the system does not say."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text().split())
    except OSError:
        return 0
    return (resident - shared) * resource.getpagesize()


def condemned_in(scratch: Path, epoch: int) -> int:
    """Return how many positions of an epoch are set aside by the notes in a directory."""
    return sum(len(_poisoned(path)) for path in scratch.glob(f"e{epoch}-*.deaths"))


def _suspects(deaths: Path) -> list[int]:
    """Return what was running at each death; nothing where there was none."""
    try:
        return [int(word) for word in deaths.read_text().split()]
    except FileNotFoundError:
        return []


def _poisoned(deaths: Path) -> frozenset[int]:
    counts = Counter(_suspects(deaths))
    return frozenset(one for one, times in counts.items() if times >= DEATHS and one != _NOBODY)


def deaths_noted(scratch: Path) -> int:
    """Return a number that grows with each death that was noted in a directory."""
    return sum(path.stat().st_size for path in scratch.glob("*.deaths"))


class Quarantine:
    """Notes of one task of one round, and what earlier attempts of it have left.

    Attributes:
        poisoned: Positions that are not run again.
        careful: Whether the task has died before, so that each transaction is to be `measured`.
        now: `now[0] = position` notes what runs.
    """

    def __init__(self, path: Path, kills: Callable[[], int] = memory_kills) -> None:
        """Use `path` for the current position, and the same name with `.deaths` for suspects."""
        self._path = path
        self._deaths = path.with_suffix(".deaths")
        self._kills = kills
        self._bytes = self._growth = 0
        self.poisoned: frozenset[int] = frozenset()
        self.careful = False

    def __enter__(self) -> Self:
        """Read what earlier attempts have left."""
        left = read_note(self._path)
        if left is not None:
            suspects = [*_suspects(self._deaths), self._accused(left)]
            self._deaths.write_text(" ".join(map(str, suspects)))
        self.poisoned = _poisoned(self._deaths)
        self.careful = self._deaths.exists()
        self._bytes = _own_bytes()
        self._path.write_bytes(_NOTE.pack(_IDLE, os.getpid(), _NOBODY, self._kills()))
        with self._path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NOTE.size)
        self.now = memoryview(self._map).cast("q")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.now[0] = _IDLE
        self.now.release()
        self._map.close()
        if kind is None:
            self._path.unlink(missing_ok=True)

    def measured(self, position: int) -> None:
        """Note by how much a transaction that has ended has made the process grow."""
        before, self._bytes = self._bytes, _own_bytes()
        if (growth := self._bytes - before) > max(self._growth, _GROWN_BYTES):
            self._growth = growth
            self.now[2] = position

    def _accused(self, left: Note) -> int:
        """Return which position a death accuses: the one that ran, or the one that grew."""
        if self._kills() <= left.kills:
            return left.position
        if left.grown != _NOBODY:
            return left.grown
        return left.position if self._deaths.exists() else _NOBODY  # not measured the first time
