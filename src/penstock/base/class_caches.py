"""Caches by class: a fact that follows from a class of the application is computed once.

The caches keep the classes alive. So a process that loads another version of the application empties them
(`forget_classes`), and the classes of versions before the former one can be collected.
"""

import functools
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SIZE: Final = 4_096
_caches: Final[list[Callable[[], None]]] = []


def cached_by_class(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """Keep the results of a function of a type; the type must be hashable."""
    cached = functools.lru_cache(maxsize=_SIZE)(function)
    _caches.append(cached.cache_clear)
    return cached


def forget_classes() -> None:
    """Empty all these caches, and those of `typing`; safe for threads, which compute the results again."""
    for clear in (
        *_caches,
        *getattr(typing, "_cleanups", ()),
    ):  # CPython's own tests use the latter
        clear()
