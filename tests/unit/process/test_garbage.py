"""Collections of a process that serves visit only new objects, and objects that stay are collected on demand."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.process.process_limits import keep_present_objects


class Ring:
    """An object in a cycle, which only a collection can free."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def own_settings(thawing: None) -> Iterator[None]:
    """Give the collector its settings back."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_present_objects_are_collected_only_by_the_next_call() -> None:
    """A collection does not visit an object that was present, but a further call frees it."""
    ring = Ring()
    watch = weakref.ref(ring)
    keep_present_objects()
    del ring
    gc.collect()
    assert watch() is not None
    keep_present_objects()
    assert watch() is None


def test_garbage_of_requests_is_collected() -> None:
    """An object that was made later is collected as ever."""
    keep_present_objects()
    ring = Ring()
    watch = weakref.ref(ring)
    del ring
    gc.collect()
    assert watch() is None
