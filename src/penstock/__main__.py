"""`penstock` and `python -m penstock`: the command line, if its packages are installed.

Applications, their tests and clients need few packages; the command line needs the extra `server`.
Without it, a message says so.
"""

import sys

from penstock.cli.missing_extra import MISSING


def main() -> None:
    """Run the command that the process was started with, and exit."""
    try:
        from penstock.cli.main import main as run  # noqa: PLC0415 -- it may not be installed
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("penstock"):
            raise
        sys.stderr.write(f"error [config] {MISSING.format(module=error.name)}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
