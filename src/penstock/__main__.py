"""`penstock` and `python -m penstock`: the command line."""

import sys
from typing import Final

from penstock.base.start import look_for_less_garbage

_INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as of every command."""


def main() -> None:
    """Run the command that the process was started with, and exit."""
    look_for_less_garbage()
    try:
        from penstock.cli.main import main as run_command  # noqa: PLC0415 -- Ctrl-C may come before its end

        run_command()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
