"""The heap of a busy process in pages of 2 MB.

A processor keeps the addresses of some thousand pages. The objects of Python lie in more, and a virtual machine looks each other
address up in two tables: this is a fifth of the processor time of a task. One page of 2 MB needs a single address.

Only memory that is in use becomes such a page, so a process hardly grows: at least half of its small pages must be there, and
belong to this process alone. Nothing is done where an administrator has chosen `never`, on other systems, or before Linux 6.1.
"""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, process_time  # a rerun may stop the clocks of the module
from typing import Final

_SIZE: Final = 2 << 20
_ENTRIES: Final = _SIZE // mmap.PAGESIZE
_ENTRY_BYTES: Final = 8
_OWN: Final = 0x81
"""The first byte of the entry of a page that is in memory, and in no other process."""

_COLLAPSE: Final = 25
"""`MADV_COLLAPSE`."""

_CHOICE: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_FIRST_S: Final = 2.0
_GROWTH: Final = 4
"""A process looks after 2 s of processor time, and again after four times as much, because its heap may have grown."""

_MOST_S: Final = 0.1
"""The longest time of one look: where memory is in pieces, Linux moves others to make room."""


class Heap:
    """The heap of this process."""

    def __init__(self) -> None:
        self._due_s = _FIRST_S

    @property
    def is_due(self) -> bool:
        """Whether the process has worked for so long that a look is worth its time."""
        return process_time() >= self._due_s

    def after_work(self) -> None:
        """Look for memory that can be in large pages, if that is due; call it between two works."""
        if self.is_due:
            is_whole = collapse(_MOST_S)
            self._due_s = process_time() * _GROWTH if is_whole else process_time() + _FIRST_S


HEAP: Final = Heap()


def collapse(most_s: float) -> bool:
    """Ask Linux for large pages where this process uses memory of its own; without them all goes on as before.

    Args:
        most_s: The seconds after which it stops.

    Returns:
        Whether all memory was asked for.
    """
    end_s = monotonic() + most_s
    with suppress(OSError, AttributeError):  # another system
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if "[never]" in _CHOICE.read_text():
            return True
        for place in _used():
            if monotonic() > end_s:
                return False
            madvise(place, _SIZE, _COLLAPSE)
    return True


def _used() -> Iterator[int]:
    """Yield where 2 MB begin at least half of which is in use by this process alone."""
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
        for start, end in [*_written()]:
            for place in range(-(-start // _SIZE) * _SIZE, end - _SIZE + 1, _SIZE):
                pages.seek(place // mmap.PAGESIZE * _ENTRY_BYTES)
                entries = pages.read(_ENTRIES * _ENTRY_BYTES)
                if entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES].count(_OWN) >= _ENTRIES // 2:
                    yield place


def _written() -> Iterator[tuple[int, int]]:
    """Yield the ranges of private memory that is not that of a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights, _, _, _, *name = line.split()
        if rights == "rw-p" and name in ([], ["[heap]"]):
            start, end = places.split("-")
            yield int(start, 16), int(end, 16)
