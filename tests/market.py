"""The three applications of the example market, and their modules in the process of a test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tests.checkout import TOP

PLACES = ("orders", "payment", "stock")
MARKET = TOP / "examples" / "market"


@contextmanager
def own_modules() -> Iterator[None]:
    """Let a block import applications of these names; afterwards, the modules of the process are back."""
    path, aside = list(sys.path), _removed()
    try:
        yield
    finally:
        _removed()
        sys.modules.update(aside)
        sys.path[:] = path


def _removed() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in PLACES]
    return {name: sys.modules.pop(name) for name in names}
