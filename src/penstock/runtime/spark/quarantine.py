"""Quarantine: a transaction that kills its worker process is found and set aside.

A task notes the position it is about to run in a small shared file, which survives the process, and
beside it the process, for the watchdog. If the task dies, Spark runs it again, and the new attempt finds the note: the position is suspect.
What was running at two deaths of the same task is not run a third time; it is recorded as failed.
"""

import mmap
import os
import struct
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

DEATHS: Final = 2
"""A worker can die by accident once while a transaction runs; twice accuses it."""

_IDLE: Final = -1
_NOTE: Final = struct.Struct("=qq")  # position, process id


class Note(NamedTuple):
    """What a process was or is running: a position of its epoch."""

    position: int
    pid: int


def read_note(path: Path) -> Note | None:
    """Return what a task runs, or ran when its process died; None where it runs nothing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _NOTE.size:
        return None
    position, pid = _NOTE.unpack(data)
    return None if position == _IDLE else Note(position, pid)


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
    return frozenset(one for one, times in Counter(_suspects(deaths)).items() if times >= DEATHS)


def deaths_noted(scratch: Path) -> int:
    """Return a number that grows with each death that was noted in a directory."""
    return sum(path.stat().st_size for path in scratch.glob("*.deaths"))


class Quarantine:
    """Notes of one task of one round, and what earlier attempts of it have left."""

    def __init__(self, path: Path) -> None:
        """Use `path` for the current position, and the same name with `.deaths` for suspects."""
        self._path = path
        self._deaths = path.with_suffix(".deaths")
        self.poisoned: frozenset[int] = frozenset()

    def __enter__(self) -> Self:
        """Read what earlier attempts have left; `now[0] = position` notes what runs."""
        left = read_note(self._path)
        if left is not None:
            suspects = [*_suspects(self._deaths), left.position]
            self._deaths.write_text(" ".join(map(str, suspects)))
        self.poisoned = _poisoned(self._deaths)
        self._path.write_bytes(_NOTE.pack(_IDLE, os.getpid()))
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
