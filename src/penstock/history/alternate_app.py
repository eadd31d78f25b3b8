"""Loads another version of an application into a process that has loaded the first version.

Both versions have modules of the same names. So the first version's modules are removed from
`sys.modules` during the block; imports of running handlers then find the second version. Objects of
both versions stay usable. One thread at a time may do this.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

from penstock.deployment.loading import Location, load, locate
from penstock.deployment.side_modules import modules_below
from penstock.model.application import App

_OURS: Final = "penstock"


@contextmanager
def alternate_app(spec: str, instead_of: str) -> Iterator[App]:
    """Load another version of an application for the duration of the block.

    Args:
        spec: The new version, as for `load_app`.
        instead_of: The loaded version.

    Raises:
        ConfigError: `load_app` would raise it.
        DefinitionError: `load_app` would raise it.
    """
    new, old = locate(spec), locate(instead_of)
    path, aside = list(sys.path), _modules_of(old) | _modules_of(new)
    for name in aside:
        del sys.modules[name]
    sys.path[:0] = [part.folder for part in new.applications]
    try:
        yield load(new)
    finally:
        for name in _modules_of(new):
            del sys.modules[name]
        sys.modules.update(aside)
        sys.path[:] = path


def _modules_of(location: Location) -> dict[str, ModuleType]:
    """Return the modules in the folders of the applications."""
    folders = {Path(part.folder) for part in location.applications}
    tops = {part.module.partition(".")[0] for part in location.applications}
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if "." not in name and file is not None and _top(Path(file)) in folders:
            tops.add(name)
    tops.discard(_OURS)
    return modules_below(tops)


def _top(file: Path) -> Path:
    """Return the folder from which a module or its package is imported."""
    return file.parent.parent if file.name == "__init__.py" else file.parent
