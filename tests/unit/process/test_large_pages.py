"""Memory in use comes into large pages; memory that is hardly used stays as it is."""

import ctypes
import mmap
import sys

import pytest

from penstock.process.large_pages import _SIZE, Heap, _used, collapse

PAGES = _SIZE // mmap.PAGESIZE


def filled(share: float) -> tuple[mmap.mmap, set[int]]:
    """Return memory with bytes in the first pages of every 2 MB, and where each 2 MB of it begin."""
    memory = mmap.mmap(-1, 3 * _SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    places = range(-(-start // _SIZE) * _SIZE, start + 2 * _SIZE, _SIZE)
    for place in places:
        for page in range(round(share * PAGES)):
            memory[place - start + page * mmap.PAGESIZE] = 1 + page % 251
    return memory, {*places}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux lists the pages of a process")
def test_memory_in_use_is_found_and_keeps_its_bytes() -> None:
    """Of memory that is hardly used nothing becomes large, so the process does not grow."""
    (hardly, few), (used, many) = filled(0.25), filled(0.75)
    texts = hardly[:], used[:]
    assert many <= {*_used()}
    assert not few & {*_used()}
    collapse(10.0)
    assert (hardly[:], used[:]) == texts
    assert not few & {*_used()}


def test_look_is_rare() -> None:
    """After a look, no other one is due until the process has worked for some time."""
    heap = Heap()
    heap.after_work()
    assert not heap.is_due
