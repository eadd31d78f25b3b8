"""`penstock` and `python -m penstock`: the command line."""

import gc
import sys
from typing import Final

_INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as of every command."""


_OBJECTS: Final = 100_000
"""New objects between two collections of garbage: about as many as a command imports, and nearly all of them stay."""


def main() -> None:
    """Run the command that the process was started with, and exit."""
    gc.set_threshold(_OBJECTS)
    try:
        from penstock.cli.main import main as run_command  # noqa: PLC0415 -- Ctrl-C may come before its end

        run_command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
