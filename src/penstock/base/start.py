"""Start a module of Penstock as a program of its own: `python -P -m penstock.base.start MODULE ARGUMENTS`.

A program imports a hundred thousand objects, and nearly all of them stay. To look for garbage among them meanwhile takes a
fifth of its start.
"""

import gc
import runpy
import sys
from typing import Final

OBJECTS: Final = 100_000
"""New objects between two collections of garbage, until a program sets another number."""


def program_of(module: str) -> list[str]:
    """Return the words of the command line that starts a module; its arguments follow."""
    # -P: a module in the current directory must not replace one of Penstock.
    return [sys.executable, "-P", "-m", "penstock.base.start", module]


def main() -> None:
    """Run the module that the first argument names."""
    gc.set_threshold(OBJECTS)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
