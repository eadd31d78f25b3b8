"""The modules of one version of an application, kept apart from the modules of other versions.

All versions have modules of the same names. During a block, `sys.modules` and the import path are those of one
version, so that an import inside of a handler finds its own version. After the block, the modules of the process
are back, and the version keeps its own, also those that were imported late. One thread at a time may do this.
"""

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


class SideModules:
    """The modules below a folder, which are imported in the blocks of `active` only."""

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        """Name the folder, and the top-level modules and packages in it; nothing is imported yet."""
        self._folder = str(folder)
        self._names = frozenset(names)
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let imports find the modules of this version for the duration of a block."""
        path, aside = list(sys.path), self._remove()
        sys.modules.update(self._modules)
        sys.path[:0] = [self._folder, str(Path.cwd())]
        importlib.invalidate_caches()
        try:
            yield
        finally:
            self._modules = self._remove()
            sys.modules.update(aside)
            sys.path[:] = path

    def _remove(self) -> dict[str, ModuleType]:
        """Remove all modules of these names from `sys.modules`, and return them."""
        names = [name for name in sys.modules if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in names}


def top_level(folder: Path) -> set[str]:
    """Return the names of the top-level modules and packages below a folder; data files have none."""
    paths = (path.relative_to(folder) for path in folder.rglob("*.py"))
    return {path.parts[0].removesuffix(".py") for path in paths}
