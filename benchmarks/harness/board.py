"""The numbers that the processes of a benchmark share, in shared memory.

Each number has a single writer and only grows, so no lock is needed: a reader sees the old value or
the new value.
"""

import os
from multiprocessing.context import SpawnContext
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

_NAMES: Final = (
    "go",  # main: Spark is ready
    "drained",  # main: everything that was fed is committed
    "prepared",  # feed: all requests are encoded
    "loading",  # feed: how many records fill the application
    "appended",  # feed: position after the last append
    "fed",  # feed: it will append no more
    "committed",  # tail: position after the last readable epoch
    "failed",  # tail: replies that are errors
    "began_ns",  # tail: when the measured window began, in monotonic time
    "ended_ns",  # tail: when it ended
)


class Board:
    """Named numbers in memory that spawned children share."""

    def __init__(self, context: SpawnContext) -> None:
        self._cells: Any = RawArray("q", len(_NAMES))
        self._parent = os.getpid()

    def __getitem__(self, name: str) -> int:
        return int(self._cells[_NAMES.index(name)])

    def __setitem__(self, name: str, value: int) -> None:
        self._cells[_NAMES.index(name)] = value

    @property
    def orphaned(self) -> bool:
        """Whether the parent process is gone; False in the parent."""
        return os.getpid() != self._parent and os.getppid() != self._parent
