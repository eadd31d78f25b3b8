"""Faults at the calls that change files: each call has a place before it and a place behind it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pytest

CALLS: Final = ("open", "write", "pwrite", "fsync", "link", "replace", "unlink")
"""The functions of `os` that durable files use."""


@contextmanager
def at_call(place: int, act: Callable[[], None]) -> Iterator[None]:
    """Act at one place during the block; an action that returns lets the call go on."""
    places = count()

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            if next(places) == place:
                act()
            result = call(*given, **named)
            if next(places) == place:
                act()
            return result

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, watched(getattr(os, name)))
        yield
