"""The heap of a process of pytest in pages of 2 MB, so that a fork of it is cheap.

A process has 260 MB of modules and tests, and each child that a test forks takes a copy of their 66,000 entries in the
tables of pages. Of large pages there are 113, and the kernel divides one where the parent or a child writes.
"""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SIZE = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE, which Linux has since 6.1; others refuse it


def collapse_heap() -> None:
    """Ask Linux for large pages where this process has memory that it writes; without them all goes on as before."""
    with suppress(OSError, AttributeError):  # another system
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, end in [*_written()]:
            for place in range(-(-start // _SIZE) * _SIZE, end - _SIZE + 1, _SIZE):
                madvise(place, _SIZE, _COLLAPSE)


def _written() -> Iterator[tuple[int, int]]:
    """Yield the ranges of private memory that is not that of a file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, rights, _, _, _, *name = line.split()
        if rights == "rw-p" and name in ([], ["[heap]"]):
            start, end = places.split("-")
            yield int(start, 16), int(end, 16)
