"""The modules of one version of an application, kept apart from the modules of other versions.

All versions have modules of the same names. `SideModules` lends `sys.modules` and the import path to one version
during a block, so that an import inside of a handler finds its own version. After the block, the modules of the
process are back, and the version keeps its own, also those that were imported late. `load_instead` exchanges the
version of a process for good. One thread at a time may do either.
"""

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.base.class_caches import forget_classes
from penstock.deployment.loading import Location, load

if TYPE_CHECKING:
    from penstock.model.application import App


class SideModules:
    """The modules below a folder, which are imported in the blocks of `active` only."""

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        forget_classes()
        self._folder = str(folder)
        self._names = frozenset(names)
        self._modules: dict[str, ModuleType] = {}
        self._aside: dict[str, ModuleType] = {}
        self._path: list[str] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let imports find the modules of this version for the duration of a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Let imports find the modules of this version until `leave`."""
        self._path, self._aside = list(sys.path), _remove(self._names)
        sys.modules.update(self._modules)
        sys.path[:0] = [self._folder, str(Path.cwd())]
        importlib.invalidate_caches()

    def leave(self) -> None:
        """Put the modules of the process back, as they were at `enter`."""
        self._modules = _remove(self._names)
        sys.modules.update(self._aside)
        sys.path[:] = self._path


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """One version of an application in this process.

    Attributes:
        location: Its place, for other processes.
        modules: Its modules; None if they are those of the process.
    """

    app: "App"
    location: Location
    modules: SideModules | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let handlers of this version run during the block."""
        if self.modules is None:
            yield
        else:
            with self.modules.active():
                yield


def load_aside(location: Location) -> LoadedCode:
    """Import a version of the application, and leave the modules of this process as they are.

    Raises:
        ConfigError, DefinitionError: See `load_instead`.
    """
    folder = Path(location.folder)
    modules = SideModules(folder, top_level(folder))
    with modules.active():
        return LoadedCode(load(location), location, modules)


def load_instead(location: Location, former: Location) -> "App":
    """Import another version of the application of this process; later imports find this version.

    The objects of the former version stay usable. If the import fails, the former version stays in place.

    Args:
        location: The other version; its folder, and the folders next to it, are unpacked archives.
        former: The version that this process has loaded.
    """
    forget_classes()
    archives = Path(location.folder).parent
    tops = top_level(Path(location.folder))
    if Path(former.folder).parent == archives:  # the folder of a source may have much else
        tops |= top_level(Path(former.folder))  # a module that is gone may hide an installed one
    path, aside = list(sys.path), _remove(tops)
    others = [
        folder for folder in path if folder != former.folder and Path(folder).parent != archives
    ]
    sys.path[:] = [location.folder, str(Path.cwd()), *others]
    importlib.invalidate_caches()
    try:
        return load(location)
    except BaseException:
        _remove(tops)
        sys.modules.update(aside)
        sys.path[:] = path
        raise


def top_level(folder: Path) -> set[str]:
    """Return the names of the top-level modules and packages below a folder; data files have none."""
    paths = (path.relative_to(folder) for path in folder.rglob("*.py"))
    return {path.parts[0].removesuffix(".py") for path in paths}


def modules_below(tops: Collection[str]) -> dict[str, ModuleType]:
    """Return the imported modules with these names, and those below them."""
    imported = sys.modules.copy()  # in one step, because other threads import modules meanwhile
    return {name: module for name, module in imported.items() if name.partition(".")[0] in tops}


def _remove(tops: Collection[str]) -> dict[str, ModuleType]:
    """Remove all modules below these names from `sys.modules`, and return them."""
    removed = modules_below(tops)
    for name in removed:
        del sys.modules[name]
    return removed
