"""The modules that an application brings into the process of a test."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def own_modules(names: Collection[str]) -> Iterator[None]:
    """Let a block import modules and packages of these names; afterwards, those of the process are back."""
    path, aside = list(sys.path), _removed(names)
    try:
        yield
    finally:
        _removed(names)
        sys.modules.update(aside)
        sys.path[:] = path


def _removed(names: Collection[str]) -> dict[str, ModuleType]:
    removed = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in removed}
