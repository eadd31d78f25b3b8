"""Which implementation of the most frequent work of transactions this process uses: the compiled one, or Python.

Both give the same outcomes and the same bytes. The compiled implementation (`_core`) is optional. Its absence is never
silent: `penstock --version`, the line of a start and each deployment of the journal name the implementation. The variable
`PENSTOCK_NATIVE` of the environment decides:

- without it, the compiled implementation is used where it was built for this interpreter;
- `require`: a process without the compiled implementation ends with an error;
- `disable`: Python is used.

A compiled file that was built from another source than the source beside it is not used.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConfigError
from penstock.native.digest import source_digest

VARIABLE: Final = "PENSTOCK_NATIVE"
REQUIRE: Final = "require"
DISABLE: Final = "disable"
COMPILED: Final = "compiled"
_MODULE: Final = "penstock.native._core"
_REMEDY: Final = "run scripts/setup where a C compiler is, or install a wheel for this interpreter"


def load(wish: str) -> tuple[Any, str]:
    """Load the compiled implementation.

    Args:
        wish: The value of `PENSTOCK_NATIVE`; empty without it.

    Returns:
        The module, or None and the reason why Python is used.
    """
    if wish not in ("", REQUIRE, DISABLE):
        raise ConfigError(f"{VARIABLE} is {wish!r}; use {REQUIRE} or {DISABLE}, or leave it out")
    if wish == DISABLE:
        return None, f"{VARIABLE}={DISABLE}"
    try:
        module = import_module(_MODULE)
    except ImportError as error:
        reason = "not built" if isinstance(error, ModuleNotFoundError) else str(error)
    else:
        source = source_digest(Path(__file__).parent)
        if source in ("", module.SOURCE):
            return module, ""
        reason = "built from another source"
    if wish == REQUIRE:
        raise ConfigError(
            f"{VARIABLE}={REQUIRE}, and the compiled implementation cannot be used: {reason}; {_REMEDY}"
        )
    return None, reason


core, _reason = load(os.environ.get(VARIABLE, ""))
"""The compiled implementation; None if Python is used."""


def implementation() -> str:
    """Return the name of the implementation in use: `compiled` or `Python`."""
    return "Python" if core is None else COMPILED


def describe() -> str:
    """Return how transactions run, to follow the words `transactions run`: `compiled`, or `in Python` with the reason."""
    return f"in Python ({_reason})" if core is None else COMPILED
