"""Where the example applications are: beside `src` in a clone, inside the package when installed."""

from pathlib import Path

import penstock
from penstock.errors import ConfigError


def sample_path(name: str) -> Path:
    """Return the folder of an example, such as `shop`.

    Raises:
        ConfigError: This installation has no such example.
    """
    package = Path(penstock.__file__).parent
    for folder in (package / "examples", package.parent.parent / "examples"):
        if (folder / name / "__init__.py").is_file():
            return folder / name
    raise ConfigError(f"this installation does not have the example {name!r}; use a clone")
