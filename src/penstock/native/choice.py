"""Which implementation this process uses for the most frequent work of transactions: the compiled one, or Python.

Both give the same outcome and the same bytes. The compiled implementation (`_core`) is optional. It is never replaced in
silence: `penstock --version`, the line of a start and each deployment of the journal name the one in use. The variable
`PENSTOCK_NATIVE` of the environment decides:

- without it, the compiled implementation is used where it was built for this interpreter;
- `require`: without the compiled implementation, each process ends with an error;
- `disable`: Python is used.

A compiled file that was built from another source than the one beside it is not used.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import xxhash

from penstock.errors import ConfigError

VARIABLE: Final = "PENSTOCK_NATIVE"
REQUIRE: Final = "require"
DISABLE: Final = "disable"
_MODULE: Final = "penstock.native._core"
_REMEDY: Final = "run scripts/setup where a C compiler is, or install a wheel for this interpreter"


def source_digest(folder: Path) -> str:
    """Return the digest of the source of the compiled implementation; empty where a wheel has left it out."""
    digest = xxhash.xxh3_128()
    for path in sorted(folder.glob("*.p[yx][xi]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest() if digest.intdigest() != xxhash.xxh3_128().intdigest() else ""


def _loaded(wish: str) -> tuple[Any, str]:
    """Return the compiled implementation, or None with the reason."""
    if wish not in ("", REQUIRE, DISABLE):
        raise ConfigError(f"{VARIABLE} is {wish!r}; use {REQUIRE} or {DISABLE}, or leave it out")
    if wish == DISABLE:
        return None, f"{VARIABLE}={DISABLE}"
    try:
        module = import_module(_MODULE)
    except ImportError as error:
        return None, "not built" if isinstance(error, ModuleNotFoundError) else str(error)
    source = source_digest(Path(__file__).parent)
    if source and source != module.SOURCE:
        return None, "built from another source"
    return module, ""


core, _reason = _loaded(os.environ.get(VARIABLE, ""))
"""The compiled implementation; None if Python is used."""

if core is None and os.environ.get(VARIABLE) == REQUIRE:
    raise ConfigError(
        f"{VARIABLE}={REQUIRE}, and the compiled implementation cannot be used: {_reason}; {_REMEDY}"
    )


def describe() -> str:
    """Return which implementation is in use, in a few words: `compiled`, or `Python (…)` with the reason."""
    return "compiled" if core is not None else f"Python ({_reason})"
