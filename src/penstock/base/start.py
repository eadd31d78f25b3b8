"""Start a module of Penstock as a program of its own: `python -P -m penstock.base.start MODULE ARGUMENTS`.

A program imports a hundred thousand objects, and nearly all of them stay. To look for garbage among them while it imports
takes a fifth of its start, and to free them at its end takes as long.
"""

import atexit
import gc
import io
import os
import runpy
import sys
from contextlib import suppress
from typing import Final, NoReturn

_OBJECTS: Final = 100_000
"""New objects between two collections of garbage, until a program sets another number."""

_FILE: Final = io.IOBase.__mro__[1]
"""The class of all open files."""


def program_of(module: str) -> list[str]:
    """Return the words of the command line that starts a module; its arguments follow."""
    # -P: a module in the current directory must not replace one of Penstock.
    return [sys.executable, "-P", "-m", "penstock.base.start", module]


_all_are_ours = False
"""Whether Penstock and its libraries made all objects of this process, which is a program of Penstock."""

_exit_code: int | None = None
"""The exit code of a program that has done its work; None until then."""

_is_last = False
"""Whether Python calls `_end` after all other functions that are called at the end of this process."""


def look_for_less_garbage() -> None:
    """Collect seldom while this process imports, and look at none of its imports at the end."""
    global _all_are_ours, _is_last
    _all_are_ours = True
    _is_last = not atexit._ncallbacks()  # noqa: SLF001 -- Python calls the first one last
    gc.set_threshold(_OBJECTS)
    atexit.register(_end)


def before_user_code() -> None:
    """Keep the imports of a Penstock program apart from the objects of a user's modules, which follow."""
    global _all_are_ours
    if _all_are_ours:
        gc.freeze()
    _all_are_ours = False


def end_with(exit_code: int) -> NoReturn:
    """End this process, a program that has done its work, as `sys.exit` does, but leave its memory to the kernel.

    First, functions that wait for the end are called, and open files are written, also those of a user's modules.
    """
    global _exit_code
    _exit_code = exit_code
    sys.exit(exit_code)


def _end() -> None:
    if _exit_code is not None and _is_last and _are_written():
        os._exit(_exit_code)
    # DuckDB prints a list of all its objects that Python has not freed at the end.
    if "_duckdb" in sys.modules:
        gc.unfreeze()
    elif _all_are_ours:
        gc.freeze()


def _are_written() -> bool:
    """Flush the open files; return False if the output cannot be written, which Python itself then tells."""
    if not _all_are_ours:
        gc.unfreeze()  # a service has frozen the objects of a user, too
    for each in [] if _all_are_ours else gc.get_objects():
        # Not `isinstance`, which asks an object of a user for its class.
        if issubclass(type(each), _FILE):
            with suppress(Exception):  # it is closed, or its disk is full, as at any other end
                each.flush()
    try:
        for output in filter(None, (sys.stdout, sys.stderr)):
            output.flush()
    except Exception:  # noqa: BLE001 -- a user may have put an object of another class there
        return False
    return True


def main() -> None:
    """Run the module that the first argument names."""
    look_for_less_garbage()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    end_with(0)


if __name__ == "__main__":
    main()
