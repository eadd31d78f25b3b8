"""Start a module of Penstock as a program of its own: `python -P -m penstock.base.start MODULE ARGUMENTS`.

A program imports a hundred thousand objects, and nearly all of them stay. To look for garbage among them while it imports
takes a fifth of its start, and to look again at its end takes as long.
"""

import atexit
import gc
import runpy
import sys
from typing import Final

_OBJECTS: Final = 100_000
"""New objects between two collections of garbage, until a program sets another number."""


def program_of(module: str) -> list[str]:
    """Return the words of the command line that starts a module; its arguments follow."""
    # -P: a module in the current directory must not replace one of Penstock.
    return [sys.executable, "-P", "-m", "penstock.base.start", module]


_all_are_ours = False
"""Whether Penstock and its libraries made all objects of this process, which is a program of Penstock."""


def look_for_less_garbage() -> None:
    """Collect seldom while this process imports, and do not look at the end at what it has imported.

    The objects of a user's modules are finalised at the end, as at the end of any process: Python writes what an open file
    holds back.
    """
    global _all_are_ours
    _all_are_ours = True
    gc.set_threshold(_OBJECTS)
    atexit.register(_end)  # it is the first one, which Python calls last


def before_user_code() -> None:
    """Keep what a program of Penstock has imported apart from the objects of a user's modules, which follow."""
    global _all_are_ours
    if _all_are_ours:
        gc.freeze()
    _all_are_ours = False


def _end() -> None:
    # DuckDB prints a list of all its objects that Python has not freed at the end.
    if "_duckdb" in sys.modules:
        gc.unfreeze()
    elif _all_are_ours:
        gc.freeze()


def main() -> None:
    """Run the module that the first argument names."""
    look_for_less_garbage()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
